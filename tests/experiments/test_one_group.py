"""The picture of docs/concepts.md shows what its text says."""

from __future__ import annotations

import platform
from itertools import pairwise
from pathlib import Path

import pytest
from rich.console import Console

from experiments.one_group import UPDATE, measure
from experiments.study import Figures, Options, recorded

PAGE = (Path(__file__).parents[2] / "docs" / "concepts.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def measured() -> Figures:
    return measure(Options(quick=False, seeds=1, console=Console()))


def test_it_is_what_is_recorded(measured: Figures) -> None:
    known = recorded("one_group")
    if known["machine"]["python"].split(".")[:2] != f"CPython {platform.python_version()}".split(".")[:2]:
        pytest.skip("another Python minor version may make another run of the same seed")
    assert measured == {name: known[name] for name in measured}


def test_the_page_tells_the_group_s_staleness(measured: Figures) -> None:
    assert len(measured["attempts"]) == 4
    (mixed,) = [attempt for attempt in measured["attempts"] if attempt["oldest_version"] < attempt["newest_version"]]
    assert mixed["newest_version"] == UPDATE - 1
    assert (
        f"slot {mixed['desktop']} was trained with a staleness of {UPDATE - 1 - mixed['oldest_version']}"
        in " ".join(PAGE.split())
    )


def test_states_follow_each_other_and_the_batch_is_leased_when_the_group_is_complete(measured: Figures) -> None:
    for tracks in measured["stays"].values():
        for track in tracks:
            assert track[0][1] <= 0.0
            assert track[-1][2] >= measured["seconds"]
            assert all(before[2] == after[1] for before, after in pairwise(track))
    assert max(attempt["ended"] for attempt in measured["attempts"]) == measured["leased"]
