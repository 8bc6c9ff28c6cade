"""What is characteristic of each scheduler's preset, on a cluster small enough to work out by hand.

Four desktops whose attempts of two turns take 40 s (actions of 20 s, all else at once), one group of two attempts a
task, two groups a batch, and an update of 100 s: a batch of rollouts takes 40 s, a cycle without overlap 140 s.
"""

from dataclasses import replace
from itertools import pairwise

import pytest

from dartsim.config import from_tree, merge, preset
from dartsim.observe import DesktopState
from dartsim.run.prepare import prepare
from dartsim.run.run_prepared import build_here
from dartsim.sim import run_virtual_reported
from dartsim.sim.task_difficulties import TaskDifficulty
from dartsim.store.memory import MemoryStore

NO_TIME = {"start": 0.0, "boot": 0.0, "setup": 0.0, "step": 20.0, "evaluate": 0.0, "teardown": 0.0}
CLUSTER = {
    "run": {"hours": 0.5, "max_segments": 0},
    "tasks": {"count": 4},
    "surrogate": {
        "success_turns_mean": 2.0,
        "success_turns_sd": 0.01,
        "failure_turns_mean": 2.0,
        "failure_turns_sd": 0.01,
        "task_length_sd": 0.0,
        "mean_success": "none",
    },
    "rollout": {"num_envs": 4, "num_workers": 2, "warm_envs": 0, "max_turns": 2},
    "curation": {
        "attempts": {"group_size": 2, "rule": "fixed"},
        "batch": {"min_groups": 2, "max_groups": 2},
        "groups": {"min_size": 1, "drop_all_failed": False, "drop_solved": False, "drop_equal": False},
        "store": "memory",
    },
    "cluster": {
        "env": {"latency": NO_TIME},
        "hosts": {"count": 1, "cores": 64.0, "memory_gib": 64.0, "concurrent_starts": 64},
        "engine": {
            "model": "shared",
            "batch_seconds": 0.0,
            "request_seconds": 1e-6,
            "overhead_seconds": 0.0,
            "reload_seconds": 10.0,
            "transfer_seconds": 0.0,
        },
        "learner": {"fixed_seconds": 100.0, "kilotoken_seconds": 0.0},
    },
}


class Noted(MemoryStore):
    """A store that remembers batches, and what was dropped."""

    def __init__(self):
        super().__init__()
        self.batches, self.dropped = [], []

    def lease(self, batch):
        super().lease(batch)
        self.batches.append(batch)

    def drop(self, trajectories, reason):
        super().drop(trajectories, reason)
        self.dropped += [(t, str(reason)) for t in trajectories]


def run(name, sure=(), **tables):
    """Run a preset's scheduler on the small cluster; return the system and its store.

    Half of the attempts at a task succeed, and all at those that are ``sure``.
    """
    tree = merge(merge(preset(name), CLUSTER), tables)
    config = from_tree({**tree, "preset": name})
    prepared = prepare(config)
    prepared = replace(
        prepared, difficulties={task.id: TaskDifficulty(1.0 if task.id in sure else 0.5) for task in prepared.tasks}
    )
    store = Noted()

    async def main():
        system = await build_here(prepared, store)
        await system.run(config.run.hours * 3600.0)
        return system

    system, _ = run_virtual_reported(main(), seed=0, max_events=1_000_000)
    return system, store


def lags(store):
    """How far the oldest weights of each batch were behind those trained."""
    return [max(batch.version - t.oldest_version for t in batch.trajectories) for batch in store.batches]


@pytest.mark.parametrize("name", ["areal-eta0", "verl-on-policy"])
def test_on_policy_nothing_overlaps(name):
    """1,800 s of cycles of 140 s, and what is trained was made by the newest weights."""
    _, store = run(name)
    assert set(lags(store)) == {0}
    assert len(store.batches) == 13


@pytest.mark.parametrize(
    ("name", "first"),
    [
        ("areal-eta4", [0, 1, 2, 3, 3, 4, 4]),
        ("skyrl", [0, 1, 2, 3, 3, 4, 4]),
        ("nemo-in-order", [0, 1, 1, 1, 1, 1, 1]),
        ("tinker-pace", [0, 1, 1, 1, 1, 1, 1]),
    ],
)
def test_admission_bounds_the_lag_and_the_trainer_never_waits_again(name, first):
    """The first batch is there after 40 s; then updates of 100 s follow each other, on what admission let be made.

    With eta = 4 batches begin at 0, 40, 80, 120 s under version 0, then at 160 and 200 s under version 1 (published at
    140 s); from then on one begins at every publication.
    """
    _, store = run(name)
    assert len(store.batches) == 18
    assert lags(store)[:7] == first
    assert max(lags(store)) == first[-1]
    assert {reason for _, reason in store.dropped} == {"unused"}


@pytest.mark.parametrize("name", ["dart-measured", "nemo-windowed"])
def test_without_a_gate_what_gets_stale_is_dropped(name):
    system, store = run(name)
    assert max(lags(store)) <= 1
    stale = sum(reason == "stale" for _, reason in store.dropped)
    assert stale > len(store.batches)
    assert system.data.ledger.admitted > 3 * system.data.ledger.trained / 2


def test_discarded_tasks_come_again_and_their_attempts_are_lost():
    paced, _ = run("tinker-pace")
    discarding, store = run("tinker-discard")
    assert any(reason == "stale" for _, reason in store.dropped)
    assert discarding.data.ledger.admitted > 1.5 * paced.data.ledger.admitted


