"""``DataManager``: the one place where attempts are admitted, grouped, chosen for training and accounted for.

    slots --admit--> attempt --finish--> open group --complete--> eligible --lease--> batch --> trained
                        |                    |                       |
                        +------- masked -----+---- group rule -------+---- stale ----> dropped(reason)

Back-pressure exists here and nowhere else: a free slot waits in ``admit``, the trainer in ``next_batch``.
"""

from __future__ import annotations

import asyncio
from collections import deque

from dartsim.curation.attempts import AttemptsRule
from dartsim.curation.batches import BatchRule
from dartsim.curation.groups import GroupRule, OpenGroup
from dartsim.curation.held_out import Order, TaskFilter
from dartsim.curation.pool import SuccessPool, own, own_batch, pooled
from dartsim.curation.staleness import StalenessRule
from dartsim.curation.turn_limit import TurnLimitRule
from dartsim.curation.units import Gang, Units
from dartsim.errors import InvariantViolated
from dartsim.ports import Store
from dartsim.trace import DesktopState, Trace
from dartsim.types import Attempt, Batch, Drop, Ending, Group, Trajectory, UpdateResult, Version

_MIX = 0x9E3779B97F4A7C15


class DataManager:
    """Admits attempts, collects groups, hands out batches.

    Invariants: every admitted attempt is in exactly one of running, collected in an open group, eligible,
    leased, trained, dropped, and the counts add up (``check``); no batch holds a trajectory that breaks the
    staleness rule; at most ``max_ahead`` attempts are admitted and neither dropped nor trained into
    published weights.

    Args:
        order: Which task is next.
        attempts: How many attempts a task gets.
        group_rule: Which groups may be trained on.
        batch_rule: When there is a batch, and what it takes.
        staleness: How old a trajectory may be.
        units: What has to end before a slot gets new work.
        store: Where states are kept.
        trace: Where they are counted.
        turn_limits: How many turns the attempts of a group may take.
        pool: Stored successes for groups in which all failed; None: such groups are dropped.
        task_filter: Learns which tasks teach nothing; the order leaves them out.
        max_ahead: Bound on admitted attempts that no published weights contain yet; None for no bound.
        max_replacements: Masked attempts of one group that are tried again; cancelled ones always are.
        seed: Seeds of attempts are derived from it.
    """

    def __init__(
        self,
        *,
        order: Order,
        attempts: AttemptsRule,
        group_rule: GroupRule,
        batch_rule: BatchRule,
        staleness: StalenessRule,
        units: Units,
        store: Store,
        trace: Trace,
        turn_limits: TurnLimitRule,
        pool: SuccessPool | None = None,
        task_filter: TaskFilter | None = None,
        max_ahead: int | None = None,
        max_replacements: int = 2,
        seed: int = 0,
    ) -> None:
        self._order = order
        self._attempts = attempts
        self._group_rule = group_rule
        self._batch_rule = batch_rule
        self._staleness = staleness
        self._units = units
        self._store = store
        self._trace = trace
        self._turn_limits = turn_limits
        self._pool = pool
        self._task_filter = task_filter
        self._max_ahead = max_ahead
        self._max_replacements = max_replacements
        self._seed = seed

        self._ready: deque[int] = deque()
        """Slots whose gang is open and that wait for room, longest first."""
        self._waiters: dict[int, asyncio.Future[Attempt | None]] = {}
        self._busy: set[int] = set()
        self._running: set[int] = set()
        """Attempts that were admitted and are not handed over yet."""
        self._filling: OpenGroup | None = None
        self._replace: deque[OpenGroup] = deque()
        self._open: dict[int, OpenGroup] = {}
        self._eligible: list[Group] = []
        self._num_fresh = 0
        """Groups at the head of the eligible ones that are known to be fresh for the trainer's weights."""
        self._trainer: asyncio.Future[None] | None = None
        self._ending = False
        self._closed = False

        self.version: Version = 0
        """Newest published version."""
        self.trainer_version: Version = 0
        """Version that the trainer holds."""
        self.admitted = 0
        self.leased = 0
        self.trained_count = 0
        self.dropped = 0
        self._published_count = 0
        self._groups = 0

    # -- admission --------------------------------------------------------------------------------

    async def admit(self, slot: int) -> Attempt | None:
        """Say that a slot is free, and return its next attempt once one may start; None when the run ends."""
        gang = self._units.gang(slot)
        if slot in self._busy:
            self._busy.remove(slot)
            gang.end()
        if self._ending:
            return None
        waiter: asyncio.Future[Attempt | None] = asyncio.get_running_loop().create_future()
        self._waiters[slot] = waiter
        gang.waiting.append(slot)
        if gang.open:
            self._line_up(gang)
        self._start_what_may()
        if not waiter.done() and not gang.open:
            self._trace.desktops.tracks[slot].enter(DesktopState.WAIT_UNIT)
        try:
            return await waiter
        except asyncio.CancelledError:
            granted = waiter.result() if waiter.done() and not waiter.cancelled() else None
            if granted is None:
                self._waiters.pop(slot, None)
                for line in (self._ready, gang.waiting):
                    if slot in line:
                        line.remove(slot)
            else:  # cancelled in the very instant in which it was given an attempt
                self._hand_back(slot, gang, granted)
            raise

    def _hand_back(self, slot: int, gang: Gang, attempt: Attempt) -> None:
        """Take an attempt back from a slot that never knew of it."""
        self._busy.remove(slot)
        gang.end()
        if gang.open:
            self._line_up(gang)
        now = asyncio.get_running_loop().time()
        self.finish(Trajectory(attempt, (), Ending.CANCELLED, None, "run ended", now, now))

    @property
    def running(self) -> int:
        """Attempts that were admitted and are not handed over yet."""
        return len(self._running)

    @property
    def ahead(self) -> int:
        """Attempts that were admitted and neither dropped nor trained into published weights."""
        return self.admitted - self.dropped - self._published_count

    def _line_up(self, gang: Gang) -> None:
        """Let the free slots of an open gang line up for room."""
        for slot in gang.waiting:
            self._ready.append(slot)
            self._trace.desktops.tracks[slot].enter(DesktopState.WAIT_ADMISSION)
        gang.waiting.clear()

    def _start_what_may(self) -> None:
        """Give attempts to ready slots while there is room; those whose gang has closed wait for it again."""
        if self._ending:
            return
        while self._ready and (self._max_ahead is None or self.ahead < self._max_ahead):
            slot = self._ready.popleft()
            gang = self._units.gang(slot)
            if not gang.open:
                gang.waiting.append(slot)
                self._trace.desktops.tracks[slot].enter(DesktopState.WAIT_UNIT)
                continue
            waiter = self._waiters.pop(slot, None)
            if waiter is None or waiter.done():
                continue
            gang.start()
            self._busy.add(slot)
            waiter.set_result(self._next_attempt())

    def _next_attempt(self) -> Attempt:
        """Return an attempt of a group that lacks one, or the first one of a new group."""
        if self._replace:
            group = self._replace.popleft()
        else:
            if self._filling is None or self._filling.admitted >= self._filling.planned:
                self._filling = self._new_group()
            group = self._filling
        attempt = Attempt(
            id=self.admitted,
            task=group.task,
            group=group.id,
            index=group.admitted,
            seed=(self._seed * _MIX + self.admitted * 0xBF58476D1CE4E5B9) % 2**63,
            turn_limit=group.turn_limit,
            version=self.version,
        )
        group.admitted += 1
        self.admitted += 1
        self._running.add(attempt.id)
        self._trace.attempt_started()
        return attempt

    def _new_group(self) -> OpenGroup:
        task = self._order.next()
        attempts, turn_limit = self._attempts.attempts(task.id), self._turn_limits.limit(task.id)
        group = OpenGroup(self._groups, task, attempts, turn_limit=turn_limit)
        self._groups += 1
        self._open[group.id] = group
        return group

    # -- results ----------------------------------------------------------------------------------

    def finish(self, trajectory: Trajectory) -> None:
        """Take what an admitted attempt left behind.

        Raises:
            InvariantViolated: If the attempt is not running: never admitted, or handed over before.
        """
        try:
            self._running.remove(trajectory.attempt.id)
        except KeyError:
            raise InvariantViolated(
                f"attempt {trajectory.attempt.id} was handed over, but it is not running: every admitted "
                "attempt is handed over exactly once"
            ) from None
        self._store.record(trajectory)
        self._trace.attempt_finished(trajectory)
        self._turn_limits.learn((trajectory,))
        if self._pool is not None:
            self._pool.learn((trajectory,), now=asyncio.get_running_loop().time())
        group = self._open.get(trajectory.attempt.group)
        if group is None:
            self._drop((trajectory,), Drop.MASKED if trajectory.masked else Drop.UNUSED)
            return
        group.finished += 1
        if trajectory.masked:
            self._drop((trajectory,), Drop.MASKED)
            if group.replaced < self._max_replacements or trajectory.ending is Ending.CANCELLED:
                group.replaced += 1
                if group is not self._filling:
                    self._replace.append(group)
        else:
            group.usable.append(trajectory)
        if group.complete:
            self._complete(group)
        self._start_what_may()

    def _complete(self, group: OpenGroup) -> None:
        """Judge a group that has all its attempts."""
        del self._open[group.id]
        if group is self._filling:
            self._filling = None
        usable = tuple(group.usable)
        rewards = [t.reward for t in usable if t.reward is not None]
        self._attempts.learn(group.task.id, rewards)
        if self._task_filter is not None:
            self._task_filter.learn(group.task.id, rewards)
        now = asyncio.get_running_loop().time()
        judged = Group(group.id, group.task, usable, now)
        reason = self._group_rule.reason_to_drop(usable)
        # A success takes the place of one failure, and needs another one to be compared with.
        if self._pool is not None and reason is not Drop.TOO_SMALL and len(usable) > 1 and not any(rewards):
            rescue = self._pool.rescue(group.id, usable, now=now, version=self.version)
            if rescue is not None:
                self._drop((rescue.replaced,), Drop.REPLACED)
                judged = Group(group.id, group.task, rescue.trajectories, now)
                reason = self._group_rule.reason_to_drop(rescue.trajectories)
        if reason is not None:
            self._drop(own(judged), reason)
            return
        self._eligible.append(judged)
        self._wake_trainer()

    def _drop(self, trajectories: tuple[Trajectory, ...], reason: Drop) -> None:
        if trajectories:
            self.dropped += len(trajectories)
            self._store.drop(trajectories, reason)
            self._trace.dropped(trajectories, reason)

    # -- batches ----------------------------------------------------------------------------------

    async def next_batch(self) -> Batch | None:
        """Return a batch, leased to the next update, once there is one; None when the run ends."""
        while not self._closed:
            self._drop_stale()
            chosen = self._batch_rule.select(self._eligible)
            if chosen:
                return self._lease(tuple(chosen))
            self._trainer = asyncio.get_running_loop().create_future()
            await self._trainer
        return None

    def trained(self, batch: Batch, result: UpdateResult) -> None:
        """Mark a batch as trained."""
        consumed = own_batch(batch)
        num = len(consumed.trajectories)
        self.leased -= num
        self.trained_count += num
        self.trainer_version = result.weights.version
        self._num_fresh = 0
        self._store.trained(consumed, result.weights.version)
        self._trace.update_finished(consumed, result.metrics)
        if self._pool is not None:
            self._pool.trained(batch.groups)

    def release(self, batch: Batch) -> None:
        """Take a batch back whose update failed."""
        consumed = own_batch(batch)
        self.leased -= len(consumed.trajectories)
        self._store.release(consumed)
        self._trace.batch_released(consumed)
        if self._closed:
            self._drop(consumed.trajectories, Drop.UNUSED)
            return
        self._eligible[:0] = batch.groups
        self._num_fresh = 0
        self._wake_trainer()

    def published(self, version: Version) -> None:
        """Count on this version for attempts admitted from now on."""
        self.version = max(self.version, version)
        self._published_count = self.trained_count
        self._drop_stale()
        self._start_what_may()

    def _lease(self, groups: tuple[Group, ...]) -> Batch:
        taken = {group.id for group in groups}
        self._eligible = [group for group in self._eligible if group.id not in taken]
        self._num_fresh = len(self._eligible)  # next_batch has just seen to it
        batch = Batch(self.trainer_version + 1, self.trainer_version, groups)
        consumed = own_batch(batch)
        self.leased += len(consumed.trajectories)
        self._store.lease(consumed)
        self._trace.batch_leased(consumed)
        return batch

    def _drop_stale(self) -> None:
        """Drop what the staleness rule forbids to train on with the trainer's weights.

        A group is looked at once a version: every group that becomes eligible leads here, and looking at all
        of them each time would cost O(desktops) turns a group.
        """
        kept = self._eligible
        unknown = kept[self._num_fresh :]
        del kept[self._num_fresh :]
        for group in unknown:
            fresh: list[Trajectory] = []
            stale: list[Trajectory] = []
            for trajectory in own(group):
                is_fresh = self._staleness.fresh(trajectory, self.trainer_version)
                (fresh if is_fresh else stale).append(trajectory)
            if not stale:
                kept.append(group)
                continue
            left = (*fresh, *pooled(group))
            if fresh and self._group_rule.reason_to_drop(left) is None:
                self._drop(tuple(stale), Drop.STALE)
                kept.append(Group(group.id, group.task, left, group.ready))
            else:
                self._drop(own(group), Drop.STALE)
        self._num_fresh = len(kept)
        self._start_what_may()

    def _wake_trainer(self) -> None:
        if self._trainer is not None and not self._trainer.done():
            self._trainer.set_result(None)

    # -- the end ----------------------------------------------------------------------------------

    def end_admission(self) -> None:
        """Admit nothing more, and send waiting slots home; what runs goes on."""
        self._ending = True
        for waiter in self._waiters.values():
            if not waiter.done():
                waiter.set_result(None)
        self._waiters.clear()

    def close(self) -> None:
        """End the run: admit nothing more, and drop as unused what is neither leased nor trained."""
        self.end_admission()
        self._closed = True
        for group in self._open.values():
            self._drop(tuple(group.usable), Drop.UNUSED)
        self._open.clear()
        for eligible in self._eligible:
            self._drop(own(eligible), Drop.UNUSED)
        self._eligible = []
        self._num_fresh = 0
        self._wake_trainer()
        self._store.close()

    def check(self) -> None:
        """Check that every admitted attempt is in exactly one place.

        Raises:
            InvariantViolated: If the counts do not add up.
        """
        collected = sum(len(group.usable) for group in self._open.values())
        eligible = sum(len(own(group)) for group in self._eligible)
        places = {
            "running": self.running,
            "collected": collected,
            "eligible": eligible,
            "leased": self.leased,
            "trained": self.trained_count,
            "dropped": self.dropped,
        }
        if sum(places.values()) != self.admitted or min(places.values()) < 0:
            raise InvariantViolated(
                f"{self.admitted} attempts were admitted, but they are found in these places: {places}"
            )
