"""Which components are real, and what a configuration knows about each backend."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Annotated, Any, ClassVar

from pydantic import Field

from dartsim.core.ports import EnvProvider, Learner, PolicyWorker
from dartsim.core.registry import Named, NamedComponent, component
from dartsim.core.section import Section


class Backend(NamedComponent):
    """Provides one of a run's components. ``context`` is a ``dartsim.run.backends.BackendContext``."""

    modeled: ClassVar[bool] = False
    """Whether it is modeled and so can run in virtual time."""
    packages: ClassVar[tuple[str, ...]] = ()
    """Packages of the extra `real` that it needs on this machine."""

    def problems(self, config: Any) -> Iterator[str]:
        """Yield one sentence for each reason why it cannot work as configured."""
        return iter(())

    def plan(self, config: Any) -> dict[str, Any]:
        """Return what would be started: a sentence as ``what``, and details."""
        return {"what": self.name}


class DesktopBackend(Backend):
    """Provides desktops, as ``backend.desktops`` names them."""

    task_sources: ClassVar[tuple[str, ...] | None] = None
    """Values of ``tasks.source`` that its desktops support; None: all."""
    boots: ClassVar[bool] = False
    """Whether desktops are booted, so that an attempt costs minutes rather than milliseconds."""

    no_states: ClassVar[str] = "a gymnasium environment cannot be copied"
    """Why its desktops cannot save their states, if they cannot."""

    def saves_states(self, config: Any) -> bool:
        """Return whether its desktops provide ``dartsim.core.snapshots.Snapshots``."""
        return False

    def reverts(self, config: Any) -> bool:
        """Return whether its desktops revert to saved states between attempts instead of booting."""
        return config.desktop.revert != "boot" and self.saves_states(config)

    def memory_gib(self, config: Any) -> tuple[Sequence[float], float] | None:
        """Return the memory of each host of desktops and of one desktop, GiB; None if unknown."""
        return None

    def supported(self, config: Any, tasks: Sequence[Any]) -> Sequence[Any]:
        """Return the tasks that can be set up and scored; ``tasks.unsupported`` says what to do about the others."""
        return tasks

    def check_hosts(self, config: Any) -> None:
        """Check that desktops can be started anywhere, before any work is done.

        Raises:
            EnvStartFailed: If no host answers.
            ConfigError: If the image is missing.
        """

    async def open(self, context: Any) -> EnvProvider:
        config, tasks = context.prepared.config, context.prepared.tasks
        opening = self.open_here(config, tasks, context.on_call, folder=context.folder)
        provider: EnvProvider = await context.stack.enter_async_context(opening)
        return provider

    def open_here(
        self, config: Any, tasks: Sequence[Any], on_call: Any = None, *, folder: Any = None
    ) -> AbstractAsyncContextManager[Any]:
        """Provide this machine's desktops, or a Ray node's; ``folder`` is the run's, None keeps nothing."""
        raise NotImplementedError


class EngineBackend(Backend):
    """Provides inference engines, as ``backend.workers`` names them."""

    loads_weights: ClassVar[bool] = True
    """Whether engines load the weights that a run trains, rather than serve a fixed model."""

    async def open(self, context: Any) -> Sequence[PolicyWorker]:
        raise NotImplementedError


class LearnerBackend(Backend):
    """Provides what trains, as ``backend.learner`` names it."""

    starts_processes: ClassVar[bool] = False
    """Whether it starts other processes for training."""

    def open(self, context: Any) -> Learner:
        raise NotImplementedError

    def train(self, config: Any, vlm: Any, **options: Any) -> Any:
        """Return the object that trains a model."""
        raise NotImplementedError


class BackendConfig(Section):
    """Which components exist, and which are modeled."""

    desktops: Annotated[str, Named("desktops")] = Field(
        "sim",
        description="Kind of desktop: sim (modeled), mock (the mock desktop), desktop (containers of our image), "
        "osworld (OSWorld's virtual machines), gym (gymnasium environments).",
    )
    workers: Annotated[str, Named("engine")] = Field(
        "sim",
        description="Kind of engine: sim (modeled), local (the model in threads of this process), vllm (vLLM servers), "
        "endpoint (somebody else's model, for `dartsim eval`).",
    )
    learner: Annotated[str, Named("learner")] = Field(
        "sim",
        description="Kind of learner: sim (modeled), local (this process), fsdp (several processes, see trainer.fsdp).",
    )
    real_time: bool = Field(False, description="Run in real time even if every component is modeled.")

    @property
    def desktop_backend(self) -> DesktopBackend:
        backend: DesktopBackend = component("desktops", self.desktops)
        return backend

    @property
    def engine_backend(self) -> EngineBackend:
        backend: EngineBackend = component("engine", self.workers)
        return backend

    @property
    def learner_backend(self) -> LearnerBackend:
        backend: LearnerBackend = component("learner", self.learner)
        return backend

    @property
    def parts(self) -> tuple[DesktopBackend, EngineBackend, LearnerBackend]:
        return self.desktop_backend, self.engine_backend, self.learner_backend

    @property
    def modeled(self) -> bool:
        return all(backend.modeled for backend in self.parts)

    @property
    def virtual(self) -> bool:
        """Whether the run's time is virtual: nothing in it takes real time."""
        return self.modeled and not self.real_time

    @property
    def boots(self) -> bool:
        """Whether desktops are booted, so that an attempt costs minutes rather than milliseconds."""
        return self.desktop_backend.boots
