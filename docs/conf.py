"""The site: the pages of this directory, and the API reference from docstrings.

    tox run -e docs        # or: sphinx-build -W --keep-going -b html docs build/site

Pages are plain Markdown, which GitHub shows as well. What the site needs beyond that is added here: the sidebar is made
of the sections and links of ``index.md``, and the API reference is appended to ``api.md``.
"""

from __future__ import annotations

import re
from importlib.metadata import version as installed_version

from sphinx.application import Sphinx

project = "dartsim"
version = release = installed_version("dartsim")
copyright = "The dartsim authors"

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinxcontrib.mermaid"]
root_doc = "index"
exclude_patterns = ["**/README.md", "**/.pytest_cache"]

myst_fence_as_directive = ["mermaid"]
myst_heading_anchors = 4  # headings have the anchors that they have on GitHub
suppress_warnings = ["myst.header"]

autodoc_typehints = "description"
autodoc_default_options = {"exclude-members": "model_config"}
autodoc_member_order = "bysource"

html_theme = "furo"
html_title = "dartsim"
html_copy_source = False

REFERENCE = """
## Reference

```{eval-rst}
.. automodule:: dartsim
   :members:
   :imported-members:

.. automodule:: dartsim.testing
   :members:
   :imported-members:
   :exclude-members: pytest_addoption

.. automodule:: dartsim.envs
   :members:
   :exclude-members: Task, Observation
```
"""

HEADING_OR_PAGE = re.compile(r"^## (?P<heading>.+)$|\]\((?P<page>[\w-]+)\.md\)", re.MULTILINE)


def sidebar(index: str) -> str:
    """Return a table of contents for each section of the index, with the pages that it links to."""
    sections: list[tuple[str, list[str]]] = []
    for match in HEADING_OR_PAGE.finditer(index):
        if match["heading"]:
            sections.append((match["heading"], []))
        elif match["page"] not in sections[-1][1]:
            sections[-1][1].append(match["page"])
    return "".join(
        "\n".join(["\n```{toctree}", ":hidden:", f":caption: {heading}", "", *pages, "```\n"])
        for heading, pages in sections
        if pages
    )


def add_to_page(_: Sphinx, name: str, source: list[str]) -> None:
    """Append what only the site shows."""
    if name == root_doc:
        source[0] += sidebar(source[0])
    if name == "api":
        source[0] += REFERENCE


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("source-read", add_to_page)
