"""``AttemptLedger``: counts attempts by state, and reports every change to the store and the recorder."""

from __future__ import annotations

from collections.abc import Sequence

from dartsim.core.errors import InvariantViolated
from dartsim.core.ports import Store
from dartsim.core.types import Attempt, Batch, Drop, Group, Trajectory, UpdateResult, Version
from dartsim.observe import Recorder


class AttemptLedger:
    """The state of every attempt.

    Invariant: every admitted attempt is in exactly one of running, collected in an open group, eligible, leased,
    trained, dropped, and the counts add up (``check``).
    """

    def __init__(self, store: Store, recorder: Recorder) -> None:
        self._store = store
        self._recorder = recorder
        self.running: dict[int, Attempt] = {}
        self.withdrawn: dict[int, Drop] = {}
        self.admitted = 0
        self.leased = 0
        self.trained = 0
        self.dropped = 0
        self.version: Version = 0
        self.trainer_version: Version = 0

    def begin(self, attempt: Attempt) -> None:
        self.admitted += 1
        self.running[attempt.id] = attempt
        self._recorder.attempt_started()

    def end(self, trajectory: Trajectory) -> Drop | None:
        """Record the trajectory of a running attempt; return why it was withdrawn, if it was.

        Raises:
            InvariantViolated: If it is not running: never admitted, or already handed over.
        """
        attempt = trajectory.attempt.id
        if self.running.pop(attempt, None) is None:
            raise InvariantViolated(
                f"attempt {attempt} was handed over, but it is not running: every admitted attempt is handed over "
                "exactly once"
            )
        self._store.record(trajectory)
        self._recorder.attempt_finished(trajectory)
        return self.withdrawn.pop(attempt, None)

    def withdraw(self, group: int, reason: Drop) -> list[int]:
        """Withdraw a group; return the numbers of its running attempts."""
        running = [attempt.id for attempt in self.running.values() if attempt.group == group]
        self.withdrawn.update(dict.fromkeys(running, reason))
        return running

    def drop(self, trajectories: Sequence[Trajectory], reason: Drop) -> None:
        if trajectories:
            self.dropped += len(trajectories)
            self._store.drop(trajectories, reason)
            self._recorder.dropped(tuple(trajectories), reason)

    def lose(self, attempts: Sequence[int]) -> None:
        if attempts:
            self._store.give_up(attempts, Drop.LOST)
            self._recorder.lost(attempts, Drop.LOST)
            self.dropped += len(attempts)

    def grade(self, group: Group, reason: Drop | None) -> None:
        """Make a complete group eligible, or drop it for a reason."""
        self._recorder.group_judged(group.own, reason)
        if reason is None:
            self._store.eligible(group)
        else:
            self.drop(group.own, reason)

    def lease(self, batch: Batch) -> None:
        consumed = batch.own
        self.leased += len(consumed.trajectories)
        self._store.lease(consumed)
        self._recorder.batch_leased(consumed)

    def train(self, batch: Batch, result: UpdateResult) -> None:
        consumed = batch.own
        num = len(consumed.trajectories)
        self.leased -= num
        self.trained += num
        self.trainer_version = result.weights.version
        self._store.trained(consumed, self.trainer_version, checkpoint=result.checkpoint)
        self._recorder.update_finished(consumed, result.metrics, rescued=batch)

    def release(self, batch: Batch) -> None:
        """Make a batch whose update failed eligible again."""
        consumed = batch.own
        self.leased -= len(consumed.trajectories)
        self._store.release(consumed)
        self._recorder.batch_released(consumed)

    def publish(self, version: Version) -> None:
        self.version = max(self.version, version)

    def check(self, *, collected: int, eligible: int) -> None:
        """Check that every admitted attempt is in exactly one place.

        Raises:
            InvariantViolated: If the counts do not add up.
        """
        places = {
            "running": len(self.running),
            "collected": collected,
            "eligible": eligible,
            "leased": self.leased,
            "trained": self.trained,
            "dropped": self.dropped,
        }
        if sum(places.values()) != self.admitted or min(places.values()) < 0:
            raise InvariantViolated(f"{self.admitted} attempts were admitted, but they are in these places: {places}")
