"""Attempts of given actions on real desktops, and tasks that are solved by doing nothing (it would be learned)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dartsim.core.errors import ConfigError, EnvFault, ScoreUnavailable
from dartsim.core.ports import EnvProvider
from dartsim.core.types import Task
from dartsim.envs.base import DONE, WAIT, is_infeasible

logger = logging.getLogger(__name__)

PATIENCE = 2
"""WAITs after an action that has not changed the screen."""
STILL_PIXELS = 100
"""Pixels that may differ on a screen that has not changed."""


@dataclass(frozen=True, slots=True)
class ScriptedAttempt:
    """One attempt of given actions."""

    score: float
    seconds: float
    frames: tuple[Any, ...]
    actions: tuple[str, ...]


async def play(provider: EnvProvider, task: Task, actions: Sequence[str], *, slot: int = 0) -> ScriptedAttempt:
    """Start a desktop, set up the task, carry out the actions, and score the result.

    Like a person, it waits a moment if an action has not changed the screen: a busy machine is slow to open a window.
    These WAITs are among the returned actions.
    """
    loop = asyncio.get_running_loop()
    begun = loop.time()
    desktop = await provider.start(slot)
    try:
        frames = [np.asarray((await desktop.reset(task, seed=0)).screenshot)]
        done: list[str] = []
        for action in actions:
            for step in (action, *[WAIT] * PATIENCE):
                after = await desktop.step(step)
                done.append(step)
                frames.append(np.asarray(after.observation.screenshot))
                if after.over or action == WAIT or _changed(frames[-2], frames[-1]):
                    break
        score = await desktop.evaluate()
    finally:
        await desktop.close()
    return ScriptedAttempt(score, loop.time() - begun, tuple(frames), tuple(done))


def _changed(before: Any, after: Any) -> bool:
    """Return whether more than a caret has changed."""
    return int(np.count_nonzero((before != after).any(axis=-1))) > STILL_PIXELS


async def do_nothing(provider: EnvProvider, task: Task, *, slot: int = 0) -> float:
    """Return the higher of two scores: without any action, and with DONE as the first action."""
    desktop = await provider.start(slot)
    try:
        await desktop.reset(task, seed=0)
        untouched = await desktop.evaluate()
        await desktop.step(DONE)
        return max(untouched, await desktop.evaluate())
    finally:
        await desktop.close()


async def trainable_tasks(provider: EnvProvider, tasks: Sequence[Task], *, exclude: bool, slots: int) -> Sequence[Task]:
    """Report the tasks that score above 0 if nothing is done, and return those to train on.

    Each task is set up once. A task that cannot be set up or scored stays, because the run itself reports that.

    Raises:
        ConfigError: If none is left.
    """
    score_without_action: dict[str, float] = {}
    left = iter([task for task in tasks if not is_infeasible(task)])

    async def try_some(slot: int) -> None:
        for task in left:
            try:
                score = await do_nothing(provider, task, slot=slot)
            except (EnvFault, ScoreUnavailable) as fault:
                logger.warning("task %s could not be tried without an action: %s", task.id, fault)
                continue
            if score > 0.0:
                score_without_action[task.id] = score

    await asyncio.gather(*map(try_some, range(slots)))
    for name, score in sorted(score_without_action.items()):
        logger.warning("task %s scores %g if nothing is done%s", name, score, "; it is left out" if exclude else "")
    if not exclude or not score_without_action:
        return tasks
    if len(score_without_action) == len(tasks):
        raise ConfigError("every task scores above 0 if nothing is done: there is nothing to train on")
    return [task for task in tasks if task.id not in score_without_action]
