"""The interfaces of the control plane: what a backend must provide, simulated or real.

Conformance checks for each port are plain functions in ``dartsim.core.checks``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol

from dartsim.core.sync_modes import SyncMode
from dartsim.core.types import (
    Attempt,
    Batch,
    Drop,
    Group,
    Observation,
    Recovered,
    Reply,
    Request,
    Restored,
    StepResult,
    StoredSuccess,
    Task,
    Trajectory,
    TrajectoryState,
    UpdateResult,
    Version,
    Weights,
)


class AsyncEnv(Protocol):
    """One running desktop. Only one call at a time."""

    async def reset(self, task: Task, *, seed: int) -> Observation:
        """Set the desktop up for ``task`` and return what it shows first.

        Raises:
            EnvFault: If the desktop failed.
        """
        ...

    async def step(self, action: str) -> StepResult:
        """Carry out one action and return what the desktop shows then.

        Raises:
            EnvFault: If the desktop failed. A malformed action is no fault.
        """
        ...

    async def evaluate(self) -> float:
        """Return the score of the desktop's present state, in [0, 1].

        Raises:
            ScoreUnavailable: If the evaluator failed.
            EnvFault: If the desktop failed.
        """
        ...

    async def close(self) -> None:
        """Tear the desktop down and give back all it holds. May be called twice; never raises."""
        ...


class EnvProvider(Protocol):
    """Starts desktops."""

    async def start(self, slot: int) -> AsyncEnv:
        """Boot a desktop for a slot of the cluster and return it ready.

        If cancelled or failed, nothing of the desktop is left behind.

        Raises:
            EnvStartFailed: If it did not become ready.
        """
        ...


class PolicyWorker(Protocol):
    """One inference engine."""

    async def generate(self, request: Request) -> Reply:
        """Answer one request. Cancelling the call frees what it holds in the engine.

        Raises:
            WorkerFault: If the engine failed the request.
        """
        ...

    async def load(self, weights: Weights, mode: SyncMode) -> None:
        """Put new weights into the engine; on return every new token comes from them.

        Raises:
            WorkerFault: If the weights could not be loaded; the engine then serves nothing.
        """
        ...


class Learner(Protocol):
    """One trainer: turns a batch into new weights."""

    async def update(self, batch: Batch) -> UpdateResult:
        """Train on a batch and return the new weights, ready to be loaded by workers.

        Raises:
            LearnerFault: If the update did not happen; weights are then as before.
            UpdateUncertain: If nobody knows whether it did. It will be asked for again with the same batch; one that
                was done is known by its number, and answered without being done again.
        """
        ...


class Resumable(Protocol):
    """What a run needs to go on from where it is, as its store asks for it."""

    def documents(self) -> Mapping[str, Any]:
        """Return the state of the scheduler and of the measurements by name, as JSON can say it."""
        ...

    def successes(self) -> Iterable[StoredSuccess]:
        """Return the stored successes, if there are any."""
        ...


class Store(Protocol):
    """Keeps what happened to every trajectory, and what a run needs to be resumed.

    What is told between two calls of ``settle`` belongs together: after a crash all of it is there, or nothing. Whoever
    opened a store closes it.

    Raises:
        InvariantViolated: On a transition that ``TrajectoryState`` does not have, such as training twice; then nothing
            has changed.
        StoreFault: If the store's disk or database failed; every call may raise it.
    """

    # -- what is in it

    @property
    def resumable(self) -> bool:
        """Whether another process can resume the run from it."""
        ...

    @property
    def live(self) -> Mapping[int, TrajectoryState]:
        """States of the trajectories that may still change, by attempt."""
        ...

    @property
    def counts(self) -> Mapping[TrajectoryState, int]:
        """Number of trajectories in each state, of those that were live since the store was opened."""
        ...

    @property
    def num_bytes(self) -> int:
        """What its turns and files take on disk."""
        ...

    @property
    def max_bytes(self) -> int | None:
        """Most that they may take; None: no limit."""
        ...

    @property
    def prepare_files(self) -> Callable[[Any, str | None], None] | None:
        """Writes the files of a screenshot and an accessibility tree before ``record`` does, from any thread.

        None if the store keeps no screenshots.
        """
        ...

    # -- a trajectory's life

    def record(self, trajectory: Trajectory) -> None:
        """Keep a finished attempt, in state ``recorded``."""
        ...

    def eligible(self, group: Group) -> None:
        """Mark a group's own trajectories as eligible."""
        ...

    def lease(self, batch: Batch) -> None:
        """Mark the batch's trajectories as leased to its update."""
        ...

    def release(self, batch: Batch) -> None:
        """Return a batch whose update failed: its trajectories have the states from before the lease."""
        ...

    def trained(self, batch: Batch, version: Version, *, checkpoint: Any = None) -> None:
        """Mark the batch's trajectories as trained, and keep the update and the version it made.

        ``checkpoint`` is what ``UpdateResult`` has of that name.
        """
        ...

    def drop(self, trajectories: Sequence[Trajectory], reason: Drop) -> None:
        """Mark trajectories as dropped, for one reason."""
        ...

    def give_up(self, attempts: Sequence[int], reason: Drop) -> None:
        """Mark as dropped what is known by number only, because it cannot be read back."""
        ...

    # -- transactions

    def settle(self, source: Resumable, *, now: bool = False) -> None:
        """Say that what was told is whole; ``source`` has the state that goes with it.

        A store may write several such wholes together, later; with ``now`` it does not wait.
        """
        ...

    def suspend(self) -> None:
        """Keep what was told so far, and nothing of what comes: the run will be resumed from here.

        A store that is not resumable goes on as before.
        """
        ...

    def close(self) -> None:
        """Write what is pending and release the database. May be called twice."""
        ...

    # -- resuming

    def save(self, documents: Mapping[str, Any]) -> None:
        """Keep JSON-serializable documents by name, replacing those of the same names."""
        ...

    def documents(self) -> Mapping[str, Any]:
        """Return the documents of the last ``save`` and ``settle``, by name."""
        ...

    def recover(self) -> Recovered:
        """Bring the store to a state from which a run can resume: nothing is leased, no update lacks its weights."""
        ...

    def restore(self, recovered: Recovered, known: Collection[int]) -> Restored:
        """Return the trajectories with which a run resumes.

        Args:
            recovered: What ``recover`` returned; ``undone`` may name more updates, of an earlier recovery.
            known: Attempts in groups that the scheduler's document has; the others of an undone update are untrained.
        """
        ...

    def clear(self) -> None:
        """Forget everything, of a run in which nothing happened."""
        ...


