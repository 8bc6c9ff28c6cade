"""Which parts are real, and where each kind of desktop is built."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Literal, NamedTuple

from pydantic import Field

from dartsim.core.section import Section


class DesktopBackend(NamedTuple):
    """Desktops that a configuration can choose by name."""

    module: str
    """Has ``open_desktops(config, tasks, on_call)``, which provides them for the length of a run."""
    plan: str | None = None
    """Has ``desktop_plan(config)``, what would start for a dry run; None: nothing but this process."""
    task_sources: tuple[str, ...] | None = None
    """Values of ``tasks.source`` that they can show; None: all."""
    booted: bool = False
    """Whether they are booted, so that an attempt costs minutes rather than milliseconds."""

    def opener(self) -> Callable[..., Any]:
        """Return ``open_desktops``; its module is imported only now, and may need an extra."""
        return import_module(self.module).open_desktops  # type: ignore[no-any-return]

    def planner(self) -> Callable[[Any], dict[str, Any]] | None:
        """Return ``desktop_plan``."""
        return None if self.plan is None else import_module(self.plan).desktop_plan


_CONTAINERS = DesktopBackend("dartsim.real.osworld.backend", plan="dartsim.real.containers.plan", booted=True)

DESKTOPS: Mapping[str, DesktopBackend] = {
    "sim": DesktopBackend("dartsim.run.sim_cluster"),
    "mock": DesktopBackend("dartsim.envs.mock.env", task_sources=("mock",)),
    "desktop": _CONTAINERS._replace(task_sources=("desktop", "osworld")),
    "osworld": _CONTAINERS._replace(task_sources=("osworld",)),
}
"""Every value of ``backend.desktops``. Modelled desktops need the simulated cluster, and are opened by the run."""


class BackendConfig(Section):
    """Which parts exist, and which are modelled."""

    desktops: Literal["sim", "mock", "desktop", "osworld"] = Field(
        "sim",
        description="Modelled; the mock desktop as fast as it is; containers of our desktop image; OSWorld's image.",
    )
    workers: Literal["sim", "local", "vllm"] = Field(
        "sim", description="Modelled; the model in threads of this process; vLLM servers."
    )
    learner: Literal["sim", "local", "fsdp"] = Field(
        "sim", description="With modelled time; as fast as it is, in this process; or in several (trainer.fsdp)."
    )
    real_time: bool = Field(False, description="By the machine's clock, although every part is modelled.")

    @property
    def virtual(self) -> bool:
        """Whether the run's time is virtual: nothing in it takes real time."""
        return not self.real_time and {self.desktops, self.workers, self.learner} == {"sim"}

    @property
    def boots(self) -> bool:
        """Whether desktops are booted, so that an attempt costs minutes rather than milliseconds."""
        return DESKTOPS[self.desktops].booted
