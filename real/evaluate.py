"""Attempts at tasks without a cluster, for evaluation, demonstrations and tests: one batch of requests a turn."""

from __future__ import annotations

from collections.abc import Sequence

from dartsim.core.ports import ContentModel
from dartsim.core.rewards import task_means
from dartsim.core.types import Attempt, Ending, Observation, Reply, Request, Task, Trajectory, Turn, Turns, Version
from dartsim.envs.base import FAIL, GuiEnv


def play(
    answers: ContentModel,
    desktops: Sequence[GuiEnv],
    attempts: Sequence[Attempt],
    *,
    version: Version,
) -> list[Trajectory]:
    """Play attempts to their ends, as many at once as there are desktops."""
    trajectories: list[Trajectory] = []
    for first in range(0, len(attempts), len(desktops)):
        trajectories.extend(_play_at_once(answers, desktops, attempts[first : first + len(desktops)], version))
    return trajectories


def _play_at_once(
    answers: ContentModel,
    desktops: Sequence[GuiEnv],
    attempts: Sequence[Attempt],
    version: Version,
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
            if desktops[i].act(content.action):
                endings[i] = Ending.FAIL if content.action == FAIL else Ending.DONE
            elif len(turns[i]) < attempts[i].turn_limit:
                observations[i] = desktops[i].observe()
                going.append(i)
        live = going
    return [
        Trajectory(attempt, Turns(turns[i]), endings[i], desktops[i].evaluate(), None, 0.0, 0.0)
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
) -> dict[str, float]:
    """Return the mean reward of each task in ``attempts`` attempts of a version."""
    pairs = [(number, task, index) for number, task in enumerate(tasks) for index in range(attempts)]
    tried = [
        Attempt(id, task, number, index, seed * 1_000_003 + id, turn_limit, version)
        for id, (number, task, index) in enumerate(pairs)
    ]
    played = play(answers, desktops, tried, version=version)
    return task_means((trajectory.attempt.task.id, trajectory.reward) for trajectory in played)
