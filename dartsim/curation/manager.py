"""``DataManager``: the one place where attempts are admitted, grouped, chosen for training and accounted for.

    slots --admit--> attempt --finish--> open group --complete--> eligible --lease--> batch --> trained
                        |                    |                       |
                        +------- masked -----+---- group rule -------+---- stale ----> dropped(reason)

Back-pressure exists here and nowhere else: a free slot waits in ``admit``, the trainer in ``next_batch``.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

from dartsim.curation.admission import AdmissionRule, Places
from dartsim.curation.attempts import AttemptsRule
from dartsim.curation.batches import BatchRule, Begun
from dartsim.curation.concurrency import Caches, CacheUseRule
from dartsim.curation.faults import StoreFault
from dartsim.curation.further import FurtherRule
from dartsim.curation.groups import GroupRule, OpenGroup
from dartsim.curation.held_out import Order, TaskFilter
from dartsim.curation.open_groups import OpenGroups
from dartsim.curation.pool import Stored, SuccessPool, own, own_batch, pooled
from dartsim.curation.saved import (
    SCHEDULER,
    TRACE,
    Restored,
    read_attempt,
    read_group,
    rebuilt,
    save_attempt,
    save_group,
)
from dartsim.curation.staleness import StalenessRule
from dartsim.curation.turn_limit import TurnLimitRule
from dartsim.curation.units import Gang, Units
from dartsim.curation.waits import Waits
from dartsim.errors import InvariantViolated
from dartsim.ports import Store
from dartsim.trace import DesktopState, Trace
from dartsim.types import Attempt, Batch, Drop, Ending, Group, Task, Trajectory, UpdateResult, Version

logger = logging.getLogger(__name__)

INTERRUPTED = "interrupted"
"""Cause of attempts that ran when the run crashed."""


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
        admission: Bounds on groups, asked before a group is begun; one that was begun goes on.
        concurrency: Bound on attempts that run, moved by how full ``caches`` are; None for none.
        caches: Those of the engines.
        requeue_stale: Whether the task of a group that got stale is offered again, before others.
        cancel_stale: Whether running attempts end whose group is certain to be stale.
        publish_wait: What ``before_publication`` waits for: nothing; the groups that run, with no new one begun
            meanwhile; or the whole next batch.
        max_replacements: Masked attempts of one group that are tried again; cancelled ones always are.
        further: Attempts that slots without work add to groups in which all failed.
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
        admission: AdmissionRule | None = None,
        concurrency: CacheUseRule | None = None,
        caches: Caches | None = None,
        requeue_stale: bool = False,
        cancel_stale: bool = False,
        publish_wait: Literal["nothing", "running", "batch"] = "nothing",
        max_replacements: int = 2,
        further: FurtherRule | None = None,
        seed: int = 0,
    ) -> None:
        self._open = OpenGroups(order, attempts, turn_limits, seed=seed)
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
        self._admission = admission or AdmissionRule()
        self._concurrency = concurrency
        self._caches = caches
        self._requeue_stale = requeue_stale
        self._cancel_stale = cancel_stale
        self._publish_wait = publish_wait
        self._max_replacements = max_replacements
        self._further = further or FurtherRule()

        self._ready: deque[int] = deque()
        """Slots whose gang is open and that wait for room, longest first."""
        self._waiters: dict[int, asyncio.Future[Attempt | None]] = {}
        self._busy: set[int] = set()
        self._running: dict[int, Attempt] = {}
        """Attempts that were admitted and are not handed over yet."""
        self._withdrawn: dict[int, Drop] = {}
        """Those of them whose group was given up, and why it was."""
        self._eligible: list[Group] = []
        self._leases: dict[int, Batch] = {}
        """Batches by the update that they are leased to."""
        self._num_fresh = 0
        """Groups at the head of the eligible ones that are known to be fresh for the trainer's weights."""
        self._trainer: asyncio.Future[None] | None = None
        self._ending = False
        self._closed = False
        self._holding = False
        """Whether no group may be begun, because new weights wait for those that run."""
        self._quiet: asyncio.Future[None] | None = None
        """The trainer, while it waits before a publication."""
        self._unpublished = 0
        """Groups trained into weights that are not published."""
        self.withdraw: Callable[[int], None] = _nothing_to_withdraw
        """Ends a running attempt, which is handed over as cancelled soon after; set by whoever plays them."""
        self.failure: BaseException | None = None
        """Why an attempt could not be handed over. Whoever did it may be cancelled before it tells."""

        self.version: Version = 0
        """Newest published version."""
        self.trainer_version: Version = 0
        """Version that the trainer holds."""
        self.admitted = 0
        self.leased = 0
        self.trained_count = 0
        self.dropped = 0
        self._published_count = 0
        self.changed = trace.clock()
        """When a group became eligible last, or a batch was taken; loop time."""

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
        if waiter.done():
            self._settle()
        elif not gang.open:
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
    def ending(self) -> bool:
        """Whether nothing more is admitted."""
        return self._ending

    @property
    def running(self) -> int:
        """Attempts that were admitted and are not handed over yet."""
        return len(self._running)

    @property
    def ahead(self) -> int:
        """Attempts that were admitted and neither dropped nor trained into published weights."""
        return self.admitted - self.dropped - self._published_count

    def waits(self) -> Waits:
        """Return what the next batch and free slots wait for."""
        return Waits(
            eligible=len(self._eligible),
            min_groups=self._batch_rule.min_groups,
            open_groups=tuple((group.id, group.finished, group.planned) for group in self._open.groups.values()),
            ahead=self.ahead,
            max_ahead=self._max_ahead,
            running=self.running,
            leased=self.leased,
            publish_wait=self._publish_wait,
            lacks=self._lacks(),
        )

    def _lacks(self) -> str | None:
        """Return why no group may be begun, in words; None if one may, or only ``max_ahead`` forbids it."""
        if self._holding:
            return "new weights wait for those that run"
        if self._crowded():
            return f"{self.running} attempts run, at most {self._bound} may by what the engines' caches hold"
        return self._admission.lacks(self._places())

    def unit_running(self, slot: int) -> int:
        """Return how many attempts of a slot's sampling unit run."""
        return self._units.gang(slot).running

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
        while self._ready and self._has_room():
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

    def _has_room(self) -> bool:
        """Return whether another attempt may start: one that its group lacks, or the first of a new one."""
        if self._crowded() or (self._max_ahead is not None and self.ahead >= self._max_ahead):
            return False
        if self._admission.unbounded and not self._holding:
            return True
        if self._open.lacking:
            return True
        return not self._holding and self._admission.room(self._places())

    @property
    def _bound(self) -> int | None:
        """Most attempts that may run; None: as many as there are slots."""
        return None if self._concurrency is None else self._concurrency.bound

    def _crowded(self) -> bool:
        return self._bound is not None and self.running >= self._bound

    def _look_at_caches(self) -> None:
        """Let the bound on attempts follow the engines' caches, and give the youngest groups up if they overflow."""
        rule = self._concurrency
        if rule is None or self._caches is None:
            return
        if rule.look(asyncio.get_running_loop().time(), self.running, self._caches.read()):
            groups = self._open.groups
            while groups and self.running - len(self._withdrawn) > rule.bound:
                self._withdraw_group(groups[max(groups)], Drop.CROWDED)

    def _places(self) -> Places:
        leased = sum(len(batch.groups) for batch in self._leases.values())
        return Places(len(self._open.groups), len(self._eligible), leased, self._unpublished)

    def _next_attempt(self) -> Attempt:
        attempt = self._open.next_attempt(self.admitted, self.version)
        self.admitted += 1
        self._running[attempt.id] = attempt
        self._trace.attempt_started()
        return attempt

    # -- results ----------------------------------------------------------------------------------

    def finish(self, trajectory: Trajectory) -> None:
        """Take what an admitted attempt left behind.

        Raises:
            InvariantViolated: If the attempt is not running: never admitted, or handed over before.
        """
        try:
            self._finish(trajectory)
            self._settle()
        except BaseException as error:
            # Before anything else is told: the attempt may be nowhere now, and must not be kept so.
            self._store.suspend()
            self.failure = error
            raise

    def _finish(self, trajectory: Trajectory) -> None:
        try:
            del self._running[trajectory.attempt.id]
        except KeyError:
            raise InvariantViolated(
                f"attempt {trajectory.attempt.id} was handed over, but it is not running: every admitted "
                "attempt is handed over exactly once"
            ) from None
        withdrawn = self._withdrawn.pop(trajectory.attempt.id, None)
        if self._concurrency is not None:
            self._concurrency.ended()
        self._store.record(trajectory)
        self._trace.attempt_finished(trajectory)
        self._turn_limits.learn((trajectory,))
        if self._pool is not None:
            self._pool.learn((trajectory,), now=asyncio.get_running_loop().time())
        group = self._open.groups.get(trajectory.attempt.group)
        if group is None:
            self._drop((trajectory,), Drop.MASKED if trajectory.masked else withdrawn or Drop.UNUSED)
            self._look_at_caches()
            self._start_what_may()
            return
        group.finished += 1
        if trajectory.masked:
            self._drop((trajectory,), Drop.MASKED)
            if self._batch_rule.looks_at_running:
                self._wake_trainer()  # its group may be younger without it
            # What a crash ended is made again anyway, and is none of those.
            failed = group.replaced - group.repeated - len(group.again)
            if failed < self._max_replacements or trajectory.ending is Ending.CANCELLED:
                self._open.replace(group)
        else:
            group.usable.append(trajectory)
        if group.complete and not self._goes_on(group):
            self._complete(group)
        self._look_at_caches()
        self._start_what_may()
        self._tell_quiet()

    def _goes_on(self, group: OpenGroup) -> bool:
        """Let a group in which all failed have further attempts, if slots wait for want of room; say whether it has."""
        if not self._further.most:
            return False
        rewards = [t.reward for t in group.usable if t.reward is not None]
        number = self._further.attempts(rewards, given=group.further, slots=self._slots_to_spare())
        if number:
            self._open.extend(group, number)
            self._trace.counts["further"] += number
        return number > 0

    def _slots_to_spare(self) -> int:
        """Return how many slots could start an attempt at once that no group may be begun for."""
        if self._ending or self._holding or self._crowded() or self._has_room():
            return 0
        waiting = sum(self._units.gang(slot).open for slot in self._ready)
        return waiting if self._max_ahead is None else min(waiting, self._max_ahead - self.ahead)

    def _complete(self, group: OpenGroup) -> None:
        """Judge a group that has all its attempts."""
        self._open.remove(group)
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
            if self._batch_rule.looks_at_running:
                self._wake_trainer()
            return
        self._eligible.append(judged)
        self._store.eligible(judged)
        self.changed = now
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
            chosen = self._batch_rule.select(self._eligible, self._begun(), self.trainer_version)
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
        self._unpublished += len(batch.groups)
        self._num_fresh = 0
        self._leases.pop(batch.update, None)
        self._store.trained(consumed, result.weights.version, checkpoint=result.checkpoint)
        self._trace.update_finished(consumed, result.metrics)
        if self._pool is not None:
            self._pool.trained(batch.groups)
        self._settle()

    def release(self, batch: Batch) -> None:
        """Take a batch back whose update failed."""
        consumed = own_batch(batch)
        self.leased -= len(consumed.trajectories)
        self._leases.pop(batch.update, None)
        self._store.release(consumed)
        self._trace.batch_released(consumed)
        if self._closed:
            self._drop(consumed.trajectories, Drop.UNUSED)
        else:
            self._eligible[:0] = batch.groups
            self._num_fresh = 0
            self._wake_trainer()
        self._settle()

    def published(self, version: Version) -> None:
        """Count on this version for attempts admitted from now on."""
        self.version = max(self.version, version)
        self._published_count = self.trained_count
        self._unpublished = 0
        self._holding = False
        if self._cancel_stale:
            for begun in list(self._begun()):
                if self._staleness.hopeless(begun.version, self.version):
                    self._withdraw_group(self._open.groups[begun.id], Drop.STALE)
        self._drop_stale()
        self._start_what_may()
        self._settle()

    def _lease(self, groups: tuple[Group, ...]) -> Batch:
        taken = {group.id for group in groups}
        self._eligible = [group for group in self._eligible if group.id not in taken]
        self._num_fresh = len(self._eligible)  # next_batch has just seen to it
        batch = Batch(self.trainer_version + 1, self.trainer_version, groups)
        self.changed = self._trace.clock()
        consumed = own_batch(batch)
        self.leased += len(consumed.trajectories)
        self._leases[batch.update] = batch
        self._store.lease(consumed)
        self._trace.batch_leased(consumed)
        self._start_what_may()
        self._settle()
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
                if self._requeue_stale:
                    self._open.offer_again(group.task)
        self._num_fresh = len(kept)
        self._start_what_may()

    def _withdraw_group(self, group: OpenGroup, reason: Drop) -> None:
        """Give a group up that still runs: end its attempts and drop what it has."""
        self._open.remove(group)
        self._drop(tuple(group.usable), reason)
        if reason is Drop.STALE and self._requeue_stale:
            self._open.offer_again(group.task)
        running = [attempt.id for attempt in self._running.values() if attempt.group == group.id]
        self._withdrawn.update(dict.fromkeys(running, reason))
        for attempt in running:
            self.withdraw(attempt)
        if self._batch_rule.looks_at_running:
            self._wake_trainer()  # it need not wait for this one any more

    def _begun(self) -> Iterator[Begun]:
        """Yield the groups that still run, for rules that look at them."""
        begun = {group.id: [t.attempt.version for t in group.usable] for group in self._open.groups.values()}
        for attempt in self._running.values():
            if attempt.group in begun:
                begun[attempt.group].append(attempt.version)
        for group, versions in begun.items():
            yield Begun(group, min(versions, default=self.version))

    async def before_publication(self) -> None:
        """Wait until weights may be published, as ``publish_wait`` says; ``published`` lets groups begin again."""
        self._holding = self._publish_wait == "running"
        while not (self._ending or self._is_quiet()):
            self._quiet = asyncio.get_running_loop().create_future()
            await self._quiet

    @property
    def holds_publication(self) -> bool:
        """Whether a publication waits for what is not there yet: for attempts that run, or for the next batch."""
        return self._quiet is not None and not self._quiet.done() and not self._is_quiet()

    def _is_quiet(self) -> bool:
        if self._publish_wait == "nothing":
            return True
        enough = self._publish_wait == "running" or len(self._eligible) >= self._batch_rule.min_groups
        return not self._open.groups and enough

    def _tell_quiet(self) -> None:
        if self._quiet is not None and not self._quiet.done() and self._is_quiet():
            self._quiet.set_result(None)

    def _wake_trainer(self) -> None:
        if self._trainer is not None and not self._trainer.done():
            self._trainer.set_result(None)

    # -- going on after a crash -------------------------------------------------------------------

    def _settle(self, *, now: bool = False) -> None:
        """Let the store write what this call told it, as one transaction, with the state that goes with it."""
        self._store.settle(self, now=now)

    def documents(self) -> dict[str, Any]:
        """Return everything from which ``restore`` goes on, apart from trajectories, as JSON can say it."""
        scheduler = {
            "update": self.trainer_version,
            "admitted": self.admitted,
            "trained": self.trained_count,
            "dropped": self.dropped,
            "running": [save_attempt(attempt) for attempt in self._running.values()],
            **self._open.state(),
            "eligible": [save_group(group) for group in self._eligible],
            "leased": [save_group(group) for batch in self._leases.values() for group in batch.groups],
            "order": self._order.state(),
            "attempts": self._attempts.state(),
            "turn_limits": self._turn_limits.state(),
            "pool": None if self._pool is None else self._pool.state(),
            "task_filter": None if self._task_filter is None else self._task_filter.state(),
        }
        return {SCHEDULER: scheduler, TRACE: self._trace.state()}

    def successes(self) -> Sequence[Stored]:
        """Return the stored successes."""
        return () if self._pool is None else self._pool.entries()

    def restore(self, saved: Mapping[str, Any], found: Restored, tasks: Mapping[str, Task]) -> None:
        """Go on from where ``documents`` was called, before anything was admitted.

        Attempts that ran then are ended as ``cancelled``, cause ``interrupted``, and made again with the same seed,
        under other numbers. A batch that was leased is eligible again. What cannot be read back is dropped as
        ``lost``; what was made by weights that are lost, as ``undone``.

        Args:
            saved: What ``documents`` returned under ``SCHEDULER``.
            found: What the store gave back.
            tasks: The run's tasks, by id.
        """
        self.admitted, self.dropped = saved["admitted"], saved["dropped"]
        self.trained_count = self._published_count = saved["trained"] - len(found.untrained)
        self.version = self.trainer_version = found.version
        self._restore_rules(saved, found)
        known = found.trajectories
        self._open.restore(saved, tasks, known)
        again = [known[number] for number in found.untrained if number in known]
        self._eligible = [
            *rebuilt(again, asyncio.get_running_loop().time()),
            *(read_group(group, tasks[group["task"]], known) for group in (*saved["leased"], *saved["eligible"])),
        ]
        self._lose(found, saved)
        self._give_up_undone()
        for attempt in saved["running"]:
            self._interrupt(read_attempt(attempt, tasks))
        self._drop_stale()
        self._settle(now=True)

    def _restore_rules(self, saved: Mapping[str, Any], found: Restored) -> None:
        self._order.restore(saved["order"])
        self._attempts.restore(saved["attempts"])
        self._turn_limits.restore(saved["turn_limits"])
        if self._pool is not None:
            self._pool.restore(found.successes, saved["pool"] or {})
        if self._task_filter is not None and saved["task_filter"] is not None:
            self._task_filter.restore(saved["task_filter"])

    def _lose(self, found: Restored, saved: Mapping[str, Any]) -> None:
        """Drop what the store has and cannot give back, or of which no document knows."""
        here = {t.attempt.id for group in self._open.groups.values() for t in group.usable}
        here |= {t.attempt.id for group in self._eligible for t in group.trajectories}
        lost = sorted(found.live - here)
        if lost:
            self._store.give_up(lost, Drop.LOST)
            self._trace.counts[f"dropped/{Drop.LOST}"] += len(lost)
            self.dropped += len(lost)

    def _give_up_undone(self) -> None:
        """Drop what was made by weights that are gone, and judge the groups again that lack something."""
        complete, self._eligible = self._eligible, []
        for group in complete:
            undone = tuple(t for t in own(group) if t.newest_version > self.version)
            self._drop(undone, Drop.UNDONE)
            left = tuple(t for t in group.trajectories if t not in undone)
            reason = self._group_rule.reason_to_drop(left) if own(group) else Drop.LOST
            kept = Group(group.id, group.task, left, group.ready)
            if reason is None and own(kept):
                self._eligible.append(kept)
            else:
                self._drop(own(kept), reason or Drop.UNDONE)
        for opened in self._open.groups.values():
            gone = tuple(t for t in opened.usable if t.newest_version > self.version)
            self._drop(gone, Drop.UNDONE)
            opened.usable = [t for t in opened.usable if t not in gone]

    def _interrupt(self, attempt: Attempt) -> None:
        """End an attempt that a crash ended, and let its group make it again."""
        self._running[attempt.id] = attempt
        if attempt.group in self._open.groups:  # else it was being withdrawn
            self._open.groups[attempt.group].again.append((attempt.index, attempt.seed))
        now = asyncio.get_running_loop().time()
        self._finish(Trajectory(attempt, (), Ending.CANCELLED, None, INTERRUPTED, now, now))

    # -- the end ----------------------------------------------------------------------------------

    def suspend(self, *, failed: bool = False) -> None:
        """Let the store keep what is, and nothing of what comes: the run ends before its time, and may be resumed.

        Args:
            failed: Whether something failed, perhaps in the middle of a change: then the last whole state is kept.
        """
        try:
            if not failed:
                self._settle(now=True)
        except StoreFault as fault:
            logger.warning("what the store was told last is not kept: %s", fault)
        self._store.suspend()

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
        for group in self._open.groups.values():
            self._drop(tuple(group.usable), Drop.UNUSED)
        self._open.groups.clear()
        for eligible in self._eligible:
            self._drop(own(eligible), Drop.UNUSED)
        self._eligible = []
        self._num_fresh = 0
        self._wake_trainer()
        self._settle(now=True)
        self._store.close()

    def check(self) -> None:
        """Check that every admitted attempt is in exactly one place, and that no open group waits for ever.

        Raises:
            InvariantViolated: If the counts do not add up, or a group lacks an attempt that nobody will start.
        """
        collected = sum(len(group.usable) for group in self._open.groups.values())
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
        self._open.check(Counter(attempt.group for attempt in self._running.values()))

    def idle_without_reason(self) -> str | None:
        """Return who waits although nothing keeps it waiting, in words; None if nobody does.

        To be asked when the loop is at rest: nothing is ready, and time is about to move.
        """
        if self._ending:
            return None
        if self._has_room():
            slots = [s for s, w in self._waiters.items() if not w.done() and self._units.gang(s).open]
            if slots:
                return f"slots {slots} wait for an attempt, although their unit is open and there is room"
        if self._trainer is not None and not self._trainer.done():
            fresh = [group for group in self._eligible if self._is_fresh(group)]
            if self._batch_rule.select(fresh, self._begun(), self.trainer_version):
                return f"the trainer waits for a batch, although {len(fresh)} fresh groups are eligible"
        return None

    def _is_fresh(self, group: Group) -> bool:
        return all(self._staleness.fresh(trajectory, self.trainer_version) for trajectory in own(group))


def _nothing_to_withdraw(attempt: int) -> None:
    """Whoever only hands attempts over plays none."""
