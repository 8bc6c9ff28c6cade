"""Attempts at tasks without a cluster, for evaluation, demonstrations and tests: one batch of requests a turn."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from dartsim.core.ports import ContentModel
from dartsim.core.types import Attempt, Ending, Observation, Reply, Request, Task, Trajectory, Turn, Version
from dartsim.envs.base import DONE, FAIL, GuiEnv


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOutRewards:
    """The rewards of one version on held-out tasks; masked attempts have none."""

    version: Version
    rewards: Mapping[str, Sequence[float]]

    @classmethod
    def of(cls, version: Version, trajectories: Iterable[Trajectory]) -> HeldOutRewards:
        rewards: dict[str, list[float]] = {}
        for trajectory in trajectories:
            if trajectory.reward is not None:
                rewards.setdefault(trajectory.attempt.task.id, []).append(trajectory.reward)
        return cls(version=version, rewards=rewards)

    def task_means(self) -> dict[str, float]:
        """Return the mean reward of each task that has an unmasked attempt."""
        return {task: sum(rs) / len(rs) for task, rs in self.rewards.items() if rs}

    @property
    def mean(self) -> float | None:
        """Mean over tasks of their mean rewards; None without tasks."""
        means = self.task_means().values()
        return sum(means) / len(means) if means else None


def play(
    answers: ContentModel,
    desktops: Sequence[GuiEnv],
    attempts: Sequence[Attempt],
    *,
    version: Version,
    act: Callable[[str], str] | None = None,
) -> list[Trajectory]:
    """Play attempts to their ends, as many at once as there are desktops.

    ``act`` turns the policy's text into the desktop's action; by default they are equal.
    """
    trajectories: list[Trajectory] = []
    for first in range(0, len(attempts), len(desktops)):
        trajectories.extend(_play_at_once(answers, desktops, attempts[first : first + len(desktops)], version, act))
    return trajectories


def _play_at_once(
    answers: ContentModel,
    desktops: Sequence[GuiEnv],
    attempts: Sequence[Attempt],
    version: Version,
    act: Callable[[str], str] | None,
) -> list[Trajectory]:
    observations: list[Observation] = []
    turns: list[list[Turn]] = [[] for _ in attempts]
    endings = [Ending.TURN_LIMIT] * len(attempts)
    for desktop, attempt in zip(desktops, attempts, strict=False):
        desktop.begin(attempt.task, attempt.seed)
        observations.append(desktop.observe())
    live = list(range(len(attempts)))
    while live:
        requests = [Request(attempts[i], len(turns[i]), observations[i], turns[i]) for i in live]
        going = []
        for i, content in zip(live, answers.compute(requests, version), strict=True):
            count = len(content.tokens)
            reply = Reply(content.action, version, version, 0, 0, count, *content[1:])
            turns[i].append(Turn(observations[i], reply))
            action = content.action if act is None else act(content.action)
            over = desktops[i].act(action)
            if over:
                endings[i] = {DONE: Ending.DONE, FAIL: Ending.FAIL}.get(action, Ending.DONE)
            elif len(turns[i]) < attempts[i].turn_limit:
                observations[i] = desktops[i].observe()
                going.append(i)
        live = going
    return [
        Trajectory(attempt, tuple(turns[i]), endings[i], desktops[i].evaluate(), None, 0.0, 0.0)
        for i, attempt in enumerate(attempts)
    ]


def attempts_at(
    tasks: Sequence[Task], attempts: int, *, version: Version, turn_limit: int, seed: int = 0
) -> list[Attempt]:
    """Return ``attempts`` attempts at each task, numbered from 0."""
    pairs = [(number, task, index) for number, task in enumerate(tasks) for index in range(attempts)]
    return [
        Attempt(id, task, number, index, seed * 1_000_003 + id, turn_limit, version)
        for id, (number, task, index) in enumerate(pairs)
    ]


def evaluate(
    answers: ContentModel,
    desktops: Sequence[GuiEnv],
    tasks: Sequence[Task],
    *,
    version: Version,
    turn_limit: int,
    attempts: int = 1,
    seed: int = 0,
    act: Callable[[str], str] | None = None,
) -> HeldOutRewards:
    """Evaluate a version on tasks, each attempted ``attempts`` times."""
    tried = attempts_at(tasks, attempts, version=version, turn_limit=turn_limit, seed=seed)
    return HeldOutRewards.of(version, play(answers, desktops, tried, version=version, act=act))
