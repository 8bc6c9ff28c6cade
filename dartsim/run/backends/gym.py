"""Any gymnasium environment with a screen as the desktops of a run in real time.

In virtual time, modeled desktops show the same environment: ``tasks.source = "gym"`` with ``backend.desktops = "sim"``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from dartsim.core.ports import EnvProvider
from dartsim.core.registry import register
from dartsim.core.types import Task
from dartsim.run.backends import DesktopBackend

if TYPE_CHECKING:
    from dartsim.config import Config


@register("desktops", "gym")
class GymDesktops(DesktopBackend):
    """Gymnasium environments, in threads or processes of this machine."""

    task_sources = ("gym",)

    @override
    def plan(self, config: Config) -> dict[str, Any]:
        gym = config.gym
        where = "in the event loop" if gym.run_in == "loop" else f"in {gym.run_in} of their own"
        return {"what": f"{config.rollout.num_desktops} of {gym.env}, {where}"}

    @override
    @asynccontextmanager
    async def open_here(
        self, config: Config, tasks: Sequence[Task], on_call: Any = None, *, folder: Path | None = None
    ) -> AsyncIterator[EnvProvider]:
        from dartsim.envs.direct import DirectProvider
        from dartsim.envs.gym import gym_desktop_maker
        from dartsim.real.gym import ProcessDesktop, ThreadedProvider

        make = gym_desktop_maker(config.gym, config.policy)
        if config.gym.run_in == "loop":
            yield DirectProvider(make)
        elif config.gym.run_in == "processes":
            yield ThreadedProvider(partial(ProcessDesktop, make))
        else:
            yield ThreadedProvider(make)
