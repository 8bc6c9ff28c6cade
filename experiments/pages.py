"""Writes the tables and pictures of the docs from the recorded figures, so that docs quote what was recorded.

    python -m experiments.pages

A page holds a pair of comments ``<!-- figures: NAME -->`` and ``<!-- end -->`` around each such table; pictures are
files of their own in docs/figures. A new table is a function in its study's ``tables``, and a mark on a page.
"""

from __future__ import annotations

import argparse
import importlib
import re
from pathlib import Path

from experiments.claims_tables import pictures
from experiments.study import Experiment, refusals_told

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

STUDIES = (
    "headline",
    "presets",
    "schedulers",
    "verl_table",
    "claims",
    "ablation",
    "history_images",
    "main_job",
    "speed",
    "lab_speed",
    "learner_speed",
    "mock_speed",
    "desktop",
    "scoring",
    "router",
    "driver",
    "partitions",
    "sync_cost",
    "ray_overhead",
    "real_loop",
    "crashes",
    "faults",
    "fuzz_power",
)
"""Studies whose tables pages quote."""


def tables() -> dict[str, Experiment]:
    """Return the study that has each table, by the table's name.

    Raises:
        ValueError: If two studies have a table of the same name.
    """
    found: dict[str, Experiment] = {}
    for name in STUDIES:
        module = importlib.import_module(f"experiments.{name}")
        for study in (value for value in vars(module).values() if isinstance(value, Experiment)):
            if both := found.keys() & study.tables.keys():
                raise ValueError(f"more than one study has a table named {', '.join(sorted(both))}")
            found |= dict.fromkeys(study.tables, study)
    return found


def render(text: str) -> str:
    """Return a page with all its marked tables written anew."""
    studies = tables()

    def replace(match: re.Match[str]) -> str:
        try:
            made = studies[match["name"]].page_text(match["name"])
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
