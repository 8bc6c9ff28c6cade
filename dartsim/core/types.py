"""What travels between the modules: tasks, attempts, turns, trajectories, batches, weights.

All values are immutable. Those made once per turn (``Observation``, ``Request``, ``Reply``, ``Turn``) are
named tuples, because a frozen dataclass costs about four times as much to make; the others are frozen,
slotted dataclasses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

Version = int
"""Number of finished updates behind a set of weights; the initial weights are version 0."""


class Ending(StrEnum):
    """How an attempt ended."""

    DONE = "done"
    """The agent declared the task done."""
    FAIL = "fail"
    """The agent declared the task infeasible."""
    TURN_LIMIT = "turn_limit"
    """The attempt used up its turns and was scored as it stood."""
    BROKEN = "broken"
    """The desktop failed; masked."""
    TIMED_OUT = "timed_out"
    """A call on the desktop or the inference pool took longer than its deadline; masked."""
    WORKER_FAULT = "worker_fault"
    """No worker could answer within the allowed tries; masked."""
    UNSCORED = "unscored"
    """The evaluator failed; masked."""
    CANCELLED = "cancelled"
    """The run ended first; masked."""


class Drop(StrEnum):
    """Why a trajectory, or a whole group, was not trained on."""

    MASKED = "masked"
    """The attempt ended by a fault and has no reward."""
    ALL_FAILED = "all_failed"
    """Every attempt of the group failed, so it carries no signal."""
    ALL_SOLVED = "all_solved"
    """The group's mean reward reached the filter's upper bound."""
    NO_SIGNAL = "no_signal"
    """All rewards of the group are equal, strictly between 0 and 1."""
    TOO_SMALL = "too_small"
    """Faults left fewer usable attempts in the group than the group rule wants."""
    REPLACED = "replaced"
    """A failure of a group in which all failed, whose place a stored success took."""
    STALE = "stale"
    """Older than the staleness bound allows when a batch was chosen, or of a group that was withdrawn for that."""
    CROWDED = "crowded"
    """Of a group that was given up because the engines' caches were too full."""
    UNUSED = "unused"
    """Eligible, but the run ended before a batch took it."""
    LOST = "lost"
    """It was stored, but a run that was resumed could not read it back whole."""
    UNDONE = "undone"
    """Made by weights that no checkpoint contains, which a crash took back."""


