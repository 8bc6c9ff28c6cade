"""What travels between the modules: tasks, attempts, turns, trajectories, batches, weights.

All values are immutable. Those made once per turn (``Observation``, ``Request``, ``Reply``, ``Turn``) are
named tuples, because a frozen dataclass costs about four times as much to make; the others are frozen,
slotted dataclasses.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
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
