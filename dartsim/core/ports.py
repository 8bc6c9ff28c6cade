"""The interfaces of the control plane: what a backend must provide, simulated or real.

Conformance checks for each port are plain functions in ``dartsim.testing.ports``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from dartsim.core.types import (
    Attempt,
    Batch,
    Content,
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

if TYPE_CHECKING:
    from dartsim.core.sync_modes import SyncMode  # ports load without pydantic


class AsyncEnv(Protocol):
    """One running desktop. Only one call at a time."""

    async def reset(self, task: Task, *, seed: int) -> Observation:
        """Set the desktop up for ``task`` and return the first observation.

        Raises:
            EnvFault: If the desktop failed.
        """
        ...

    async def step(self, action: str) -> StepResult:
        """Carry out one action and return what the desktop shows afterwards.

        Raises:
            EnvFault: If the desktop failed. A malformed action is not a fault.
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
        """Tear the desktop down and release its resources. May be called twice; never raises."""
        ...


class EnvProvider(Protocol):
    """Starts desktops."""

    async def start(self, slot: int) -> AsyncEnv:
        """Boot a desktop for a slot of the cluster and return it ready.

        If cancelled or failed, it leaves nothing behind.

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


class LentWorker(PolicyWorker, Protocol):
    """An engine on the trainer's GPU, which it has from ``load`` to ``release``."""

    async def release(self) -> None:
        """Give the GPU back. Live requests end with ``WorkerRestarted``; new ones are refused until the next load.

        Raises:
            WorkerFault: If it may still hold the GPU.
        """
        ...


class ContentModel(Protocol):
    """Computes replies, such as ``VlmPolicy``; its callers may serve different versions at once."""

    def add(self, weights: Weights) -> None:
        """Add the weights of a version."""

    def compute(self, requests: Sequence[Request], version: Version) -> list[Content]:
        """Answer requests with the weights of a version, in one batch."""


class Learner(Protocol):
    """One trainer: turns a batch into new weights."""

    async def update(self, batch: Batch) -> UpdateResult:
        """Train on a batch and return the new weights, ready for workers to load.

        Raises:
            LearnerFault: If the update did not happen; weights are unchanged.
            UpdateUncertain: If it is unknown whether it did. It is then requested again with the same batch: a learner
                knows an update by its number, and returns a finished one without repeating it.
        """
        ...


class Resumable(Protocol):
    """Gives a store the state that a run needs to resume."""

    def documents(self) -> Mapping[str, Any]:
        """Return the state of the scheduler and of the measurements by name, JSON-serializable."""
        ...

    def successes(self) -> Iterable[StoredSuccess]:
        """Return the stored successes."""
        ...


class Store(Protocol):
    """Keeps the state of every trajectory, and the state that a run needs to resume.

    Calls between two calls of ``settle`` form one transaction: after a crash all of it is there, or nothing. The code
    that opens a store closes it.

    Raises:
        InvariantViolated: On a transition that ``TrajectoryState`` does not have, such as training twice; then nothing
            has changed.
        StoreFault: If the store's disk or database failed; every call may raise it.
    """

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
        """Number of trajectories in each state, among those that were live since the store was opened."""
        ...

    @property
    def prepare_files(self) -> Callable[[Any], Awaitable[None]] | None:
        """Writes the file of a screenshot before ``record`` does, without blocking.

        None if the store keeps no screenshots.
        """
        ...

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
        """Return a batch whose update failed: its trajectories regain their states from before the lease."""
        ...

    def trained(self, batch: Batch, version: Version, *, checkpoint: Any = None) -> None:
        """Mark the batch's trajectories as trained; ``checkpoint`` is that of its ``UpdateResult``."""
        ...

    def drop(self, trajectories: Sequence[Trajectory], reason: Drop) -> None:
        """Mark trajectories as dropped, for one reason."""
        ...

    def give_up(self, attempts: Sequence[int], reason: Drop) -> None:
        """Mark attempts whose trajectories cannot be read as dropped."""
        ...

    def settle(self, source: Resumable, *, now: bool = False) -> None:
        """End a transaction, which includes the state of ``source``.

        A store may write several transactions together later; with ``now`` it writes immediately.
        """
        ...

    def suspend(self) -> None:
        """Keep what is settled and nothing that follows: the run will be resumed from here.

        A store that is not resumable ignores it.
        """
        ...

    def close(self) -> None:
        """Release the database; what is not settled is lost. May be called twice."""
        ...

    def save(self, documents: Mapping[str, Any]) -> None:
        """Store JSON-serializable documents by name, replacing those of the same name."""
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
            known: Attempts in groups that the scheduler's document contains; the other attempts of an undone update
                become untrained.
        """
        ...

    def clear(self) -> None:
        """Remove everything."""
        ...


class AttemptSource(Protocol):
    """Gives a rollout its attempts and takes the results: the data manager, as slots see it."""

    async def admit(self, slot: int) -> Attempt | None:
        """Return the next attempt for a free slot once one may start; None when the run ends."""
        ...

    def finish(self, trajectory: Trajectory) -> None:
        """Hand over the trajectory of an admitted attempt; exactly once per attempt."""
        ...


class BatchSource(Protocol):
    """Gives the trainer its batches: the data manager, as the trainer sees it."""

    async def next_batch(self) -> Batch | None:
        """Return a batch, leased to the next update, once there is one; None when the run ends."""
        ...

    def trained(self, batch: Batch, result: UpdateResult) -> None:
        """Record that the batch was trained."""
        ...

    def release(self, batch: Batch, *, drop: Drop | None = None) -> None:
        """Return a batch whose update failed; it is eligible again, or dropped for a reason."""
        ...

    def published(self, version: Version) -> None:
        """Record that attempts admitted from now on are generated by this version or a newer one."""
        ...


class Publisher(Protocol):
    """Takes new weights from the trainer: the rollout service, as the trainer sees it."""

    def publish(self, weights: Weights) -> None:
        """Let every worker load these weights; a newer publication supersedes them."""
        ...

    async def settled(self, version: Version) -> None:
        """Wait until every worker serves ``version`` or a newer one."""
        ...
