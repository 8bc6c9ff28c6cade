"""Any gymnasium environment with a screen as the desktops of a run in real time.

In virtual time, modeled desktops show the same environment: ``tasks.source = "gym"`` with ``backend.desktops = "sim"``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
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
    """Gymnasium environments, each in a thread of its own."""

    task_sources = ("gym",)

    @override
    def plan(self, config: Config) -> dict[str, Any]:
        return {"what": f"{config.rollout.num_desktops} of {config.gym.env}, in threads of their own"}

    @override
    @asynccontextmanager
    async def open_here(
        self, config: Config, tasks: Sequence[Task], on_call: Any = None, *, folder: Path | None = None
    ) -> AsyncIterator[EnvProvider]:
        from dartsim.envs.gym import gym_desktop_maker
        from dartsim.real.gym import ThreadedProvider

        yield ThreadedProvider(gym_desktop_maker(config.gym, config.policy))
