"""Each row of the table of simulated and real faults names a test that is there."""

from __future__ import annotations

import re
from pathlib import Path

from dartsim.sim.faults import KINDS

ROOT = Path(__file__).resolve().parents[2]
TEST = re.compile(r"`(?P<file>[\w/]+\.py)::(?P<test>\w+)(?:\[(?P<case>[^\]]+)\])?`")
WORD = re.compile(r"`([a-z]+(?:_[a-z]+)+)`")


def rows() -> list[list[str]]:
    """Return the cells of the table's rows."""
    page = (ROOT / "docs" / "faults.md").read_text(encoding="utf-8")
    section = page.partition("## Simulated and real")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_every_row_names_a_test_that_exists() -> None:
    found = rows()
    assert len(found) > 10
    for row in found:
        named = TEST.fullmatch(row[-1])
        assert named, row
        text = (ROOT / "tests" / "real" / named["file"]).read_text(encoding="utf-8")
        assert f"def {named['test']}(" in text, row[-1]
        assert named["case"] is None or f'id="{named["case"]}"' in text, row[-1]


def test_every_simulated_kind_of_the_table_exists() -> None:
    for row in rows():
        unknown = [kind for kind in WORD.findall(row[2]) if kind not in KINDS]
        assert unknown == [], row
