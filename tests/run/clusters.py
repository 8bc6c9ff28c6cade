"""Small clusters in virtual time, and what must hold at the end of a run on one."""

import asyncio
import tomllib
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from dartsim.config import from_tree, merge, preset
from dartsim.core.types import Ending, TrajectoryState
from dartsim.run.prepare import prepare
from dartsim.run.run_prepared import build_here
from dartsim.sim import run_virtual_reported
from dartsim.sim.task_difficulties import TaskDifficulty
from dartsim.store.memory import MemoryStore

HOURS = 0.4
MASKED = {Ending.BROKEN, Ending.TIMED_OUT, Ending.WORKER_FAULT, Ending.UNSCORED, Ending.CANCELLED}

SMALL = merge(
    tomllib.loads(Path(__file__).with_name("small.toml").read_text(encoding="utf-8")), {"run": {"hours": HOURS}}
)


def small(name="dart", **tables):
    """A small cluster; ``rollout={"unit": "batch"}`` changes a table."""
    tree = merge(preset(name), SMALL)
    if name == "dart":
        tree = merge(tree, {"curation": {"attempts": {"min_group_size": 1}}})
    return from_tree(merge(tree, tables))


class WatchedStore(MemoryStore):
    """A store that looks at everything it is told."""

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.published = {0}
        self.seen = Counter()
        self.rewards = []
        self.trained_ids = Counter()
        self.updates = []
        """Times of the updates, seconds."""

    def record(self, trajectory):
        super().record(trajectory)
        self.seen[trajectory.attempt.id] += 1
        assert (trajectory.reward is None) == (trajectory.ending in MASKED) == (trajectory.cause is not None)
        assert 0.0 <= trajectory.started <= trajectory.finished
        assert trajectory.started < self.config.run.hours * 3600.0, "an attempt was admitted after the end"
        assert len(trajectory.turns) <= trajectory.attempt.turn_limit
        for turn in trajectory.turns:
            assert {turn.reply.version, turn.reply.oldest_version} <= self.published
            assert turn.reply.oldest_version <= turn.reply.version
        self.rewards.append(trajectory.reward)

    def lease(self, batch):
        super().lease(batch)
        rule = self.config.curation.staleness
        for t in batch.trajectories:
            made = t.oldest_version if rule.measured_by == "oldest" else t.newest_version
            assert rule.max_staleness is None or batch.version - made <= rule.max_staleness
        sizes = self.config.curation.batch
        assert sizes.min_groups <= len(batch.groups) <= sizes.max_groups

    def trained(self, batch, version, *, checkpoint=None):
        super().trained(batch, version, checkpoint=checkpoint)
        assert version == batch.update == max(self.published) + 1
        self.published.add(version)
        self.trained_ids.update(t.attempt.id for t in batch.trajectories)
        self.updates.append(asyncio.get_running_loop().time())


def run(config, *, seed=None, perturb=None, success_rate=None):
    """Run a configuration; return its system, its store and its report."""
    prepared = prepare(config)
    if success_rate is not None:
        difficulties = {task.id: TaskDifficulty(success_rate) for task in prepared.tasks}
        prepared = replace(prepared, difficulties=difficulties)
    store = WatchedStore(config)

    async def main():
        system = await build_here(prepared, store)
        await system.run(config.run.hours * 3600.0)
        return system

    seed = config.run.seed if seed is None else seed
    system, report = run_virtual_reported(main(), seed=seed, perturb=perturb, max_events=3_000_000)
    return system, store, report


def hosts(system):
    provider = system.cluster.provider
    while hasattr(provider, "inner"):  # behind faults and saved states, if any
        provider = provider.inner
    return provider.hosts


def check_drained(system):
    """Nothing is left anywhere when a run is over."""
    assert system.cluster.leases == {}
    for worker in system.pool.workers:
        engine = worker.engine.engine
        assert (worker.in_flight, engine.num_jobs, engine.kv_tokens) == (0, 0, 0)
    for host in hosts(system):
        assert host.memory.level == host.memory.capacity
        assert (host.starts.count, len(host.starts.queue), len(host.memory.get_queue)) == (0, 0, 0)
        assert (host.cores.num_jobs, host.cores.demand) == (0, 0.0)


def check_accounts(system, store):
    """Every attempt has ended exactly once, and every count says so."""
    data, counts = system.data, system.recorder.counts
    data.check()
    assert (len(data.ledger.running), data.ledger.leased) == (0, 0)
    assert (
        data.ledger.trained + data.ledger.dropped
        == data.ledger.admitted
        == sum(store.seen.values())
        == counts["attempts"]
    )
    assert set(store.seen.values()) | set(store.trained_ids.values()) <= {1}
    assert store.counts[TrajectoryState.TRAINED] == data.ledger.trained == counts["trained_trajectories"]
    assert store.counts[TrajectoryState.DROPPED] == data.ledger.dropped == sum(store.reasons.values())
    assert store.counts[TrajectoryState.RECORDED] == store.counts[TrajectoryState.LEASED] == 0
    assert sum(n for name, n in counts.items() if name.startswith("ending/")) == data.ledger.admitted
    masked = sum(reward is None for reward in store.rewards)
    assert sum(n for name, n in counts.items() if name.startswith("cause/")) == masked
    assert {name.partition("/")[2]: n for name, n in counts.items() if name.startswith("dropped/")} == {
        reason.value: n for reason, n in store.reasons.items()
    }


def check_time(system, config, seconds):
    """The states of every part add up to all of the time, and nothing was busy for longer."""
    last = system.recorder.snapshots[-1]
    assert last.time == seconds >= config.run.hours * 3600.0
    sizes = {"desktops": config.rollout.num_envs, "engines": config.rollout.num_engines, "trainer": 1, "phase": 1}
    for population, size in sizes.items():
        spent = getattr(last, population)
        assert min(spent) >= 0.0
        assert sum(spent) == pytest.approx(size * seconds, rel=1e-9)
    for host in hosts(system):
        assert 0.0 <= host.cores.core_seconds <= host.cores.cores * seconds * (1 + 1e-9)


def check_weights(system, store):
    """No worker has weights that were not published, and the recorder's staleness is that of the rule."""
    for worker in system.pool.workers:
        assert {worker.version, worker.engine.version} <= store.published
    rule = store.config.curation.staleness
    if rule.max_staleness is not None and rule.measured_by == "oldest":
        assert system.recorder.staleness_max <= rule.max_staleness
    assert sum(system.recorder.staleness.values()) == system.recorder.counts["trained_turns"]
    assert system.data.ledger.version == max(store.published) or store.config.trainer.wait_for_sync


def check_all(config, **options):
    system, store, report = run(config, **options)
    check_drained(system)
    check_accounts(system, store)
    check_time(system, config, report.virtual_seconds)
    check_weights(system, store)
    return system, store, report
