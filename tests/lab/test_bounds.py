"""The bottleneck law over time, on series that can be worked out by hand, and beside simulated runs."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dartsim.config import load
from dartsim.lab.analytic_model import predict
from dartsim.lab.bounds import bounds, desktop_bound, driver_bound, engine_bound, supply_bound
from dartsim.observe.records import Snapshot
from dartsim.run.prepare import prepare
from dartsim.run.simulation import run_simulation


def made(minute, generated, dropped=0, trained=0, *, stale=0):
    """A snapshot with what a run had made by then."""
    counts = {
        "generated_turns": generated,
        "dropped_turns/all_failed": dropped,
        "dropped_turns/stale": stale,
        "trained_turns": trained,
    }
    return Snapshot(60.0 * minute, (), (), (), (), counts)


def test_where_one_part_limits_all_the_time_it_is_the_least_of_the_means():
    run = [made(0, 0), made(10, 1000, 500), made(20, 2000, 1000)]
    assert supply_bound({"trainer": 30.0, "desktops": 100.0, "engines": 300.0}, run, 0.0) == 30.0
    assert supply_bound({"trainer": 80.0, "desktops": 100.0, "engines": 300.0}, run, 0.0) == 50.0


def test_what_was_not_trained_while_desktops_limited_is_not_caught_up():
    # 40 usable turns a minute in the first half, 90 in the second; the trainer takes 60.
    run = [made(0, 0), made(10, 1000, 600), made(20, 2000, 700)]
    assert supply_bound({"trainer": 60.0, "desktops": 100.0}, run, 0.0) == (400 + 600) / 20
    whole = 1300 / 20  # the least of two means: 60, which lies above both what could be and what was
    assert min(60.0, whole) == 60.0


def test_what_lies_in_stock_after_the_warm_up_can_be_trained_then():
    run = [made(0, 0), made(10, 1000, trained=100), made(20, 2000, trained=900)]
    assert supply_bound({"trainer": 200.0, "desktops": 100.0}, run, 0.5) == (2000 - 100) / 10


def test_a_run_that_made_less_than_it_could_goes_on_as_in_its_second_half():
    # Half as fast as desktops allow: what they would have made beyond 1,000 turns is usable as the last 500 were.
    run = [made(0, 0), made(10, 500, 400), made(20, 1000, 500)]
    assert supply_bound({"trainer": inf, "desktops": 100.0}, run, 0.0) == (500 + 0.8 * 1000) / 20


def test_what_was_stale_is_the_schedulers_own_loss():
    run = [made(0, 0), made(10, 1000, stale=900)]
    assert supply_bound({"trainer": inf, "desktops": 100.0}, run, 0.0) == 100.0


def test_a_part_that_is_real_binds_nobody():
    assert supply_bound({}, [made(0, 0), made(10, 1000)], 0.0) == inf


@given(
    steps=st.lists(st.tuples(st.integers(1, 500), st.floats(0.0, 1.0)), min_size=1, max_size=20),
    trainer=st.floats(1.0, 500.0),
    desktops=st.floats(1.0, 500.0),
    warmup=st.floats(0.0, 0.9),
)
def test_it_is_never_above_the_trainer_and_grows_with_every_part(steps, trainer, desktops, warmup):
    run, generated, dropped = [made(0, 0)], 0, 0
    for minute, (turns, share) in enumerate(steps, start=1):
        generated, dropped = generated + turns, dropped + int(turns * share)
        run.append(made(minute, generated, dropped))
    bound = supply_bound({"trainer": trainer, "desktops": desktops}, run, warmup)
    assert bound <= trainer * (1 + 1e-9)
    for more in ({"trainer": 2 * trainer, "desktops": desktops}, {"trainer": trainer, "desktops": 2 * desktops}):
        assert supply_bound(more, run, warmup) >= bound * (1 - 1e-9)


@pytest.mark.parametrize(("workload", "hours"), [("laptop", 1.0), ("osworld", 1.0), ("skewed-hosts", 3.0)])
def test_no_simulated_run_trains_more(workload, hours):
    prepared = prepare(load(preset_name="dartsim", workload_name=workload, overrides=[f"run.hours={hours}"]))
    result = run_simulation(prepared)
    closed = bounds(prepared, result.figures, result.recorder.snapshots)
    bound = closed["bound_trained_turns_per_minute"]
    update = result.figures["trained_turns_per_minute"] / result.figures["num_updates"]
    assert 0.0 < result.figures["trained_turns_per_minute"] <= bound + update, "the window may cut one update"
    assert bound <= closed["bounds"]["trainer"]
    assert (closed["bound_by"] == "trainer") == (bound == closed["bounds"]["trainer"])


def test_no_run_generates_more_than_its_driver_handles():
    """Desktops and engines would make more; then the driver is what limits them, in the run and in both laws."""
    changes = ["run.hours=1.0", "cluster.engine.control_seconds=2.0"]
    prepared = prepare(load(preset_name="dartsim", workload_name="laptop", overrides=changes))
    figures = run_simulation(prepared).figures
    most = driver_bound(prepared)
    assert most == 30.0 < min(desktop_bound(prepared, 14.0), engine_bound(prepared, 14.0))
    assert 0.9 * most < figures["generated_turns_per_minute"] <= 1.01 * most
    assert predict(prepared).bounds["driver"] <= most
    free = prepare(load(preset_name="dartsim", workload_name="laptop", overrides=["run.hours=1.0"]))
    assert driver_bound(free) == inf
    assert "driver" not in predict(free).bounds


def test_spares_that_are_set_up_ahead_let_slots_turn_faster():
    def slots_alone(revert):
        config = load(
            preset_name="dart",
            overrides=(f"desktop.revert={revert}", "rollout.num_envs=4", "rollout.warm_envs=40"),
        )
        return desktop_bound(prepare(config), 15.0)

    assert slots_alone("fork") > 1.1 * slots_alone("boot")


def test_a_run_takes_spares_that_are_set_up_for_its_tasks():
    overrides = ("desktop.revert=fork", "rollout.num_envs=4", "rollout.warm_envs=8", "run.hours=1.0")
    figures = run_simulation(prepare(load(preset_name="dart", overrides=overrides))).figures
    assert figures["reverts"] == {}
    assert figures["spares"]["hits"] > 10
    assert figures["desktop_shares"]["setup"] < 0.1
