"""Bounds on trained turns, beside simulated runs."""

from __future__ import annotations

import pytest

from dartsim.config import load
from dartsim.lab.bounds import bounds, engine_bound, least_seconds, usable_share
from dartsim.observe.records import Snapshot
from dartsim.run.prepare import prepare
from dartsim.run.run_prepared import run_prepared


def made(minute, generated, dropped, stale=0):
    """A snapshot with what a run had made by then."""
    counts = {"generated_turns": generated, "dropped_turns/all_failed": dropped, "dropped_turns/stale": stale}
    return Snapshot(60.0 * minute, (), (), (), (), counts)


def test_only_groups_without_a_signal_make_turns_useless_and_the_warm_up_does_not_count():
    assert usable_share(made(10, 1000, 900), made(20, 2000, 1100, stale=500)) == 0.8
    assert usable_share(made(10, 1000, 900), made(10, 1000, 900)) == 1.0


@pytest.mark.parametrize(("workload", "hours"), [("laptop", 1.0), ("osworld", 1.0), ("skewed-hosts", 3.0)])
def test_no_simulated_run_trains_more(workload, hours):
    prepared = prepare(load("dartsim", on=workload, overrides=[f"run.hours={hours}"]))
    result = run_prepared(prepared)
    found = bounds(prepared, result.figures, result.recorder.snapshots)
    bound = found["bound_trained_turns_per_minute"]
    update = result.figures["trained_turns_per_minute"] / result.figures["num_updates"]
    assert 0.0 < result.figures["trained_turns_per_minute"] <= bound + update, "the window may cut one update"
    assert bound == found["bounds"][found["bound_by"]] == min(found["bounds"].values())


def test_an_engine_is_full_with_the_sequences_that_fit_and_no_faster_alone():
    prepared = prepare(load("dart"))
    seconds = [least_seconds(prepared, 14.0, most) for most in (1, 2, 8, 10_000, 20_000)]
    assert seconds == sorted(seconds, reverse=True)
    assert seconds[-1] == seconds[-2]
    rollout = prepared.config.rollout
    most = -(-rollout.num_envs // rollout.num_workers)
    assert engine_bound(prepared, 14.0) == 60.0 * rollout.num_workers / least_seconds(prepared, 14.0, most)


def test_what_is_real_or_trained_nothing_has_no_bound():
    prepared = prepare(load("dart"))
    none = {"num_updates": 0, "turns_per_trajectory": 14.0}
    assert bounds(prepared, none, []) == {"bound_trained_turns_per_minute": None, "bound_by": None}