def test_slime_waits_for_the_whole_next_batch_so_the_lag_is_exactly_one():
    _, store = run("slime-one-step-off")
    assert lags(store) == [0] + [1] * (len(store.batches) - 1)


def test_slime_s_fully_asynchronous_rollout_has_no_version_rule():
    for depth, least in ((4.0, 4), (8.0, 7)):
        _, store = run("slime-fully-async", curation={"admission": {"ready_batches": depth, "open_batches": depth}})
        assert max(lags(store)) >= least


def test_verl_publishes_every_t_updates_only():
    system, store = run("verl-stream")
    assert {t.newest_version % 4 for batch in store.batches for t in batch.trajectories} == {0}
    assert system.data.ledger.version % 4 == 0
    assert max(lags(store)) == 3


def test_prime_rl_cancels_what_began_too_long_ago():
    """A few actions take 2,000 s, a version 40 s: such a group is given up when it is more than 8 versions old."""
    slow = {"step": {"kind": "quantiles", "points": [[0.0, 20.0], [0.97, 20.0], [0.98, 2e3], [1.0, 2e3]]}}
    tables = {
        "cluster": {"env": {"latency": slow}, "learner": {"fixed_seconds": 10.0}},
        "rollout": {"limits": {"step_seconds": 4e3}},
    }
    system, store = run("prime-rl", **tables)
    causes = {t.cause for t, reason in store.dropped if reason == "masked"}
    assert "withdrawn" in causes
    assert any(reason == "stale" for _, reason in store.dropped)
    assert max(batch.version - t.attempt.version for batch in store.batches for t in batch.trajectories) <= 8
    assert system.recorder.counts["cause/withdrawn"] >= 1


def test_prime_rl_lets_so_many_run_as_the_engines_caches_hold():
    """Replies of 100,000 tokens: 8 of them fill a cache, so that 16 desktops of 32 would wait inside an engine."""
    tables = {
        "rollout": {"num_envs": 32},
        "cluster": {
            "engine": {"model": "fluid", "prompt": "text", "reply_tokens": 1e5, "longest_reply_tokens": 100_000},
            "learner": {"fixed_seconds": 1.0},
        },
        "run": {"hours": 6.0},
    }
    most = {}
    for rule in ("cache_use", "bounds"):
        admission = {"admission": {"rule": rule, "ready_batches": "none"}}
        system, store = run("prime-rl", **merge({"curation": admission}, tables))
        assert len(store.batches) > 10
        generating = system.recorder.snapshots[-1].desktops[DesktopState.GENERATING]
        most[rule] = generating / (6.0 * 3600.0)
    assert 8.0 < most["cache_use"] < 16.0  # below nine tenths of two caches, on average
    assert most["bounds"] > 28.0  # nearly all desktops wait for engines that have room for 16


def test_openrlhf_changes_no_weights_under_a_generation_and_has_one_slot():
    _, store = run("openrlhf")
    assert all(t.oldest_version == t.newest_version for batch in store.batches for t in batch.trajectories)
    assert lags(store) == [0] + [1] * (len(store.batches) - 1)


def test_buffers_in_order_of_dispatch_give_out_what_was_begun_first():
    spread = {"cluster": {"env": {"latency": {"step": {"kind": "gamma", "mean_seconds": 20.0, "k": 1.0}}}}}
    in_order = {}
    for name in ("verl-buffer-drop", "verl-buffer-wait", "nemo-windowed", "verl-partial"):
        _, store = run(name, **spread)
        in_order[name] = all(
            first.id < second.id for batch in store.batches for first, second in pairwise(batch.groups)
        )
    assert in_order == {name: name != "verl-partial" for name in in_order}


def test_batch_wise_desktops_wait_for_the_last_of_all():
    spread = {"cluster": {"env": {"latency": {"step": {"kind": "gamma", "mean_seconds": 20.0, "k": 1.0}}}}}
    turns = {
        name: run(name, **spread)[0].recorder.hot.generated_turns
        for name in ("batch-wise", "task-wise", "dart-measured")
    }
    assert turns["batch-wise"] < turns["task-wise"] < turns["dart-measured"]


def test_ours_makes_little_that_is_not_trained_and_never_stops_the_pool():
    system, store = run("dartsim", curation={"pool": {"enabled": False}})
    assert len(store.batches) == 18
    assert lags(store)[:4] == [0, 1, 2, 3]  # two batches may wait, and one is trained on
    assert max(lags(store)) == 3
    assert not any(reason == "stale" for _, reason in store.dropped)
    assert system.data.ledger.admitted < 1.2 * system.data.ledger.trained
    assert system.recorder.snapshots[-1].desktops[3] == 0.0  # SYNC_WAIT


def test_ours_passes_over_tasks_that_taught_nothing():
    """One task of four always succeeds: once its last 8 attempts did, it is offered every fifth time only."""
    sure = "generated-0000"
    chosen = run("dartsim", sure=(sure,))[0].recorder.offered
    assert 8 <= chosen[sure] < 0.7 * min(count for task, count in chosen.items() if task != sure)
    plain = {"curation": {"task_filter": {"max_mean": 1.0, "min_mean": 0.0}}}
    alike = run("dartsim", sure=(sure,), **plain)[0].recorder.offered
    assert min(alike.values()) > 0.8 * max(alike.values())
