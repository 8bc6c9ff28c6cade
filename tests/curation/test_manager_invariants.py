"""What holds for the data manager after every event of a random schedule: slots that play, fail and are cancelled,
and a trainer that is late, fails and is cancelled."""

import asyncio
from collections import Counter, defaultdict

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dartsim.config.sections.curation import GroupsConfig
from dartsim.core.types import Drop, Ending, TrajectoryState, UpdateResult, Weights
from dartsim.curation import GroupFilter, SuccessPool, slot_groups
from dartsim.curation.admission import SlotGroup
from dartsim.sim import run_virtual
from dartsim.store.memory import MemoryStore

RATES = st.sampled_from([0.0, 0.1, 0.4])
CONFIGS = st.fixed_dictionaries(
    {
        "num_envs": st.integers(1, 7),
        "unit": st.sampled_from(["rollout", "task", "batch"]),
        "attempts": st.integers(1, 4),
        "min_groups": st.integers(1, 3),
        "more_groups": st.integers(0, 2),
        "spare": st.one_of(st.none(), st.integers(0, 3)),
        "bound": st.one_of(st.none(), st.integers(0, 2)),
        "measured_by": st.sampled_from(["oldest", "newest"]),
        "max_replacements": st.integers(0, 2),
        "filter": st.booleans(),
        "pool": st.booleans(),
        "faults": RATES,
        "solved": st.sampled_from([0.0, 0.5, 1.0]),
        "cancels": RATES,
        "update_faults": RATES,
        "sync_seconds": st.sampled_from([0, 3]),
        "seed": st.integers(0, 2**32),
    }
)


class WatchedSlotGroup(SlotGroup):
    """A slot_group that notices if an attempt starts between the first end and the last."""

    __slots__ = ("has_ended",)

    def __init__(self):
        super().__init__()
        self.has_ended = False

    def start(self):
        assert not self.has_ended, "an attempt started between the first end and the last"
        super().start()

    def end(self):
        super().end()
        self.has_ended = self.running > 0


def watched(*unit, **options):
    """Return slot groups that are watched."""
    made = defaultdict(WatchedSlotGroup)
    return [made[id(group)] for group in slot_groups(*unit, **options)]


