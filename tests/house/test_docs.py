"""The pages link to what exists, and the index names every page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)(?:#[^)\s]*)?\)")


def links(page: Path) -> list[str]:
    """Return the local targets a Markdown page links to."""
    found = LINK.findall(page.read_text(encoding="utf-8"))
    return [target for target in found if not re.match(r"[a-z]+:", target)]


@pytest.mark.parametrize("page", ["README.md", *sorted(f"docs/{p.name}" for p in DOCS.glob("*.md"))])
def test_every_local_link_leads_somewhere(page: str):
    path = ROOT / page
    missing = [target for target in links(path) if not (path.parent / target).exists()]
    assert missing == []


def test_the_index_names_every_page():
    pages = {page.name for page in DOCS.glob("*.md")} - {"README.md"}
    assert pages == set(links(DOCS / "README.md")) & pages
    assert pages
