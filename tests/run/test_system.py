"""Whole clusters under drawn configurations: what must hold under every scheduler and every fault schedule."""

import gc

import pytest

from dartsim.core.errors import LearnerFault, StoreFull
from dartsim.run.system import only_error
from tests.run.clusters import check_all, run, small


def always(kind, share=1.0):
    """Return the settings under which a share of the calls fails."""
    return {"kinds": {kind: {"share": share}}}


def test_the_garbage_collector_decides_nothing():
    """Failed starts leave cyclic garbage behind, which is found sooner or later."""
    config = small(cluster={"faults": always("start_failed", 0.8)})
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
