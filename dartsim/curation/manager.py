"""``DataManager``: admits attempts, collects them in groups, hands out batches, and accounts for every attempt.

    slots --admit--> attempt --finish--> open group --complete--> ready group --lease--> batch --> trained
                        |                    |                       |
                        +------- masked -----+---- group rule -------+---- stale ----> dropped(reason)

Back-pressure exists here only: a free slot waits in ``admit``, the trainer in ``next_batch``. This file has the control
flow; its components are in

    admission     Admission (waiting slots, and whether another attempt may start)
    group_ledger  GroupLedger (the state of every group and attempt)
    rules         Rules (which groups to train on, and what is learned from them)
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
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
    Turns,
    UpdateResult,
    Version,
)
from dartsim.curation.admission import Admission, SlotGroup
from dartsim.curation.group_ledger import GroupLedger, OpenGroup, read_attempt
from dartsim.curation.rules import Rules
from dartsim.curation.status import CurationStatus
from dartsim.observe import Recorder
from dartsim.observe.recorder_state import save_state

logger = logging.getLogger(__name__)

SCHEDULER, RECORDER = "scheduler", "recorder"
"""Names of a run's documents."""

INTERRUPTED = "interrupted"
"""Cause of attempts that were running when the run crashed."""


class DataManager:
    """Admits attempts, collects groups, hands out batches.

    Attributes:
        ledger: The state of every group and attempt.
        failure: Why an attempt could not be handed over, in case the caller is cancelled before it reports the error.
        changed: When a group last became ready or a batch was taken, loop time.
        withdraw: Cancels a running attempt, which is handed over soon after; set by the code that plays attempts.
    """

    def __init__(
        self, rules: Rules, *, slot_groups: Sequence[SlotGroup], store: Store, recorder: Recorder, seed: int = 0
    ) -> None:
        self._rules = rules
        self._slot_groups = slot_groups
        self.ledger = GroupLedger(rules, store, recorder, seed=seed)
        self._admission = Admission(slot_groups, rules, self.ledger, recorder)
        self.store = store
        self.recorder = recorder

        self._trainer: asyncio.Future[None] | None = None
        """Set while the trainer waits for a batch; resolved to wake it."""
        self._lends = False
        """Whether the trainer waits for more groups than its next batch needs, and has lent its GPUs."""
        self._publication: asyncio.Future[None] | None = None
        """Set while the trainer waits to publish; resolved to wake it."""
        self._ending = False
        self._closed = False
        self.withdraw: Callable[[int], None] = lambda attempt: None
        self.failure: BaseException | None = None
        self._or_suspend = _SuspendedOnFailure(self)
        self.changed = recorder.clock()

    @property
    def ending(self) -> bool:
        """Whether admission has ended."""
        return self._ending

    @property
    def holds_publication(self) -> bool:
        """Whether a publication waits for running attempts or for the next batch."""
        return self._publication is not None and not self._publication.done() and not self._may_publish()

    def unit_running(self, slot: int) -> int:
        """Return how many attempts of a slot's slot group run."""
        return self._slot_groups[slot].running

    def status(self) -> CurationStatus:
        return CurationStatus(
            eligible=self.num_ready,
            min_groups=self._rules.batch_rule.parameters.min_groups,
            open_groups=tuple((group.id, group.finished, group.planned) for group in self.ledger.open.values()),
            running=len(self.ledger.running),
            leased=self.ledger.leased,
            publish_wait=self._rules.publish_wait,
            blocked_by=self._admission.blocked_by(),
        )

    async def admit(self, slot: int) -> Attempt | None:
        self._admission.end(slot)
        if self._ending:
            return None
        waiter = self._admission.join(slot)
        with self._or_suspend:
            self._start_attempts()
            if waiter.done():
                self._settle()
        try:
            return await waiter
        except asyncio.CancelledError:
            granted = self._admission.leave(slot, waiter)
            if granted is not None:  # assigned concurrently with the cancellation
                self.finish(_cancelled_trajectory(granted, "run ended"))
            raise

    def _start_attempts(self) -> None:
        if self._ending:
            return
        while (slot := self._admission.next()) is not None:
            self._admission.start(slot, self.ledger.begin())

    def finish(self, trajectory: Trajectory) -> None:
        with self._or_suspend:
            self._finish(trajectory)
            self._settle()

    def _finish(self, trajectory: Trajectory) -> None:
        withdrawn = self.ledger.end(trajectory)
        self._rules.admission.attempt_ended()
        self._rules.learn(trajectory, now=asyncio.get_running_loop().time())
        group = self.ledger.open.get(trajectory.attempt.group)
        if group is None:
            self.ledger.drop((trajectory,), Drop.MASKED if trajectory.masked else withdrawn or Drop.UNUSED)
        else:
            self._collect(trajectory, group)
        self._withdraw_excess()
        self._start_attempts()
        if group is not None:
            self._wake_publisher()

    def _collect(self, trajectory: Trajectory, group: OpenGroup) -> None:
        """Add an attempt to its group, or replace it if masked; grade the group once it is complete."""
        group.finished += 1
        if trajectory.masked:
            self.ledger.drop((trajectory,), Drop.MASKED)
            if self._rules.batch_rule.looks_at_running:
                self._wake_trainer()  # without it, its group may count as younger
            # Attempts interrupted by a crash are repeated anyway and do not count.
            failed = group.replaced - group.repeated - len(group.again)
            if failed < self._rules.attempts.parameters.max_replacements or trajectory.ending is Ending.CANCELLED:
                self.ledger.replace(group)
        else:
            group.usable.append(trajectory)
        if group.complete:
            self._complete(group)

    def _complete(self, opened: OpenGroup) -> None:
        now = asyncio.get_running_loop().time()
        reason = self.ledger.complete(opened, now=now)
        if reason is None:
            self.changed = now
        if reason is None or self._rules.batch_rule.looks_at_running:
            self._wake_trainer()

    def _drop_stale(self) -> None:
        """Drop what is too stale for the trainer's weights, and start attempts to replace it."""
        self.ledger.drop_stale()
        self._start_attempts()

    def _withdraw_excess(self) -> None:
        """Withdraw the youngest groups if the engines' caches overflow."""
        if self._admission.adjust():
            groups = self.ledger.open
            while groups and self._admission.too_many():
                self._withdraw_group(groups[max(groups)], Drop.CROWDED)

    def _withdraw_group(self, group: OpenGroup, reason: Drop) -> None:
        """Drop a group that is still being collected, and cancel its running attempts."""
        for attempt in self.ledger.withdraw(group, reason):
            self.withdraw(attempt)
        if self._rules.batch_rule.looks_at_running:
            self._wake_trainer()  # the trainer no longer waits for this group

    async def next_batch(self) -> Batch | None:
        while not self._closed:
            self._drop_stale()
            chosen = self.ledger.select()
            if chosen:
                batch = self.ledger.lease(chosen)
                self.changed = self.recorder.clock()
                self._start_attempts()
                self._settle()
                return batch
            self._trainer = asyncio.get_running_loop().create_future()
            await self._trainer
        return None

    @property
    def num_ready(self) -> int:
        """Number of groups that are ready for batches."""
        return len(self.ledger.ready)

    async def enough(self, groups: int) -> None:
        """Wait until so many groups are ready, or the run ends; meanwhile the trainer takes none."""
        self._lends = True
        while not self._closed and self.num_ready < groups:
            self._trainer = asyncio.get_running_loop().create_future()
            await self._trainer
        self._lends = False

    def trained(self, batch: Batch, result: UpdateResult) -> None:
        self.ledger.train(batch, result)
        if self._rules.pool is not None:
            self._rules.pool.trained(batch.groups)
        self._settle()

    def release(self, batch: Batch, *, drop: Drop | None = None) -> None:
        if drop is None and self._closed:
            drop = Drop.UNUSED
        self.ledger.release(batch, drop)
        if drop is None:
            self._wake_trainer()
        else:
            self._start_attempts()
        self._settle()

    def _wake_trainer(self) -> None:
        if self._trainer is not None and not self._trainer.done():
            self._trainer.set_result(None)

    async def before_publication(self) -> None:
        """Wait until weights may be published, according to ``publish_wait``; ``published`` lets groups begin again."""
        self._admission.holding = self._rules.publish_wait == "running"
        while not (self._ending or self._may_publish()):
            self._publication = asyncio.get_running_loop().create_future()
            await self._publication

    def published(self, version: Version) -> None:
        self.ledger.publish(version)
        self._admission.holding = False
        if self._rules.staleness.parameters.cancel_running:
            for begun in list(self.ledger.running_groups()):
                if self._rules.staleness.hopeless(begun.version, self.ledger.version):
                    self._withdraw_group(self.ledger.open[begun.id], Drop.STALE)
        self._drop_stale()
        self._settle()

    def _may_publish(self) -> bool:
        if self._rules.publish_wait == "nothing":
            return True
        enough = self._rules.publish_wait == "running" or self.num_ready >= self._rules.batch_rule.parameters.min_groups
        return not self.ledger.open and enough

    def _wake_publisher(self) -> None:
        if self._publication is not None and not self._publication.done() and self._may_publish():
            self._publication.set_result(None)

    def _settle(self, *, now: bool = False) -> None:
        """Let the store write the changes of this call as one transaction, with the scheduler's state."""
        self.store.settle(self, now=now)

    def documents(self) -> dict[str, Any]:
        return {SCHEDULER: {**self.ledger.state(), **self._rules.state()}, RECORDER: save_state(self.recorder)}

    def successes(self) -> Sequence[StoredSuccess]:
        return () if self._rules.pool is None else self._rules.pool.entries()

    def restore(self, saved: Mapping[str, Any], stored: Restored, tasks: Mapping[str, Task]) -> None:
        """Restore the state that ``documents`` returned, before anything is admitted.

        Attempts that were running end as ``cancelled``, cause ``interrupted``, and are repeated with the same seeds and
        new ids. ``GroupLedger.restore`` says what becomes of the others.
        """
        self._rules.restore(saved, stored.successes)
        self.ledger.restore(saved, stored, tasks, now=asyncio.get_running_loop().time())
        for attempt in saved["running"]:
            self._interrupt(read_attempt(attempt, tasks))
        self._drop_stale()
        self._settle(now=True)

    def _interrupt(self, attempt: Attempt) -> None:
        """End an attempt that a crash interrupted, and let its group repeat it."""
        self.ledger.running[attempt.id] = attempt
        if attempt.group in self.ledger.open:  # otherwise it was being withdrawn
            self.ledger.open[attempt.group].again.append((attempt.index, attempt.seed))
        self._finish(_cancelled_trajectory(attempt, INTERRUPTED))

    def suspend(self, *, failed: bool = False) -> None:
        """Let the store keep the current state and nothing later: the run is interrupted and may be resumed.

        Args:
            failed: Whether a failure may have interrupted a change; then the last settled state is kept.
        """
        try:
            if not failed:
                self._settle(now=True)
        except StoreFault as fault:
            logger.warning("the last changes are not stored: %s", fault)
        self.store.suspend()

    def end_admission(self) -> None:
        """End admission and release waiting slots; running attempts continue."""
        self._ending = True
        self._admission.close()

    def close(self) -> None:
        """End the run: end admission, and drop what is neither leased nor trained as unused."""
        self.end_admission()
        self._closed = True
        self.ledger.drop_unused()
        self._wake_trainer()
        self._settle(now=True)

    def idle_without_reason(self) -> str | None:
        """Return what waits although it could proceed, as a sentence; None if nothing does.

        Meaningful only when no callback is ready and time is about to advance.
        """
        if self._ending:
            return None
        if slots := self._admission.overlooked():
            return f"slots {slots} wait for an attempt, although their slot group is open and attempts may start"
        if self._trainer is not None and not self._trainer.done() and not self._lends:
            fresh = self.ledger.num_selectable()
            if fresh:
                return f"the trainer waits for a batch, although {fresh} fresh groups are eligible"
        return None


class _SuspendedOnFailure:
    """Suspends the store if the block fails, because an attempt may then be in no state or no slot."""

    __slots__ = ("_data",)

    def __init__(self, data: DataManager) -> None:
        self._data = data

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if error is not None:
            self._data.store.suspend()
            self._data.failure = error


def _cancelled_trajectory(attempt: Attempt, cause: str) -> Trajectory:
    """Return the trajectory of an attempt that was not played."""
    now = asyncio.get_running_loop().time()
    return Trajectory(attempt, Turns(), Ending.CANCELLED, None, cause, now, now)
