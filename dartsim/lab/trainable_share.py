"""Which share of what is generated curation may train on, in closed form: group filter, group sizes, task filter.

A group in which all succeed or all fail is dropped. A task filter passes such tasks over, once it has seen them: not in
the first pass over the tasks, so that what it is worth depends on how many groups a run makes.

Left out: stored successes save groups only once there are some; turn limits that a task's successes shorten;
``curation.attempts.extra_attempts``, because where desktops or engines limit a run no slot waits to make any.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from math import ceil

from dartsim.run.prepare import PreparedRun
from dartsim.run.results import chance, group_size, kept_chance

MOST_PASSES = 500
"""Passes over the tasks that are followed one by one; every one after them is like the last."""


@dataclass(frozen=True, slots=True)
class OneTask:
    """What a task is to curation.

    Attributes:
        size: Attempts of a group.
        turns: Mean of an attempt.
        kept: Chance that the group filter keeps a group.
        skipped: Chance that the task filter, once it judges, leaves the task out.
        unjudged: Groups before it judges.
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
    made = kept = trajectories = begun = 0.0
    for number in count(1):
        offered = [life.next_pass() for life in lives]
        last = begun + sum(offered)
        counts = max(0.0, min(last, groups) - max(begun, first)) / (last - begun) if groups else 1.0
        if number == MOST_PASSES and groups > last:
            counts += (groups - last) / (last - begun)
        for share, task in zip(offered, tasks, strict=True):
            attempts = counts * share * task.size
            trajectories += attempts
            made += attempts * task.turns
            kept += attempts * task.turns * task.kept
        begun = last
        if begun >= groups or number == MOST_PASSES:
            break
    return made / trajectories, kept / made


def one_task(prepared: PreparedRun, rate: float, length_factor: float) -> OneTask:
    """Return what a task of this success rate is to curation."""
    curation, surrogate = prepared.config.curation, prepared.config.surrogate
    size, rule = group_size(prepared, rate), curation.task_filter
    mean = rate * surrogate.success_turns_mean + (1.0 - rate) * surrogate.failure_turns_mean
    return OneTask(
        size=size,
        turns=min(mean * length_factor, float(prepared.config.rollout.max_turns)),
        kept=kept_chance(prepared, rate),
        skipped=chance(rate, rule.window, lambda mean: mean > rule.max_mean or mean < rule.min_mean),
        unjudged=ceil(rule.window / size) - 1,
    )


class _TaskLife:
    """How likely a task is to be offered, pass after pass over all tasks.

    It is new (so many groups unjudged), or judged well, or passed over and comes back as new. That the rewards of two
    judgements overlap, where a window is longer than a group, is left out.
    """

    def __init__(self, task: OneTask, revisit_after: int | None) -> None:
        self._task = task
        self._revisit_after = revisit_after
        self._new = [1.0, *(0.0 for _ in range(task.unjudged))]
        """Chance of each number of groups since it was new; the last one's are judged, and so is each one after."""
        self._left_out: list[float] = []
        """Chance of having been left out, by how long ago; the longest ago first."""

    def next_pass(self) -> float:
        """Return the chance that it is offered in the next pass."""
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
