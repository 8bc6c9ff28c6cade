"""Whole clusters under drawn configurations: what must hold under every scheduler and every fault schedule."""

import gc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dartsim.core.errors import LearnerFault, StoreFull
from dartsim.run.system import only_error
from dartsim.sim.perturb import Perturbation
from tests.run.clusters import HOURS, check_all, run, small

SHARES = st.sampled_from([0.0, 0.0, 0.05, 0.4])


def always(kind, share=1.0):
    """Return the settings under which a share of the calls fails."""
    return {"kinds": {kind: {"share": share}}}


@st.composite
def configs(draw):
    """A small cluster with everything drawn that a scheduler may choose."""
    most, groups = draw(st.integers(1, 3)), draw(st.integers(1, 2))
    at_most = groups + draw(st.integers(0, 1))
    bound = draw(st.sampled_from([None, 0, 1, 2]))
    ahead = draw(st.sampled_from([None, 0, 1, 5]))
    lockstep = draw(st.booleans())
    workers_at_a_time = "all" if lockstep else draw(st.sampled_from(["all", 1, 2]))
    limits = draw(st.sampled_from([{}, {"lease_seconds": 200.0}, {"step_seconds": 6.0}, {"request_seconds": 20.0}]))
    return small(
        rollout={
            "num_envs": draw(st.integers(1, 10)),
            "num_workers": draw(st.integers(1, 4)),
            "unit": draw(st.sampled_from(["rollout", "task", "batch"])),
            "lockstep": lockstep,
            "max_turns": draw(st.integers(1, 8)),
            "start_tries": draw(st.integers(1, 3)),
            "request_tries": draw(st.integers(1, 3)),
            "sync": {
                "mode": draw(st.sampled_from(["drain", "keep", "restart"])),
                "workers_at_a_time": workers_at_a_time,
            },
            "routing": {"rule": draw(st.sampled_from(["least_in_flight", "session_affine"]))},
            "limits": limits,
        },
        curation={
            "attempts": {
                **draw(st.sampled_from([{"rule": "fixed"}, {"rule": "by_success", "min_group_size": 1}])),
                "group_size": most,
                "max_replacements": draw(st.integers(0, 2)),
            },
            "groups": dict.fromkeys(("drop_all_failed", "drop_solved", "drop_equal"), draw(st.booleans())),
            "batch": {"min_groups": groups, "max_groups": at_most},
            "staleness": {"max_staleness": bound, "measured_by": draw(st.sampled_from(["oldest", "newest"]))},
            "admission": {} if ahead is None else {"ahead_batches": (groups + ahead) / at_most},
            "turn_limit": {"rule": draw(st.sampled_from(["fixed", "by_success"]))},
            "pool": {"enabled": draw(st.booleans())},
            "task_filter": {"max_mean": draw(st.sampled_from([1.0, 0.7])), "window": 2},
        },
        trainer={"wait_for_sync": draw(st.booleans())},
        desktop={
            "revert": draw(st.sampled_from(["boot", "boot", "snapshot", "fork"])),
            "states_gib": draw(st.sampled_from([0.4, 0.8, 1.2])),
        },
        cluster={
            "env": {"latency": {"restore_failures": draw(SHARES)}},
            "engine": {"overhead_seconds": draw(st.sampled_from([0.0, 1.5]))},
            "faults": {
                "kinds": {
                    "start_failed": {"share": draw(SHARES)},
                    "step_failed": {"share": draw(SHARES)},
                    "score_failed": {"share": draw(SHARES)},
                    "load_failed": {"share": draw(SHARES)},
                    "update_failed": {"share": draw(SHARES)},
                    "trainer_outage": {"per_hour": draw(st.sampled_from([0.0, 10.0])), "lasts_seconds": 180.0},
                },
            },
        },
        run={"seed": draw(st.integers(0, 2**32)), "hours": draw(st.sampled_from([0.05, HOURS]))},
    )