class Cluster:
    """Slots and a trainer around a data manager; whatever happens, ``look`` is called after it."""

    def __init__(self, made, config):
        self.made = made
        self.config = config
        self.rng = np.random.default_rng(config["seed"])
        self.loop = asyncio.get_running_loop()
        self.store = MemoryStore()
        self.most = config["min_groups"] + config["more_groups"]
        spare = config["spare"]
        self.max_ahead = None if spare is None else config["min_groups"] + spare
        self.rule = GroupFilter(GroupsConfig(min_size=1)) if config["filter"] else None
        self.data = made.make(
            num_envs=config["num_envs"],
            unit=watched(config["unit"], num_envs=config["num_envs"], attempts_per_task=config["attempts"]),
            attempts=config["attempts"],
            bound=config["bound"],
            staleness={"measured_by": config["measured_by"]},
            batch=(config["min_groups"], self.most),
            store=self.store,
            group_filter=self.rule,
            admission=made.admission(ahead_batches=self.max_ahead),
            max_replacements=config["max_replacements"],
            pool=SuccessPool(max_per_task=2) if config["pool"] else None,
        )
        self.version = 0
        self.trained = Counter()

    def chance(self, share):
        return self.rng.random() < share

    # ---- slots

    async def slot(self, number):
        while True:
            attempt = await self.admit(number)
            if attempt is None:
                return
            await self.play(number, attempt)

    async def admit(self, number):
        """Ask for an attempt; now and then let the question be cancelled and ask again."""
        while True:
            task = self.loop.create_task(self.data.admit(number))
            if self.chance(self.config["cancels"]):
                self.loop.call_later(int(self.rng.integers(0, 8)), task.cancel)
            await asyncio.wait([task])
            if not task.cancelled():
                break
            self.look()
            await asyncio.sleep(1)
        attempt = task.result()
        if attempt is not None:
            assert self.version - 1 <= attempt.version <= self.version  # one may be published meanwhile
        self.look()
        return attempt

    async def play(self, number, attempt):
        await asyncio.sleep(int(self.rng.integers(1, 12)))
        oldest, newest = sorted(int(v) for v in self.rng.integers(attempt.version, self.version + 1, 2))
        reward = float(self.chance(self.config["solved"]))
        masked = self.chance(self.config["faults"])
        ending = Ending.CANCELLED if masked and self.chance(0.3) else None
        self.data.finish(
            self.made.ended(attempt, None if masked else reward, versions=[(oldest, newest)], ending=ending)
        )
        self.look()
        await asyncio.sleep(int(self.rng.integers(0, 3)))

    # ---- trainer

    async def trainer(self):
        while (batch := await self.data.next_batch()) is not None:
            self.look_at(batch)
            await asyncio.sleep(int(self.rng.integers(1, 25)))
            if self.chance(self.config["update_faults"]):
                self.data.release(batch, drop=Drop.UNTRAINABLE if self.chance(0.5) else None)
                self.look()
                await asyncio.sleep(2)
                continue
            self.trained.update(t.attempt.id for t in batch.own.trajectories)
            self.data.trained(batch, UpdateResult(Weights(batch.update)))
            self.look()
            await asyncio.sleep(self.config["sync_seconds"])
            self.version = batch.update
            self.data.published(self.version)
            self.look()

    # ---- what must hold

    def look(self):
        data = self.data
        data.ledger.check()
        assert set(self.trained.values()) <= {1}, "a trajectory was trained twice"
        assert self.max_ahead is None or sum(data.ledger.counts()) <= self.max_ahead
        assert data.ledger.leased == self.store.counts[TrajectoryState.LEASED]
        assert data.ledger.trained == self.store.counts[TrajectoryState.TRAINED] == len(self.trained)
        assert data.ledger.dropped == self.store.counts[TrajectoryState.DROPPED]
        ledger = data.ledger
        kept = ledger.admitted - len(ledger.running) - ledger.leased - ledger.trained - ledger.dropped
        waiting = self.store.counts[TrajectoryState.RECORDED] + self.store.counts[TrajectoryState.ELIGIBLE]
        assert kept == waiting
        # Work conserving: a slot that waits, waits for its slot group or for admission.
        assert "slots" not in (data.idle_without_reason() or "")

    def look_at(self, batch):
        assert self.config["min_groups"] <= len(batch.groups) <= self.most
        assert (batch.version, batch.update) == (self.version, self.version + 1)
        ready = [group.ready for group in batch.groups]
        assert ready == sorted(ready)
        for group in batch.groups:
            assert {t.attempt.group for t in group.own} == {group.id}
            assert {t.attempt.task for t in group.trajectories} == {group.task}
            assert all(t.reward is not None for t in group.trajectories)
            assert self.rule is None or self.rule.reason_to_drop(group.trajectories) is None
        for trajectory in batch.own.trajectories:
            made = trajectory.oldest_version
            made = made if self.config["measured_by"] == "oldest" else trajectory.newest_version
            assert self.config["bound"] is None or batch.version - made <= self.config["bound"]
        self.look()

    # ---- a run

    async def run(self, seconds):
        slots = [self.loop.create_task(self.slot(number)) for number in range(self.config["num_envs"])]
        trainer = self.loop.create_task(self.trainer())
        await asyncio.sleep(seconds)
        self.data.end_admission()
        await asyncio.gather(*slots)
        self.look()
        assert len(self.data.ledger.running) == 0
        self.data.close()
        await trainer
        self.look()
        assert self.data.ledger.trained + self.data.ledger.dropped == self.data.ledger.admitted
        assert sum(self.store.reasons.values()) == self.data.ledger.dropped
        assert self.store.counts[TrajectoryState.RECORDED] == self.store.counts[TrajectoryState.LEASED] == 0
        assert not self.store.live


@given(CONFIGS)
def test_nothing_is_lost_trained_twice_stale_ahead_of_its_bound_or_idle_without_reason(made, config):
    async def main():
        cluster = Cluster(made, config)
        await cluster.run(300)
        if not config["filter"] and config["update_faults"] == 0 and config["faults"] == 0:
            assert cluster.trained, "nothing was trained though nothing failed"

    run_virtual(main(), max_events=500_000)
