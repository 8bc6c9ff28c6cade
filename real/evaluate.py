"""Attempts at tasks without a cluster: all desktops in lock-step, one batch of requests a turn.

For evaluation on held-out tasks, for collecting trajectories, and for learning without a scheduler.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from dartsim.core.types import Attempt, Content, Ending, Observation, Reply, Request, Task, Trajectory, Turn, Version
from dartsim.envs.base import DONE, FAIL, GuiEnv


class Answers(Protocol):
    """What answers requests, such as ``VlmPolicy``."""

    def compute(self, requests: Sequence[Request], version: Version) -> list[Content]:
        """Answer requests with the weights of a version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyEvaluation:
    """How well a version did.

    Attributes:
        version: The weights.
        scores: For each task its attempts' rewards.
    """

    version: Version
    scores: dict[str, tuple[float, ...]]

    @property
    def success_rate(self) -> float:
        """Mean reward over tasks."""
        return float(np.mean([np.mean(rewards) for rewards in self.scores.values()]))

    @property
    def standard_error(self) -> float:
        """Of ``success_rate``, over tasks."""
        means = [float(np.mean(rewards)) for rewards in self.scores.values()]
        return float(np.std(means, ddof=1) / len(means) ** 0.5) if len(means) > 1 else 0.0


def play(
    answers: Answers,
    desktops: Sequence[GuiEnv],
    attempts: Sequence[Attempt],
    *,
    version: Version,
    act: Callable[[str], str] | None = None,
) -> list[Trajectory]:
    """Play attempts to their ends, as many at once as there are desktops.

    Args:
        answers: The policy.
        desktops: Where; each is reset for its attempt.
        attempts: What is tried.
        version: Weights that act.
        act: Turns the policy's words into the desktop's action; nothing by default.
    """
    played: list[Trajectory] = []
    for first in range(0, len(attempts), len(desktops)):
        played.extend(_wave(answers, desktops, attempts[first : first + len(desktops)], version, act))
    return played


def _wave(
    answers: Answers,
    desktops: Sequence[GuiEnv],
    attempts: Sequence[Attempt],
    version: Version,
    act: Callable[[str], str] | None,
) -> list[Trajectory]:
    seen: list[Observation] = []
    turns: list[list[Turn]] = [[] for _ in attempts]
    endings = [Ending.TURN_LIMIT] * len(attempts)
    for desktop, attempt in zip(desktops, attempts, strict=False):
        desktop.begin(attempt.task, attempt.seed)
        seen.append(desktop.observe())
    live = list(range(len(attempts)))
    while live:
        requests = [Request(attempts[i], len(turns[i]), seen[i], turns[i]) for i in live]
        going = []
        for i, content in zip(live, answers.compute(requests, version), strict=True):
            count = len(content.tokens)
            reply = Reply(content.action, version, version, 0, 0, count, *content[1:])
            turns[i].append(Turn(seen[i], reply))
            action = content.action if act is None else act(content.action)
            over = desktops[i].act(action)
            if over:
                endings[i] = {DONE: Ending.DONE, FAIL: Ending.FAIL}.get(action, Ending.DONE)
            elif len(turns[i]) < attempts[i].turn_limit:
                seen[i] = desktops[i].observe()
                going.append(i)
        live = going
    return [
        Trajectory(attempt, tuple(turns[i]), endings[i], desktops[i].evaluate(), None, 0.0, 0.0)
        for i, attempt in enumerate(attempts)
    ]


def evaluate(
    answers: Answers,
    desktops: Sequence[GuiEnv],
    tasks: Sequence[Task],
    *,
    version: Version,
    turn_limit: int,
    attempts: int = 1,
    seed: int = 0,
    act: Callable[[str], str] | None = None,
) -> PolicyEvaluation:
    """Return how well a version does on tasks, each attempted so many times; for held-out tasks."""
    tried = [
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
    for trajectory in play(answers, desktops, tried, version=version, act=act):
        rewards[trajectory.attempt.task.id].append(trajectory.reward or 0.0)
    return PolicyEvaluation(version=version, scores={task: tuple(values) for task, values in rewards.items()})
