"""``CheckedStore``: checks every transition of a store, in memory or in a database over several lives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from dartsim.core.ports import Store
from dartsim.core.types import Batch, Drop, Ending, Trajectory, TrajectoryState, Version
from dartsim.fuzz.checked_ports import PortMonitor
from dartsim.fuzz.faulty_database import NO_LIVES, EarlierLives
from dartsim.store.wrapper import StoreWrapper

MASKED = (Ending.BROKEN, Ending.TIMED_OUT, Ending.WORKER_FAULT, Ending.UNSCORED, Ending.CANCELLED)
_TRAINED, _DROPPED = TrajectoryState.TRAINED.value, TrajectoryState.DROPPED.value


class CheckedStore(StoreWrapper):
    """A store that checks every transition."""

    def __init__(self, monitor: PortMonitor, inner: Store, past: EarlierLives = NO_LIVES) -> None:
        super().__init__(inner)
        self._monitor = monitor
        self.ended: dict[int, str] = dict(past.ended)
        """Final states, by attempt."""
        self._ended_before = Counter(past.ended.values())
        self.seen: Counter[int] = Counter(past.attempts)
        self.consumed: Counter[int] = Counter(n for n, state in past.ended.items() if state == _TRAINED)
        self.masked = past.masked
        self.version: Version = past.version
        """Newest version that was committed."""

    def count(self, state: TrajectoryState) -> int:
        """Return how many trajectories of all lives are in a state."""
        return self._inner.counts[state] + self._ended_before[state.value]

    def states(self) -> dict[int, str]:
        return {**self.ended, **self._inner.live}

    def record(self, trajectory: Trajectory) -> None:
        """Store it, and compare it with the observations at its desktop and workers."""
        monitor, attempt = self._monitor, trajectory.attempt
        if monitor.dead:
            return
        monitor.note("record", attempt=attempt.id, ending=trajectory.ending, reward=trajectory.reward)
        self._inner.record(trajectory)
        self.seen[attempt.id] += 1
        self._check_reward(trajectory)
        self._check_turns(trajectory)
        if self.seen[attempt.id] > 1:
            monitor.fail("I1", f"attempt {attempt.id} ended twice")
        if attempt.version > self.version:
            monitor.fail("I6", f"attempt {attempt.id} was admitted under version {attempt.version}, {self.version} is")
        if trajectory.masked:
            self.masked += 1
        else:
            monitor.progress = monitor.time()

    def lease(self, batch: Batch) -> None:
        """Mark as leased; the batch must not be stale, too large or have duplicates."""
        monitor = self._monitor
        if monitor.dead:
            return
        ids = [t.attempt.id for t in batch.trajectories]
        monitor.note("lease", update=batch.update, attempts=ids)
        self._inner.lease(batch)
        self._check_staleness(batch)
        sizes = monitor.config.curation.batch
        if batch.update != self.version + 1:
            monitor.fail("I6", f"update {batch.update} was leased after version {self.version}")
        if len(batch.groups) < 1 or len(batch.groups) > sizes.max_groups:
            monitor.fail("I13", f"a batch of {len(batch.groups)} groups; at most {sizes.max_groups} are wanted")
        if len(ids) != len(set(ids)):
            monitor.fail("I4", f"a batch names an attempt twice: {ids}")

    def release(self, batch: Batch) -> None:
        if self._monitor.dead:
            return
        self._monitor.note("release", update=batch.update)
        self._inner.release(batch)

    def trained(self, batch: Batch, version: Version, *, checkpoint: Any = None) -> None:
        """Mark as trained; the update must have happened, once, without stale trajectories."""
        monitor = self._monitor
        if monitor.dead:
            return
        monitor.note("trained", update=batch.update, version=version)
        self.ended.update((t.attempt.id, _TRAINED) for t in batch.trajectories)
        self._inner.trained(batch, version, checkpoint=checkpoint)
        self._check_staleness(batch)
        if version != self.version + 1 or version != batch.update:
            monitor.fail("I6", f"version {version} of update {batch.update} was committed after {self.version}")
        if version > monitor.updated:
            monitor.fail("I6", f"version {version} was committed, but the learner has made {monitor.updated}")
        self.version = version
        self.consumed.update(t.attempt.id for t in batch.trajectories)
        doubled = [number for number, times in self.consumed.items() if times > 1]
        if doubled:
            monitor.fail("I4", f"attempts {doubled} were trained twice")
        monitor.progress = monitor.time()

    def drop(self, trajectories: Sequence[Trajectory], reason: Drop) -> None:
        if self._monitor.dead:
            return
        self._monitor.note("drop", attempts=[t.attempt.id for t in trajectories], reason=reason)
        self.ended.update((t.attempt.id, _DROPPED) for t in trajectories)
        self._inner.drop(trajectories, reason)
        if reason in (Drop.LOST, Drop.UNDONE):
            self._monitor.fail("I3", f"attempts {[t.attempt.id for t in trajectories]} are dropped as {reason}")
        if reason is Drop.UNUSED and not self._monitor.ending():
            self._monitor.fail("I13", f"attempts {[t.attempt.id for t in trajectories]} go unused before the end")
        if (reason is Drop.MASKED) != all(t.masked for t in trajectories):
            self._monitor.fail("I2", f"attempts {[t.attempt.id for t in trajectories]} were dropped as {reason}")

    def give_up(self, attempts: Sequence[int], reason: Drop) -> None:
        """Fail: no file is torn, so that every trajectory can be read back."""
        self._monitor.fail("I3", f"attempts {list(attempts)} were stored, and are given up as {reason} after a crash")

    def suspend(self) -> None:
        """Make the store ignore further transitions."""
        self._inner.suspend()
        if self._inner.resumable:
            self._monitor.dead = True

    def _check_reward(self, trajectory: Trajectory) -> None:
        monitor, attempt = self._monitor, trajectory.attempt
        score = monitor.scores.pop(attempt.seed, None)
        if trajectory.reward != score:
            monitor.fail("R7", f"attempt {attempt.id} has reward {trajectory.reward}; its desktop was scored {score}")
        if not trajectory.masked == (trajectory.ending in MASKED) == (trajectory.cause is not None):
            monitor.fail("R7", f"attempt {attempt.id}: {trajectory.ending}, {trajectory.reward}, {trajectory.cause}")

    def _check_turns(self, trajectory: Trajectory) -> None:
        monitor, attempt = self._monitor, trajectory.attempt
        replies = monitor.replies.pop(attempt.id, [])
        turns = [turn.reply for turn in trajectory.turns]
        if trajectory.ending is Ending.CANCELLED:
            return  # its turns are gone
        # A reply may arrive at the very end of its attempt, and is then in no turn.
        if turns != replies[: len(turns)] or len(replies) - len(turns) > (1 if trajectory.masked else 0):
            monitor.fail("I7", f"attempt {attempt.id} has {len(turns)} turns, not those of its {len(replies)} replies")
        if len(turns) > attempt.turn_limit:
            monitor.fail("I2", f"attempt {attempt.id} took {len(turns)} turns, {attempt.turn_limit} were allowed")

    def _check_staleness(self, batch: Batch) -> None:
        rule = self._monitor.config.curation.staleness
        if rule.max_staleness is None:
            return
        for group in batch.groups:
            for t in group.trajectories:
                if t.attempt.group != group.id:
                    continue  # stored successes have their own rule
                versions = {"oldest": t.oldest_version, "newest": t.newest_version, "start": t.attempt.version}
                version = versions[rule.measured_by]
                if batch.version - version > rule.max_staleness:
                    self._monitor.fail(
                        "I5", f"attempt {t.attempt.id}, made by version {version}, is in a batch of {batch.version}"
                    )
