"""Which tasks a run trained on: its classes of tasks, and one that a scheduler starves."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dartsim.config import load
from dartsim.core.types import Task
from dartsim.observe.bias import judged_shares
from dartsim.run.prepare import prepare
from dartsim.run.results import classes, difficulty
from dartsim.run.run_prepared import run_prepared
from dartsim.sim.task_difficulties import TaskDifficulty


def lab(preset, hours, *changes):
    overrides = [f"run.hours={hours}", "run.max_segments=0", 'curation.store="memory"', *changes]
    return prepare(load(preset, on="long-tail", overrides=overrides))


def test_tasks_have_only_the_classes_that_are_known_of_them():
    found = lab("trl", 1.0)
    assert [*classes(found)] == ["by task difficulty", "by task length"]
    tasks = [Task(name, "do it", domain) for name, domain in (("a", "chrome"), ("b", "gimp"), ("c", "gimp"))]
    rates = {"a": 0.29, "b": 0.7, "c": 0.71}
    known = {
        name: TaskDifficulty(rate, factor) for (name, rate), factor in zip(rates.items(), (2.0, 1.0, 0.5), strict=True)
    }
    assert classes(replace(found, tasks=tasks, difficulties=known)) == {
        "by domain": {"a": "chrome", "b": "gimp", "c": "gimp"},
        "by task difficulty": {"a": "hard", "b": "middle", "c": "easy"},
        "by task length": {"a": "long", "b": "middle", "c": "short"},
    }
    assert [*classes(replace(found, tasks=tasks, difficulties={}))] == ["by domain"]
    assert (difficulty(0.3), difficulty(0.0), difficulty(1.0)) == ("middle", "hard", "easy")


def test_a_scheduler_that_drops_stragglers_starves_long_tasks():
    """DART's run drops what is more than one version old; with small batches, groups of up to 100 turns often are."""
    small = ("curation.batch.min_groups=3", "curation.batch.max_groups=4", "cluster.engine.reload_seconds=30")
    found = judged_shares(run_prepared(lab("dart-measured", 4.0, *small)).bias)
    assert [(by, label) for by, own in found.items() for label, share in own.items() if share.starved] == [
        ("length", "long")
    ]
    assert found["length"]["long"].ratio < 0.7


def test_one_that_waits_for_them_starves_nobody():
    """The filter leaves two fifths of hard and easy tasks, and nearly all of the others."""
    found = judged_shares(run_prepared(lab("trl", 2.0)).bias)
    assert not any(share.starved for own in found.values() for share in own.values())
    for label, expected in (("hard", 0.43), ("middle", 0.97), ("easy", 0.41)):
        assert found["difficulty"][label].kept_share == pytest.approx(expected, abs=0.1)
