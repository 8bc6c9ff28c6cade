"""The pages link to what exists, and the index names every page."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from dartsim.config import Config, presets
from dartsim.config.load import describe, valid_keys

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = [*sorted(page.name for page in ROOT.glob("*.md")), *sorted(f"docs/{page.name}" for page in DOCS.glob("*.md"))]
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)(?:#[^)\s]*)?\)")


def links(page: Path) -> list[str]:
    """Return the local targets a Markdown page links to."""
    found = LINK.findall(page.read_text(encoding="utf-8"))
    return [target for target in found if not re.match(r"[a-z]+:", target)]


@pytest.mark.parametrize("page", PAGES)
def test_every_local_link_leads_somewhere(page: str):
    path = ROOT / page
    missing = [target for target in links(path) if not (path.parent / target).exists()]
    assert missing == []


def test_the_index_names_every_page():
    pages = {page.name for page in DOCS.glob("*.md")} - {"index.md"}
    assert pages == set(links(DOCS / "index.md")) & pages
    assert pages


FILE_NAMES = (".py", ".png", ".db", ".lock", ".toml", ".json")
SETTING = re.compile(rf"`((?:{'|'.join(Config.model_fields)})\.[a-z0-9_.]+)(?: ?=[^`]*)?`")


@pytest.mark.parametrize("page", PAGES)
def test_every_setting_that_a_page_names_exists(page: str):
    known, settings = set(valid_keys()), {setting.key for setting in describe()}
    named = {key for key in SETTING.findall((ROOT / page).read_text(encoding="utf-8")) if not key.endswith(FILE_NAMES)}
    # The keys below a setting are those of a distribution.
    assert [key for key in sorted(named - known) if key.rpartition(".")[0] not in settings] == []


def test_the_reference_names_every_preset():
    page = (DOCS / "reference.md").read_text(encoding="utf-8")
    assert [name for name in presets() if f"`{name}`" not in page] == []


EXAMPLE = re.compile(r"```python\n(.*?)```", re.DOTALL)


def examples() -> list[tuple[str, str]]:
    """Return every Python example of the pages with a name for it."""
    found = []
    for page in [ROOT / "README.md", *sorted(DOCS.glob("*.md"))]:
        blocks = EXAMPLE.findall(page.read_text(encoding="utf-8"))
        found += [(f"{page.name}-{number}", code) for number, code in enumerate(blocks)]
    return found


@pytest.mark.parametrize("code", [code for _, code in examples()], ids=[name for name, _ in examples()])
def test_every_example_runs(code: str):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_pages_quote_the_recorded_figures():
    from experiments.pages import pages, rendered

    for page in pages():
        assert page.read_text(encoding="utf-8") == rendered(page), (
            f"{page.name} is out of date; run `python -m experiments.pages`"
        )


def test_pictures_are_drawn_from_what_is_recorded():
    """Not to the byte: another release of matplotlib may draw another one."""
    from experiments.pages import quoted_pictures

    quoted = quoted_pictures()
    assert set(DOCS.glob("figures/*.svg")) == set(quoted)
    for path, (study, _) in quoted.items():
        found = path.read_text(encoding="utf-8")
        assert found.endswith(study.drawn_of()), f"{path.name} is out of date; run `python -m experiments.pages`"
