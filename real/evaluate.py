"""Attempts at tasks without a cluster, for evaluation, demonstrations and tests: one batch of requests a turn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from dartsim.core.ports import ContentModel
from dartsim.core.types import Attempt, Ending, Observation, Reply, Request, Task, Trajectory, Turn, Version
from dartsim.envs.base import DONE, FAIL, GuiEnv


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyEvaluation:
    """The scores of a version: for each task its attempts' rewards."""

    version: Version
    scores: dict[str, tuple[float, ...]]

    @property
    def success_rate(self) -> float:
        return float(np.mean([np.mean(rewards) for rewards in self.scores.values()]))


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
) -> PolicyEvaluation:
    """Evaluate a version on tasks, each attempted ``attempts`` times."""
    all_attempts = [
        Attempt(
            number * attempts + index,
            task,
            number,
            index,
            seed * 1_000_003 + number * attempts + index,
            turn_limit,
            version,
        )
        for number, task in enumerate(tasks)
        for index in range(attempts)
    ]
    rewards: dict[str, list[float]] = {task.id: [] for task in tasks}
    for trajectory in play(answers, desktops, all_attempts, version=version, act=act):
        rewards[trajectory.attempt.task.id].append(trajectory.reward or 0.0)
    return PolicyEvaluation(version=version, scores={task: tuple(values) for task, values in rewards.items()})
