"""Writes the tables and pictures of the pages from the recorded figures: what docs quote is what was recorded.

    python -m experiments.pages

A page holds a pair of comments ``<!-- figures: NAME -->`` and ``<!-- end -->`` around each such table; pictures are
files of their own in docs/figures. The tables are made in ``experiments/*_tables.py``, a file for each family of
studies; each has them by name in its ``TABLES``, which are put together here.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Mapping
from pathlib import Path

from experiments import (
    ablation_tables,
    claims_tables,
    crash_tables,
    desktop_tables,
    engine_tables,
    fault_tables,
    fuzz_tables,
    headline_tables,
    learning_tables,
    scheduler_tables,
    speed_tables,
    twin_tables,
)
from experiments.claims_pictures import LINKS, pictures
from experiments.common import refusals_told

ROOT = Path(__file__).resolve().parent.parent
PAGES = (
    "README.md",
    "docs/experiments.md",
    "docs/inference.md",
    "docs/desktops.md",
    "docs/learning.md",
    "docs/speed.md",
    "docs/storage.md",
    "docs/ablation.md",
    "docs/lab.md",
    "docs/cluster.md",
    "docs/schedulers.md",
    "docs/faults.md",
    "docs/fuzzing.md",
    "docs/claims.md",
)
MARKED = re.compile(r"(<!-- figures: (?P<name>[\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)

TABLES: Mapping[str, Callable[[], str]] = {
    **headline_tables.TABLES,
    **scheduler_tables.TABLES,
    **claims_tables.TABLES,
    **LINKS,
    **ablation_tables.TABLES,
    **learning_tables.TABLES,
    **speed_tables.TABLES,
    **desktop_tables.TABLES,
    **engine_tables.TABLES,
    **twin_tables.TABLES,
    **crash_tables.TABLES,
    **fault_tables.TABLES,
    **fuzz_tables.TABLES,
}
"""What is written between a page's marks, by the name in them; each raises FileNotFoundError if nothing is recorded."""


def render(text: str) -> str:
    """Return a page with all its marked tables written anew."""

    def replace(match: re.Match[str]) -> str:
        try:
            made = TABLES[match["name"]]()
        except FileNotFoundError:
            made = "Not recorded yet.\n"
        return f"{match[1]}{made}{match[3]}"

    return MARKED.sub(replace, text)


def main() -> None:
    """Write all pages, and all pictures."""
    argparse.ArgumentParser(prog="python -m experiments.pages", description=str(__doc__).splitlines()[0]).parse_args()
    with refusals_told():
        drawn_pictures = pictures()
    for path, drawn in drawn_pictures.items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(drawn, encoding="utf-8")
    for name in PAGES:
        page = ROOT / name
        page.write_text(render(page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
