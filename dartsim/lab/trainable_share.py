"""What is trained, in closed form: the share of generated turns by group filter, group sizes and task filter; tokens.

A group in which all attempts succeed or all fail is dropped. A task filter skips such tasks, but only after the first
pass over the tasks, so that its effect depends on the number of groups in a run.

Ignored: stored successes, and turn limits that successes shorten.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from math import ceil
from statistics import fmean

from dartsim.lab.operations import surrogate_lengths
from dartsim.run.prepare import PreparedRun
from dartsim.run.results import chance, group_size, kept_chance

MOST_PASSES = 500
"""Simulated passes over the tasks; later ones are like the last."""


@dataclass(frozen=True, slots=True)
class OneTask:
    """A task in curation.

    Attributes:
        size: Attempts of a group.
        turns: Mean turns of an attempt.
        kept: Probability that the group filter keeps a group.
        skipped: Probability that the task filter skips the task, once it judges it.
        unjudged: Groups before the filter judges it.
    """

    size: int
    turns: float
    kept: float
    skipped: float
    unjudged: int


def workload(prepared: PreparedRun, groups: float = 0.0) -> tuple[float, float]:
    """Return the mean turns of a trajectory, and the share of turns whose group is not dropped for its rewards.

    Args:
        prepared: The configuration and what it names.
        groups: How many a run makes; those of its warm-up do not count. 0: as if no task had been seen before.
    """
    tasks = [one_task(prepared, known.success_rate, known.length_factor) for known in prepared.difficulties.values()]
    if not tasks:
        return prepared.config.surrogate.failure_turns_mean, 1.0
    first = groups * prepared.config.run.warmup_share
    lives = [_TaskLife(task, prepared.config.curation.task_filter.revisit_after) for task in tasks]
    turns = kept_turns = trajectories = begun = 0.0
    for number in count(1):
        offered = [life.next_pass() for life in lives]
        last = begun + sum(offered)
        counts = max(0.0, min(last, groups) - max(begun, first)) / (last - begun) if groups else 1.0
        if number == MOST_PASSES and groups > last:
            counts += (groups - last) / (last - begun)
        for share, task in zip(offered, tasks, strict=True):
            attempts = counts * share * task.size
            trajectories += attempts
            turns += attempts * task.turns
            kept_turns += attempts * task.turns * task.kept
        begun = last
        if begun >= groups or number == MOST_PASSES:
            break
    return turns / trajectories, kept_turns / turns


def tokens_per_turn(prepared: PreparedRun) -> float:
    """Return the mean tokens that an update computes per turn, over groups of drawn lengths."""
    config, known = prepared.config, prepared.difficulties.values()
    rate = fmean(task.success_rate for task in known) if known else 0.0
    num_turns = surrogate_lengths(config.surrogate, success_rate=rate, max_turns=config.rollout.max_turns)
    groups = max(1, len(num_turns) // config.curation.attempts.group_size)
    tokens = sum(prepared.update_tokens.of_group(num_turns[number::groups]) for number in range(groups))
    return tokens / sum(num_turns)


def one_task(prepared: PreparedRun, rate: float, length_factor: float) -> OneTask:
    """Return a task with this success rate."""
    curation, surrogate = prepared.config.curation, prepared.config.surrogate
    size, rule = group_size(prepared, rate), curation.task_filter
    # With a pool no task is too hard of which a success is stored; ``kept_chance`` takes it that one is.
    min_mean = 0.0 if curation.pool.enabled else rule.min_mean
    mean = rate * surrogate.success_turns_mean + (1.0 - rate) * surrogate.failure_turns_mean
    return OneTask(
        size=size,
        turns=min(mean * length_factor, float(prepared.config.rollout.max_turns)),
        kept=kept_chance(prepared, rate),
        skipped=chance(rate, rule.window, lambda mean: mean > rule.max_mean or mean < min_mean),
        unjudged=ceil(rule.window / size) - 1,
    )


class _TaskLife:
    """The probability that a task is offered, pass after pass over all tasks.

    It is new (some groups unjudged), accepted, or skipped until it returns as new. Overlapping windows of two judgments
    are ignored.
    """

    def __init__(self, task: OneTask, revisit_after: int | None) -> None:
        self._task = task
        self._revisit_after = revisit_after
        self._new = [1.0, *(0.0 for _ in range(task.unjudged))]
        """Probability of each number of groups since it was new; the filter judges from the last one on."""
        self._left_out: list[float] = []
        """Probability that it was skipped in each earlier pass, the oldest first."""

    def next_pass(self) -> float:
        """Return the probability that it is offered in the next pass."""
        back = 0.0
        if self._revisit_after is not None and len(self._left_out) > self._revisit_after:
            back = self._left_out.pop(0)
        new = self._new
        new[0] += back
        offered = sum(new)
        skipped = new[-1] * self._task.skipped
        stays = new[-1] - skipped
        self._new = [0.0, *new[:-1]]
        self._new[-1] += stays
        self._left_out.append(skipped)
        return offered
