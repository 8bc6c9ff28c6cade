"""Which tasks reward an agent that does nothing: they teach it to do nothing."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from dartsim.core.errors import ConfigError, EnvFault, ScoreUnavailable
from dartsim.core.ports import EnvProvider
from dartsim.core.types import Task
from dartsim.envs.base import is_infeasible
from dartsim.real.desktop.tasks.playing import do_nothing

logger = logging.getLogger(__name__)


async def worth_training(provider: EnvProvider, tasks: Sequence[Task], *, exclude: bool, slots: int) -> Sequence[Task]:
    """Report the tasks that score above 0 if nothing is done, and return those to train on.

    Each task is set up once. One that cannot be set up or scored is kept: the run itself will show that.

    Raises:
        ConfigError: If none is left.
    """
    free: dict[str, float] = {}
    left = iter([task for task in tasks if not is_infeasible(task)])

    async def try_some(slot: int) -> None:
        for task in left:
            try:
                score = await do_nothing(provider, task, slot=slot)
            except (EnvFault, ScoreUnavailable) as fault:
                logger.warning("task %s could not be tried without an action: %s", task.id, fault)
                continue
            if score > 0.0:
                free[task.id] = score

    await asyncio.gather(*map(try_some, range(slots)))
    for name, score in sorted(free.items()):
        logger.warning("task %s scores %g if nothing is done%s", name, score, "; it is left out" if exclude else "")
    if not exclude or not free:
        return tasks
    if len(free) == len(tasks):
        raise ConfigError("every task scores above 0 if nothing is done: there is nothing to train on")
    return [task for task in tasks if task.id not in free]