@settings(max_examples=80)
@given(configs(), st.booleans(), st.booleans())
def test_whatever_happens_everything_adds_up_nothing_is_left_and_no_fault_becomes_a_reward(config, solvable, slow):
    """Latencies are sometimes long; or every task is solved by every attempt that nothing goes wrong with."""
    perturb = Perturbation(latency_share=0.05, latency_seconds=(1.0, 60.0)) if slow else None
    _, store, _ = check_all(config, perturb=perturb, success_rate=1.0 if solvable else None)
    assert not solvable or set(store.rewards) <= {1.0, None}


@settings(max_examples=12)
@given(configs())
def test_the_same_seed_gives_the_same_run(config):
    reports = [run(config)[2] for _ in range(2)]
    assert reports[0] == reports[1]


def test_the_garbage_collector_decides_nothing():
    """Failed starts leave cyclic garbage behind, which is found sooner or later."""
    config = small(rollout={"start_tries": 1}, cluster={"faults": always("start_failed", 0.5)})
    reports, threshold = [], gc.get_threshold()
    try:
        for often in (threshold, (1, 1, 1), (0, 0, 0)):
            gc.set_threshold(*often)
            reports.append(run(config)[2])
    finally:
        gc.set_threshold(*threshold)
    assert reports[0] == reports[1] == reports[2]


def test_a_quiet_cluster_trains_and_ends_without_a_fault():
    system, _, _ = check_all(small())
    counts = system.recorder.counts
    assert counts["updates"] >= 5
    assert not [name for name in counts if name.startswith("fault") and name != "fault/request_restarted"]
    assert {name for name in counts if name.startswith("cause/")} <= {"cause/run ended"}


@pytest.mark.parametrize(
    ("fault", "ending", "cause"),
    [
        ("start_failed", "broken", "EnvStartFailed"),
        ("step_failed", "broken", "EnvBroken"),
        ("score_failed", "unscored", "ScoreUnavailable"),
    ],
)
def test_a_fault_that_always_strikes_masks_every_attempt(fault, ending, cause):
    system, store, _ = check_all(small(cluster={"faults": always(fault)}))
    counts = system.recorder.counts
    assert counts[f"ending/{ending}"] == counts[f"cause/{cause}"] > 10
    assert set(store.rewards) == {None}
    assert counts["updates"] == 0
    assert set(store.reasons) == {"masked"}


def test_loads_that_always_fail_stop_a_rolling_change_at_its_first_slice():
    faults = {"faults": always("load_failed")}
    sync = {"sync": {"mode": "drain", "workers_at_a_time": 1}}
    system, _, _ = check_all(small(cluster=faults, rollout=sync))
    assert [worker.version for worker in system.pool.workers] == [0, 0]
    assert [worker.routable for worker in system.pool.workers] == [False, True]
    assert system.recorder.counts["fault/load"] > 3


def test_updates_that_always_fail_train_nothing_and_lose_nothing():
    system, store, _ = check_all(small(cluster={"faults": always("update_failed")}))
    assert system.recorder.counts["fault/update"] == system.recorder.counts["failed_updates"] >= 2
    assert (system.data.ledger.trained, store.published) == (0, {0})
    assert system.recorder.counts["admitted_turns"] == 0


def test_the_same_fault_in_several_parts_is_one_fault():
    """As on a full disk: the user is told what to do about it, and sees no group of errors."""
    first, second = StoreFull("make room"), StoreFull("make room here too")
    slots = BaseExceptionGroup("slots", [first, second])
    assert only_error(BaseExceptionGroup("parts", [slots])) is first
    assert only_error(BaseExceptionGroup("parts", [BaseExceptionGroup("slots", [second])])) is second
    different = BaseExceptionGroup("parts", [BaseExceptionGroup("slots", [first, LearnerFault("lost")])])
    assert only_error(different) is different
    bugs = BaseExceptionGroup("parts", [ZeroDivisionError(), ZeroDivisionError()])
    assert only_error(bugs) is bugs