class AttemptSource(Protocol):
    """What a rollout asks for work and hands its results to: the data manager, seen from below."""

    async def admit(self, slot: int) -> Attempt | None:
        """Say that a slot is free, and return its next attempt once one may start; None when the run ends."""
        ...

    def finish(self, trajectory: Trajectory) -> None:
        """Hand over what an admitted attempt left behind; exactly once an attempt."""
        ...


class BatchSource(Protocol):
    """What the trainer takes batches from: the data manager, seen from the side."""

    async def next_batch(self) -> Batch | None:
        """Return a batch, leased to the next update, once there is one; None when the run ends."""
        ...

    def trained(self, batch: Batch, result: UpdateResult) -> None:
        """Say that the batch was trained."""
        ...

    def release(self, batch: Batch) -> None:
        """Return a batch whose update failed; it is eligible again."""
        ...

    def published(self, version: Version) -> None:
        """Say that attempts admitted from now on may count on this version."""
        ...


class Publisher(Protocol):
    """What the trainer gives new weights to: the rollout service, seen from the side."""

    def publish(self, weights: Weights) -> None:
        """Make these the weights that every worker has to end on; a newer publication supersedes them."""
        ...

    async def settled(self, version: Version) -> None:
        """Wait until every worker serves ``version`` or a newer one."""
        ...