@dataclass(frozen=True, slots=True)
class Task:
    """One thing to do on a desktop.

    Attributes:
        id: Unique within the task list.
        instruction: What the agent is told, in words.
        domain: OSWorld's folder for the task (``chrome``, ``gimp``, …), or the name of a generator.
        spec: The task file as it was read; empty for generated tasks.
    """

    id: str
    instruction: str
    domain: str = "generated"
    spec: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try at a task, as admitted by the data manager.

    Attributes:
        id: Unique within the run, counted from 0.
        task: What to do.
        group: Number of the group of attempts of the same task it belongs to.
        index: Place in its group, from 0.
        seed: Seeds everything that is drawn for this attempt alone.
        turn_limit: Turns after which the attempt is scored as it stands.
        version: Newest published version when it was admitted.
    """

    id: int
    task: Task
    group: int
    index: int
    seed: int
    turn_limit: int
    version: Version


class Observation(NamedTuple):
    """What the agent sees.

    ``screenshot`` is a uint8 array [height, width, 3], and ``accessibility_tree`` XML or None.
    """

    screenshot: Any
    instruction: str
    accessibility_tree: str | None = None


class StepResult(NamedTuple):
    """What a desktop answers to one action; ``over`` is true after the last action of an episode."""

    observation: Observation
    over: bool


class Request(NamedTuple):
    """One question to the inference pool.

    ``session`` is the attempt, whose turns share most of a prompt; ``turn`` counts from 0;
    ``history`` holds the turns before, oldest first.
    """

    attempt: Attempt
    turn: int
    observation: Observation
    history: list[Turn]


class Content(NamedTuple):
    """What a reply says, apart from who says it and how long it takes.

    ``tokens``, ``logprobs`` (nats, as sampled) and ``entropies`` (nats) are [n], one entry a response token.
    """

    action: str
    tokens: Any
    logprobs: Any
    entropies: Any


class Reply(NamedTuple):
    """One answer of a worker.

    ``oldest_version`` differs from ``version`` only when weights were changed under the request
    (keep mode). ``tokens``, ``logprobs`` (nats, as sampled) and ``entropies`` (nats) have one entry a
    response token, or are None where the worker does not compute them. ``cached_tokens`` are those of the prompt
    that the worker found in its prefix cache, of ``prompt_tokens``; None where it does not say. They are counted when
    the reply comes, and not stored with it.
    """

    action: str
    version: Version
    oldest_version: Version
    worker: int
    prompt_tokens: int
    response_tokens: int
    tokens: Any = None
    logprobs: Any = None
    entropies: Any = None
    cached_tokens: int | None = None


class Turn(NamedTuple):
    """One observation and the reply to it: the unit that is generated, admitted and trained."""

    observation: Observation
    reply: Reply


@dataclass(frozen=True, slots=True)
class Trajectory:
    """What one attempt left behind.

    Attributes:
        attempt: The attempt.
        turns: Its turns, in order.
        ending: How it ended.
        reward: The score in [0, 1], or None if the attempt is masked.
        cause: For a masked attempt, what happened, in words.
        started: Loop time at which the attempt was admitted, seconds.
        finished: Loop time at which its last activity ended, seconds.
    """

    attempt: Attempt
    turns: tuple[Turn, ...]
    ending: Ending
    reward: float | None
    cause: str | None
    started: float
    finished: float

    @property
    def masked(self) -> bool:
        """Whether a fault took the reward away."""
        return self.reward is None

    @property
    def oldest_version(self) -> Version:
        """Oldest weights that generated any part of it; the admitted version if it has no turns."""
        return min((turn.reply.oldest_version for turn in self.turns), default=self.attempt.version)

    @property
    def newest_version(self) -> Version:
        """Newest weights that generated any part of it; the admitted version if it has no turns."""
        return max((turn.reply.version for turn in self.turns), default=self.attempt.version)


@dataclass(frozen=True, slots=True)
class Group:
    """Attempts of one task that are compared with each other (GRPO's group).

    Attributes:
        id: The number the attempts carry.
        task: Their task.
        trajectories: Its unmasked trajectories.
        ready: Loop time at which the group became complete, seconds.
    """

    id: int
    task: Task
    trajectories: tuple[Trajectory, ...]
    ready: float

    @property
    def num_turns(self) -> int:
        """Turns in all of its trajectories."""
        return sum(len(trajectory.turns) for trajectory in self.trajectories)

    @property
    def own(self) -> tuple[Trajectory, ...]:
        """Those of the attempts that the run admitted for this group."""
        return tuple(t for t in self.trajectories if t.attempt.group == self.id)

    @property
    def pooled(self) -> tuple[Trajectory, ...]:
        """Those from the success pool, whose attempts belong to another group."""
        return tuple(t for t in self.trajectories if t.attempt.group != self.id)

    @property
    def mean_reward(self) -> float:
        """Mean of the trajectories' rewards."""
        rewards = [t.reward for t in self.trajectories if t.reward is not None]
        return sum(rewards) / len(rewards)


@dataclass(frozen=True, slots=True)
class Batch:
    """Groups leased to one update.

    Attributes:
        update: The update that trains it, counted from 1; it makes the version of the same number.
        version: Weights that are trained on it.
        groups: The groups, in the order they were chosen.
    """

    update: int
    version: Version
    groups: tuple[Group, ...]

    @property
    def trajectories(self) -> tuple[Trajectory, ...]:
        """All trajectories of all groups."""
        return tuple(t for group in self.groups for t in group.trajectories)

    @property
    def num_turns(self) -> int:
        """Turns in all of its trajectories."""
        return sum(group.num_turns for group in self.groups)

    @property
    def own(self) -> Batch:
        """The batch without what came from the success pool."""
        if not any(group.pooled for group in self.groups):
            return self
        return replace(self, groups=tuple(replace(group, trajectories=group.own) for group in self.groups))


@dataclass(frozen=True, slots=True)
class Weights:
    """One published set of weights.

    Attributes:
        version: Its number.
        source: Where a worker finds them (a path, a URL, an object); None in a pure simulation.
    """

    version: Version
    source: Any = None


@dataclass(frozen=True, slots=True)
class UpdateResult:
    """What a learner returns for one batch.

    Attributes:
        weights: The new weights.
        metrics: Named scalars of the update.
        checkpoint: A whole checkpoint that contains the update, for ``Store.trained``; None if none was written.
    """

    weights: Weights
    metrics: Mapping[str, float] = field(default_factory=dict)
    checkpoint: Any = None


class TrajectoryState(StrEnum):
    """Where a stored trajectory is."""

    RECORDED = "recorded"
    """It ended; its group is open."""
    ELIGIBLE = "eligible"
    """Its group is complete and may be trained on."""
    LEASED = "leased"
    """It is in the batch of an update that has not finished."""
    TRAINED = "trained"
    """It is part of a finished update."""
    DROPPED = "dropped"
    """It is not trained on, for a reason."""


WAITING = (TrajectoryState.RECORDED, TrajectoryState.ELIGIBLE)
"""States of what no update has taken."""
LIVE = (*WAITING, TrajectoryState.LEASED)
"""States that are not the last one."""


class SuccessSource(StrEnum):
    """Where a stored success comes from."""

    COLLECTED = "collected"
    """From before the run: an oracle, another model, a recorded run (``curation.pool.file``)."""
    ONLINE = "online"
    """From an attempt of this run."""


@dataclass(slots=True, kw_only=True)
class StoredSuccess:
    """One stored success.

    Attributes:
        trajectory: It, with the log-probabilities of the policy that made it.
        origin: Where it comes from.
        stored: Loop time at which it was stored, seconds.
        uses: Groups it was put into.
    """

    trajectory: Trajectory
    origin: SuccessSource
    stored: float
    uses: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """Where a store that was interrupted stands once it has recovered.

    Attributes:
        update: Finished updates.
        version: What the last of them made; 0 if there is none.
        checkpoint: Folder of the checkpoint that contains exactly these updates; None: the learner starts anew, or has
            none.
        returned: Attempts whose lease ended.
        undone: Updates that no checkpoint contains.
        torn: Why checkpoints that had a transaction could not be used, newest first; each is lost work.
        removed: Checkpoint folders that were removed.
        orphans: Screenshots without a row that were removed.
    """

    update: int
    version: Version
    checkpoint: Path | None = None
    returned: tuple[int, ...] = ()
    undone: tuple[int, ...] = ()
    torn: tuple[str, ...] = ()
    removed: tuple[Path, ...] = ()
    orphans: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """What a store returns of an interrupted run, beside its documents.

    Attributes:
        version: The newest weights that are left.
        trajectories: Those that may still be trained on, and those of the success pool, by attempt.
        live: Attempts of the store that are neither trained nor dropped.
        untrained: Attempts of updates that no checkpoint contains, with the update; they may be trained again.
        successes: The success pool, in the order in which it was filled.
    """

    version: Version
    trajectories: Mapping[int, Trajectory] = field(default_factory=dict)
    live: frozenset[int] = frozenset()
    untrained: Mapping[int, int] = field(default_factory=dict)
    successes: Sequence[StoredSuccess] = ()
