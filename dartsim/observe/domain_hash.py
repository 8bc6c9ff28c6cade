"""``DomainHash``: one hash over what a run did, apart from how it was computed."""

from __future__ import annotations

from hashlib import blake2b

from dartsim.core.types import Batch, Drop, Trajectory

DIGEST_BYTES = 8


class DomainHash:
    """Hashes the domain facts of a run, in the order in which they happened.

    The facts are each ended attempt (its admission, times, ending and reward), each of its turns (versions, engine and
    tokens), each dropped trajectory and each update with the attempts in it. Callbacks, tasks and timers are not among
    them, so that the hash stays equal when the same run is computed in another way; the event hash does not.

    Each fact is hashed together with the digest before it: a resumed run goes on from the stored digest.

    Attributes:
        digest: 16 hexadecimal digits; equal for equal facts.
    """

    def __init__(self, digest: str = "0" * 2 * DIGEST_BYTES) -> None:
        self.digest = digest

    def attempt_ended(self, trajectory: Trajectory) -> None:
        """Add an ended attempt with its turns."""
        attempt = trajectory.attempt
        reward = None if trajectory.reward is None else float(trajectory.reward)
        replies = [turn.reply for turn in trajectory.turns]
        self._add(
            "attempt",
            (attempt.id, attempt.task.id, attempt.group, attempt.index, attempt.seed),
            (attempt.turn_limit, attempt.version),
            (trajectory.started, trajectory.finished, str(trajectory.ending), reward),
            [(r.oldest_version, r.version, r.worker, r.prompt_tokens, r.response_tokens) for r in replies],
        )

    def dropped(self, trajectories: tuple[Trajectory, ...], reason: Drop, time: float) -> None:
        """Add trajectories that will not be trained on."""
        self._add("dropped", str(reason), time, [trajectory.attempt.id for trajectory in trajectories])

    def updated(self, batch: Batch, time: float) -> None:
        """Add a finished update."""
        attempts = [trajectory.attempt.id for trajectory in batch.trajectories]
        self._add("update", batch.update, batch.version, time, attempts)

    def _add(self, *fact: object) -> None:
        self.digest = blake2b(f"{self.digest}{fact!r}".encode(), digest_size=DIGEST_BYTES).hexdigest()
