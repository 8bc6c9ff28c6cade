"""``DataManager``: the one place where attempts are admitted, grouped, chosen for training and accounted for.

    slots --admit--> attempt --finish--> open group --complete--> ready group --lease--> batch --> trained
                        |                    |                       |
                        +------- masked -----+---- group rule -------+---- stale ----> dropped(reason)

Back-pressure exists here and nowhere else: a free slot waits in ``admit``, the trainer in ``next_batch``.

The control flow is here; each part has a file of its own:

    AdmissionQueue  the slots that wait                   AdmissionControl  whether another attempt may start
    OpenGroups      the groups that are being collected   GroupGrader       which groups are worth training on
    ReadyGroups     the groups that may be trained on     AttemptLedger     the state of every attempt
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from dartsim.core.errors import StoreFault
from dartsim.core.ports import Store
from dartsim.core.types import (
    Attempt,
    Batch,
    Drop,
    Ending,
    Restored,
    StoredSuccess,
    Task,
    Trajectory,
    UpdateResult,
    Version,
)
from dartsim.curation.admission_control import AdmissionControl
from dartsim.curation.admission_queue import AdmissionQueue, SamplingUnit
from dartsim.curation.attempt_ledger import AttemptLedger
from dartsim.curation.group_grader import GroupGrader, rewards_of
from dartsim.curation.open_groups import OpenGroup, OpenGroups
from dartsim.curation.ready_groups import ReadyGroups
from dartsim.curation.rules import Rules
from dartsim.curation.rules.batches import RunningGroup
from dartsim.curation.scheduler_state import (
    RECORDER,
    SCHEDULER,
    drop_lost,
    drop_undone,
    read_attempt,
    restore_counts,
    restore_groups,
    save_attempt,
    save_group,
)
from dartsim.curation.status import CurationStatus
from dartsim.observe import Recorder
from dartsim.observe.recorder_state import save_state

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
        rules: What it goes by.
        unit: What has to end before a slot gets new work.
        store: Where states are kept.
        recorder: Where they are counted.
        seed: Seeds of attempts are derived from it.
    """

    def __init__(self, rules: Rules, *, unit: SamplingUnit, store: Store, recorder: Recorder, seed: int = 0) -> None:
        self._rules = rules
        self._ledger = AttemptLedger(store, recorder)
        self.open_groups = OpenGroups(rules.order, rules.attempts, rules.turn_limits, seed=seed)
        self.ready_groups = ReadyGroups(rules, self._ledger)
        self._grader = GroupGrader(rules)
        self._queue = AdmissionQueue(unit, recorder)
        self._admission = AdmissionControl(rules, self._ledger, self.open_groups, self.ready_groups)
        self.store = store
        self.recorder = recorder

        self._trainer: asyncio.Future[None] | None = None
        """The trainer, while it waits for a batch."""
        self._quiet: asyncio.Future[None] | None = None
        """The trainer, while it waits before a publication."""
        self._ending = False
        self._closed = False
        self.withdraw: Callable[[int], None] = _nothing_to_withdraw
        """Ends a running attempt, which is handed over as cancelled soon after; set by whoever plays them."""
        self.failure: BaseException | None = None
        """Why an attempt could not be handed over. Whoever did it may be cancelled before it tells."""
        self.changed = recorder.clock()
        """When a group became ready last, or a batch was taken; loop time."""

    # -- state -------------------------------------------------------------------------

    @property
    def version(self) -> Version:
        """Newest published version."""
        return self._ledger.version

    @property
    def trainer_version(self) -> Version:
        """Version that the trainer holds."""
        return self._ledger.trainer_version

    @property
    def admitted(self) -> int:
        """Attempts that were started."""
        return self._ledger.admitted

    @property
    def leased(self) -> int:
        """Attempts in the update that runs."""
        return self._ledger.leased

    @property
    def trained_count(self) -> int:
        """Attempts in finished updates."""
        return self._ledger.trained

    @property
    def dropped(self) -> int:
        """Attempts that are not trained on."""
        return self._ledger.dropped

    @property
    def running(self) -> int:
        """Attempts that were admitted and are not handed over yet."""
        return len(self._ledger.running)

    @property
    def ahead(self) -> int:
        """Attempts that were admitted and neither dropped nor trained into published weights."""
        return self._ledger.ahead

    @property
    def ending(self) -> bool:
        """Whether nothing more is admitted."""
        return self._ending

    @property
    def holds_publication(self) -> bool:
        """Whether a publication waits for what is not there yet: for attempts that run, or for the next batch."""
        return self._quiet is not None and not self._quiet.done() and not self._is_quiet()

    def unit_running(self, slot: int) -> int:
        """Return how many attempts of a slot's sampling unit run."""
        return self._queue.unit_running(slot)

    def waits(self) -> CurationStatus:
        """Return what the next batch and free slots wait for."""
        return CurationStatus(
            eligible=len(self.ready_groups.groups),
            min_groups=self._rules.batch_rule.parameters.min_groups,
            open_groups=tuple((group.id, group.finished, group.planned) for group in self.open_groups.groups.values()),
            ahead=self.ahead,
            max_ahead=self._rules.max_ahead,
            running=self.running,
            leased=self.leased,
            publish_wait=self._rules.publish_wait,
            blocked_by=self._admission.blocked_by(),
        )

    # -- admission --------------------------------------------------------------------------------

    async def admit(self, slot: int) -> Attempt | None:
        """Say that a slot is free, and return its next attempt once one may start; None when the run ends."""
        self._queue.end(slot)
        if self._ending:
            return None
        waiter = self._queue.join(slot)
        self._start_what_may()
        if waiter.done():
            self._settle()
        try:
            return await waiter
        except asyncio.CancelledError:
            granted = self._queue.leave(slot, waiter)
            if granted is not None:  # cancelled while it was assigned an attempt
                self.finish(_cancelled(granted, "run ended"))
            raise

    def _start_what_may(self) -> None:
        """Give attempts to slots in line while there is room."""
        if self._ending:
            return
        while self._queue and self._admission.there_is():
            slot = self._queue.next()
            if slot is not None:
                attempt = self.open_groups.next_attempt(self.admitted, self.version)
                self._ledger.begin(attempt)
                self._queue.start(slot, attempt)

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
            self.store.suspend()
            self.failure = error
            raise

    def _finish(self, trajectory: Trajectory) -> None:
        withdrawn = self._ledger.end(trajectory)
        self._admission.attempt_ended()
        self._grader.learn(trajectory, now=asyncio.get_running_loop().time())
        group = self.open_groups.groups.get(trajectory.attempt.group)
        if group is None:
            self._ledger.drop((trajectory,), Drop.MASKED if trajectory.masked else withdrawn or Drop.UNUSED)
        else:
            self._collect(trajectory, group)
        self._give_up_what_overflows()
        self._start_what_may()
        if group is not None:
            self._tell_quiet()

    def _collect(self, trajectory: Trajectory, group: OpenGroup) -> None:
        """Add an attempt to its group, or have it tried again; judge the group once it has all of them."""
        group.finished += 1
        if trajectory.masked:
            self._ledger.drop((trajectory,), Drop.MASKED)
            if self._rules.batch_rule.looks_at_running:
                self._wake_trainer()  # its group may be younger without it
            # What a crash ended is made again anyway, and is none of those.
            failed = group.replaced - group.repeated - len(group.again)
            if failed < self._rules.attempts.parameters.max_replacements or trajectory.ending is Ending.CANCELLED:
                self.open_groups.replace(group)
        else:
            group.usable.append(trajectory)
        if group.complete and not self._goes_on(group):
            self._complete(group)

    def _goes_on(self, group: OpenGroup) -> bool:
        """Give a group in which all failed extra attempts, if slots wait for admission; return whether it has some."""
        attempts = self._rules.attempts
        if not attempts.parameters.extra_attempts:
            return False
        slots = 0 if self._ending else self._admission.spare(len(self._queue.startable()))
        number = attempts.num_extra(rewards_of(group.usable), given=group.extra, slots=slots)
        if number:
            self.open_groups.extend(group, number)
            self.recorder.counts["further"] += number
        return number > 0

    def _complete(self, opened: OpenGroup) -> None:
        """GroupGrader a group that has all its attempts."""
        self.open_groups.remove(opened)
        now = asyncio.get_running_loop().time()
        group, reason, replaced = self._grader.verdict(opened, now=now, version=self.version)
        if replaced is not None:
            self._ledger.drop((replaced,), Drop.REPLACED)
        self._ledger.judge(group, reason)
        if reason is None:
            self.ready_groups.groups.append(group)
            self.changed = now
        if reason is None or self._rules.batch_rule.looks_at_running:
            self._wake_trainer()

    # -- what is given up -------------------------------------------------------------------------

    def _drop_stale(self) -> None:
        """Drop what is too old for the trainer's weights, and start what has room then."""
        for task in self.ready_groups.drop_stale():
            if self._rules.staleness.parameters.requeue:
                self.open_groups.offer_again(task)
        self._start_what_may()

    def _give_up_what_overflows(self) -> None:
        """Give the youngest groups up if the engines' caches overflow."""
        if self._admission.adjust():
            groups = self.open_groups.groups
            while groups and self._admission.too_many():
                self._withdraw_group(groups[max(groups)], Drop.CROWDED)

    def _withdraw_group(self, group: OpenGroup, reason: Drop) -> None:
        """Give a group up that still runs: end its attempts and drop what it has."""
        self.open_groups.remove(group)
        self._ledger.drop(tuple(group.usable), reason)
        if reason is Drop.STALE and self._rules.staleness.parameters.requeue:
            self.open_groups.offer_again(group.task)
        for attempt in self._ledger.withdraw(group.id, reason):
            self.withdraw(attempt)
        if self._rules.batch_rule.looks_at_running:
            self._wake_trainer()  # it need not wait for this one any more

    # -- batches ----------------------------------------------------------------------------------

    async def next_batch(self) -> Batch | None:
        """Return a batch, leased to the next update, once there is one; None when the run ends."""
        while not self._closed:
            self._drop_stale()
            chosen = self.ready_groups.select(self._begun())
            if chosen:
                batch = self.ready_groups.lease(chosen)
                self.changed = self.recorder.clock()
                self._start_what_may()
                self._settle()
                return batch
            self._trainer = asyncio.get_running_loop().create_future()
            await self._trainer
        return None

    def trained(self, batch: Batch, result: UpdateResult) -> None:
        """Mark a batch as trained."""
        self.ready_groups.trained(batch)
        self._ledger.train(batch, result)
        self._grader.trained(batch.groups)
        self._settle()

    def release(self, batch: Batch) -> None:
        """Take a batch back whose update failed."""
        self._ledger.release(batch)
        self.ready_groups.release(batch, keep=not self._closed)
        if self._closed:
            for group in batch.groups:
                self._ledger.drop(group.own, Drop.UNUSED)
        else:
            self._wake_trainer()
        self._settle()

    def _begun(self) -> Iterator[RunningGroup]:
        """Yield the groups that still run, for rules that look at them."""
        return self.open_groups.begun(self._ledger.running.values(), self.version)

    def _wake_trainer(self) -> None:
        if self._trainer is not None and not self._trainer.done():
            self._trainer.set_result(None)

    # -- publications -----------------------------------------------------------------------------

    async def before_publication(self) -> None:
        """Wait until weights may be published, as ``publish_wait`` says; ``published`` lets groups begin again."""
        self._admission.holding = self._rules.publish_wait == "running"
        while not (self._ending or self._is_quiet()):
            self._quiet = asyncio.get_running_loop().create_future()
            await self._quiet

    def published(self, version: Version) -> None:
        """Count on this version for attempts admitted from now on."""
        self._ledger.publish(version)
        self.ready_groups.unpublished = 0
        self._admission.holding = False
        if self._rules.staleness.parameters.cancel_running:
            for begun in list(self._begun()):
                if self._rules.staleness.hopeless(begun.version, self.version):
                    self._withdraw_group(self.open_groups.groups[begun.id], Drop.STALE)
        self._drop_stale()
        self._settle()

    def _is_quiet(self) -> bool:
        if self._rules.publish_wait == "nothing":
            return True
        enough = (
            self._rules.publish_wait == "running"
            or len(self.ready_groups.groups) >= self._rules.batch_rule.parameters.min_groups
        )
        return not self.open_groups.groups and enough

    def _tell_quiet(self) -> None:
        if self._quiet is not None and not self._quiet.done() and self._is_quiet():
            self._quiet.set_result(None)

    # -- resuming after a crash -------------------------------------------------------------------

    def _settle(self, *, now: bool = False) -> None:
        """Let the store write what this call told it, as one transaction, with the state that goes with it."""
        self.store.settle(self, now=now)

    def documents(self) -> dict[str, Any]:
        """Return everything from which ``restore`` goes on, apart from trajectories, JSON-serializable."""
        scheduler = {
            "update": self.trainer_version,
            "admitted": self.admitted,
            "trained": self.trained_count,
            "dropped": self.dropped,
            "running": [save_attempt(attempt) for attempt in self._ledger.running.values()],
            **self.open_groups.state(),
            "eligible": [save_group(group) for group in self.ready_groups.groups],
            "leased": [save_group(group) for group in self.ready_groups.leased],
            **self._grader.state(),
        }
        return {SCHEDULER: scheduler, RECORDER: save_state(self.recorder)}

    def successes(self) -> Sequence[StoredSuccess]:
        """Return the stored successes."""
        return self._grader.successes()

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
        restore_counts(self._ledger, saved, found)
        self._grader.restore(saved, found.successes)
        restore_groups(self.open_groups, self.ready_groups, saved, found, tasks, now=asyncio.get_running_loop().time())
        drop_lost(self._ledger, self.open_groups, self.ready_groups, found)
        drop_undone(self._ledger, self._grader, self.open_groups, self.ready_groups)
        for attempt in saved["running"]:
            self._interrupt(read_attempt(attempt, tasks))
        self._drop_stale()
        self._settle(now=True)

    def _interrupt(self, attempt: Attempt) -> None:
        """End an attempt that a crash ended, and let its group make it again."""
        self._ledger.running[attempt.id] = attempt
        if attempt.group in self.open_groups.groups:  # else it was being withdrawn
            self.open_groups.groups[attempt.group].again.append((attempt.index, attempt.seed))
        self._finish(_cancelled(attempt, INTERRUPTED))

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
        self.store.suspend()

    def end_admission(self) -> None:
        """Admit nothing more, and send waiting slots home; what runs goes on."""
        self._ending = True
        self._queue.send_home()

    def close(self) -> None:
        """End the run: admit nothing more, and drop as unused what is neither leased nor trained."""
        self.end_admission()
        self._closed = True
        for group in self.open_groups.groups.values():
            self._ledger.drop(tuple(group.usable), Drop.UNUSED)
        self.open_groups.groups.clear()
        self.ready_groups.drop_unused()
        self._wake_trainer()
        self._settle(now=True)

    # -- checks -----------------------------------------------------------------------------------

    def check(self) -> None:
        """Check that every admitted attempt is in exactly one place, and that no open group waits for ever.

        Raises:
            InvariantViolated: If the counts do not add up, or a group lacks an attempt that nobody will start.
        """
        self._ledger.check(
            collected=sum(len(group.usable) for group in self.open_groups.groups.values()),
            eligible=sum(len(group.own) for group in self.ready_groups.groups),
        )
        self.open_groups.check(Counter(attempt.group for attempt in self._ledger.running.values()))

    def idle_without_reason(self) -> str | None:
        """Return who waits although nothing keeps it waiting, in words; None if nobody does.

        To be asked when the loop is at rest: nothing is ready, and time is about to move.
        """
        if self._ending:
            return None
        slots = self._queue.forgotten() if self._admission.there_is() else []
        if slots:
            return f"slots {slots} wait for an attempt, although their unit is open and there is room"
        if self._trainer is not None and not self._trainer.done():
            fresh = self.ready_groups.could_lease(self._begun())
            if fresh:
                return f"the trainer waits for a batch, although {fresh} fresh groups are eligible"
        return None


def _cancelled(attempt: Attempt, cause: str) -> Trajectory:
    """Return what is left of an attempt that nobody played to its end."""
    now = asyncio.get_running_loop().time()
    return Trajectory(attempt, (), Ending.CANCELLED, None, cause, now, now)


def _nothing_to_withdraw(attempt: int) -> None:
    """Whoever only hands attempts over plays none."""
