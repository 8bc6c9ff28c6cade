"""Writes the tables and pictures of the docs from recorded figures and from the code, so that none goes stale.

    python -m experiments.pages

A page holds a pair of comments ``<!-- figures: NAME -->`` and ``<!-- end -->`` around each such table; pictures are
files of their own in docs/figures. A new table is a function in its study's ``tables``, a new picture one in its
``pictures``; both need a mark on a page. Tables that come from the code are in ``experiments.reference``.
"""

from __future__ import annotations

import argparse
import importlib
import re
from pathlib import Path

from experiments.reference import TABLES
from experiments.study import Experiment, exit_on_refusal

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
MARKED = re.compile(r"(<!-- figures: (?P<name>[\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)

STUDIES = sorted(
    file.stem for file in Path(__file__).parent.glob("*.py") if "STUDY = " in file.read_text(encoding="utf-8")
)
"""The modules that hold a study."""


def pages() -> list[Path]:
    """Return every page."""
    return [ROOT / "README.md", *sorted(DOCS.glob("**/*.md"))]


def marks() -> dict[str, Experiment]:
    """Return the study that fills each mark of recorded figures, by the mark's name.

    Raises:
        ValueError: If two studies have a table or a picture of the same name.
    """
    found: dict[str, Experiment] = {}
    for name in STUDIES:
        module = importlib.import_module(f"experiments.{name}")
        for study in (value for value in vars(module).values() if isinstance(value, Experiment)):
            if both := found.keys() & study.marks:
                raise ValueError(f"more than one study has a table or picture named {', '.join(sorted(both))}")
            found |= dict.fromkeys(study.marks, study)
    return found


def render(text: str, folder: str = "figures") -> str:
    """Return a page with all its marked tables written anew; pictures are in ``folder``, relative to the page."""
    studies = marks()

    def replace(match: re.Match[str]) -> str:
        name = match["name"]
        try:
            made = TABLES[name]() if name in TABLES else studies[name].page_text(name, folder)
        except FileNotFoundError:
            made = "Not recorded yet.\n"
        return f"{match[1]}{made}{match[3]}"

    return MARKED.sub(replace, text)


def rendered(page: Path) -> str:
    """Return what a page should contain."""
    return render(page.read_text(encoding="utf-8"), "docs/figures" if page.parent == ROOT else "figures")


def quoted_pictures() -> dict[Path, tuple[Experiment, str]]:
    """Return the study and the name of every picture that a page shows and that is recorded, by its file."""
    studies = marks()
    found = {match["name"] for page in pages() for match in MARKED.finditer(page.read_text(encoding="utf-8"))}
    names = [(studies[mark], mark.removesuffix("-picture")) for mark in sorted(found) if mark.endswith("-picture")]
    return {DOCS / "figures" / f"{name}.svg": (study, name) for study, name in names if study.is_recorded(name)}


def main() -> None:
    """Write all pages, and all pictures that they show."""
    argparse.ArgumentParser(prog="python -m experiments.pages", description=str(__doc__).splitlines()[0]).parse_args()
    for page in pages():
        page.write_text(rendered(page), encoding="utf-8")
    with exit_on_refusal():
        for path, (study, name) in quoted_pictures().items():
            path.parent.mkdir(exist_ok=True)
            path.write_text(study.drawn(name), encoding="utf-8")


if __name__ == "__main__":
    main()
