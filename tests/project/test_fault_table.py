"""Every kind of fault is once in the table of the docs, with what the system does; the tests it names exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dartsim.sim.faults import KINDS
from experiments.reference import faults

ROOT = Path(__file__).resolve().parents[2]
TEST = re.compile(r"(?P<file>[\w/]+\.py)::(?P<test>\w+)(?:\[(?P<case>[^\]]+)\])?")
REAL = [kind for kind in KINDS.values() if kind.real_test]


def test_every_kind_is_in_the_table_once_and_says_what_the_system_does() -> None:
    assert all(kind.response for kind in KINDS.values())
    cells = [row.split(" | ")[1] for row in faults().splitlines()[2:]]
    assert sorted(re.findall(r"`(\w+)`", " ".join(cells))) == sorted(KINDS)


def test_many_kinds_happen_to_real_components() -> None:
    assert len(REAL) > 20


@pytest.mark.parametrize("kind", REAL, ids=lambda kind: kind.name)
def test_the_test_exists(kind) -> None:
    named = TEST.fullmatch(kind.real_test)
    assert named
    text = (ROOT / "tests" / "real" / named["file"]).read_text(encoding="utf-8")
    assert f"def {named['test']}(" in text
    assert named["case"] is None or f'id="{named["case"]}"' in text
