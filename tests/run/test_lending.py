"""Lending in whole clusters: no GPU is an engine's and the trainer's at once, whatever is drawn, whatever fails."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dartsim.core.errors import ConfigError
from dartsim.core.types import Weights
from dartsim.observe import EngineState, TrainerState
from dartsim.run.prepare import prepare
from dartsim.run.run_prepared import build_here
from dartsim.store.memory import MemoryStore
from tests.run.clusters import HOURS, check_accounts, check_drained, check_time, run, small


def lending(engines=2, **tables):
    """A small cluster whose trainer waits for data."""
    rollout = {"num_workers": 1, "lending": {"engines": engines, "share": 1.0}, **tables.pop("rollout", {})}
    return small("verl-dynamic", rollout=rollout, **tables)


def check_gpus(system, config):
    """Every second of a lent engine, even while it loads or is down, is one in which the trainer has lent its GPUs."""
    recorder, first = system.recorder, config.rollout.num_workers
    for population in (recorder.engines, recorder.trainer):
        population.flush()
    lent = [(begin, end) for _, state, begin, end in recorder.trainer.segments if state == TrainerState.LENT]
    for index, state, begin, end in recorder.engines.segments:
        if index >= first and state != EngineState.OFF:
            inside = any(since <= begin and end <= until for since, until in lent)
            assert inside, f"engine {index} is {EngineState(state).key} from {begin} to {end}, lent: {lent}"


def checked(config):
    """Run a configuration; nothing is left, everything adds up, and no GPU was used twice."""
    system, store, report = run(config)
    check_drained(system)
    check_accounts(system, store)
    check_time(system, config, report.virtual_seconds)
    check_gpus(system, config)
    return system


@st.composite
def configs(draw):
    mode = draw(st.sampled_from(["drain", "keep", "restart"]))
    shares = st.sampled_from([0.0, 0.0, 0.3])
    return lending(
        draw(st.integers(1, 3)),
        rollout={
            "num_envs": draw(st.integers(1, 8)),
            "num_workers": draw(st.integers(1, 2)),
            "sync": {"mode": mode, "resume_seconds": 1.0 if mode == "keep" else "none"},
            "lending": {
                "engines": draw(st.integers(1, 3)),
                "share": draw(st.sampled_from([0.3, 1.0])),
            },
        },
        curation={"batch": {"min_groups": draw(st.integers(1, 2)), "max_groups": 2}},
        trainer={"publish_every": draw(st.integers(1, 3)), "wait_for_sync": draw(st.booleans())},
        cluster={
            "engine": {"lend_seconds": draw(st.sampled_from([0.0, 20.0, 300.0])), "release_seconds": 5.0},
            "faults": {
                "kinds": {
                    "load_failed": {"share": draw(shares)},
                    "update_failed": {"share": draw(shares)},
                    "worker_crash": {"per_hour": draw(st.sampled_from([0.0, 20.0])), "lasts_seconds": 60.0},
                }
            },
        },
        run={"seed": draw(st.integers(0, 2**32)), "hours": draw(st.sampled_from([0.03, HOURS]))},
    )


@settings(max_examples=60)
@given(configs())
def test_no_gpu_is_an_engine_s_and_the_trainer_s_at_once(config):
    checked(config)


@settings(max_examples=6)
@given(configs())
def test_the_same_seed_lends_at_the_same_times(config):
    assert run(config)[2] == run(config)[2]


def test_a_trainer_that_waits_for_slow_engines_trains_more_if_it_lends():
    """Two lent engines answer three times as much, which one engine takes most of the time for."""
    updates = {}
    slow = {"model": "shared", "batch_seconds": 0.0, "request_seconds": 10.0, "lend_seconds": 5.0}
    for engines in (0, 2):
        config = lending(
            engines,
            rollout={"lending": {"engines": engines, "share": 1.0}},
            curation={"batch": {"min_groups": 2, "max_groups": 2}},
            cluster={"engine": {**slow, "release_seconds": 5.0}, "learner": {"fixed_seconds": 20.0}},
            trainer={"publish_every": 1},
            run={"hours": 3.0},
        )
        system, _, _ = run(config)
        check_gpus(system, config)
        updates[engines] = system.recorder.counts["updates"]
        assert bool(system.recorder.counts["lendings"]) == bool(engines)
    assert updates[2] > 1.3 * updates[0], updates


def test_a_lent_engine_that_crashes_leaves_with_the_others_and_is_lent_again():
    crash = {"kind": "worker_crash", "at_seconds": 40.0, "lasts_seconds": 400.0, "target": 1}
    config = lending(2, cluster={"faults": {"schedule": [crash]}, "engine": {"lend_seconds": 5.0}}, run={"hours": 1.0})
    system = checked(config)
    served = [(state, begin) for index, state, begin, _ in system.recorder.engines.segments if index == 1]
    assert any(state == EngineState.DOWN for state, begin in served if begin < 440.0)
    assert any(state == EngineState.BUSY for state, begin in served if begin > 440.0)


async def test_an_engine_that_is_not_lent_lacks_no_weights():
    system = await build_here(prepare(lending(2)), MemoryStore())
    system.pool.publish(Weights(1))
    said = {status.name: status.detail for status in system.recorder.component_statuses()}
    assert said["weight sync"] == "engine 0 lacks version 1"
    assert said["engine 1"].startswith("its GPU is the trainer's")


@pytest.mark.parametrize(
    ("tables", "said"),
    [
        ({"backend": {"workers": "endpoint"}}, "needs engines that give their GPUs back"),
        ({"curation": {"admission": {"ready_batches": 1.0}}}, r"until 4 groups are ready, and .*ready_batches"),
        ({"curation": {"admission": {"waiting_batches": 1.5}}}, r"until 4 groups are ready, and .*waiting_batches"),
    ],
)
def test_what_cannot_be_lent_is_refused(tables, said):
    with pytest.raises(ConfigError, match=said):
        lending(2, **tables)
