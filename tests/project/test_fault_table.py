"""Every kind of fault is once in the table of the docs, with what the system does."""

from __future__ import annotations

import re

from dartsim.sim.faults import KINDS
from experiments.reference import faults


def test_every_kind_is_in_the_table_once_and_says_what_the_system_does() -> None:
    assert all(kind.response for kind in KINDS.values())
    cells = [row.split(" | ")[1] for row in faults().splitlines()[2:]]
    assert sorted(re.findall(r"`(\w+)`", " ".join(cells))) == sorted(KINDS)
