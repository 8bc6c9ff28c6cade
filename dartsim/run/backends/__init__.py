"""Backends, which provide a run's desktops, engines and learner. To add one, add a module here.

A module imports heavy libraries only when it starts a component, because it is loaded whenever a configuration is read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from dartsim.config.sections.backend import Backend, Desktops, Engines
from dartsim.core.errors import ConfigError
from dartsim.core.ports import EnvProvider, Learner, PolicyWorker
from dartsim.core.registry import component
from dartsim.core.types import Task

if TYPE_CHECKING:
    from dartsim.config import Config
    from dartsim.core.rng import Streams
    from dartsim.core.types import Version
    from dartsim.observe.timings import Timings
    from dartsim.run.model import ServedModel, TrainedModel
    from dartsim.run.prepared_run import PreparedRun
    from dartsim.sim import SimEnvironment
    from dartsim.sim.control_loop import ControlLoop


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendContext:
    """The arguments of a backend's ``open``."""

    prepared: PreparedRun
    world: SimEnvironment
    streams: Streams
    version: Version
    stack: AsyncExitStack
    optional_model: ServedModel | None = None
    timings: Timings | None = None
    folder: Path | None = None
    control: ControlLoop | None = None
    """The modeled event loop of the driver, if it takes time."""
    on_step: Callable[[str, int, int], None] | None = None

    @property
    def model(self) -> ServedModel:
        """The model that acts.

        Raises:
            ConfigError: If there is none.
        """
        if self.optional_model is None:
            raise ConfigError('real engines and learners need a model: set policy.kind = "vlm"')
        return self.optional_model

    @property
    def learning(self) -> TrainedModel:
        return cast("TrainedModel", self.model)

    @property
    def on_call(self) -> Callable[[int, str, float], None] | None:
        """Called with the slot, the call on its desktop, and its duration in seconds."""
        return self.timings.desktop if self.timings else None


class DesktopBackend(Desktops):
    """Provides desktops."""

    def memory_gib(self, config: Config) -> tuple[Sequence[float], float] | None:
        """Return the memory of each host of desktops and of one desktop, GiB; None if unknown."""
        return None

    def supported(self, config: Config, tasks: Sequence[Task]) -> Sequence[Task]:
        """Return the tasks that can be set up and scored; ``tasks.unsupported`` says what to do about the others."""
        return tasks

    def check_hosts(self, config: Config) -> None:
        """Check that desktops can be started anywhere, before any work is done.

        Raises:
            EnvStartFailed: If no host answers.
            ConfigError: If the image is missing.
        """

    async def open(self, context: BackendContext) -> EnvProvider:
        config, tasks = context.prepared.config, context.prepared.tasks
        opening = self.open_here(config, tasks, context.on_call, folder=context.folder)
        return await context.stack.enter_async_context(opening)

    def open_here(
        self, config: Config, tasks: Sequence[Task], on_call: Any = None, *, folder: Path | None = None
    ) -> AbstractAsyncContextManager[EnvProvider]:
        """Provide this machine's desktops, or a Ray node's; ``folder`` is the run's, None keeps nothing."""
        raise NotImplementedError


class EngineBackend(Engines):
    """Provides inference engines."""

    async def open(self, context: BackendContext) -> Sequence[PolicyWorker]:
        raise NotImplementedError


class LearnerBackend(Backend):
    """Provides what trains."""

    def open(self, context: BackendContext) -> Learner:
        raise NotImplementedError

    def train(self, config: Config, vlm: Any, **options: Any) -> Any:
        """Return the object that trains a model."""
        raise NotImplementedError


def desktop_backend(config: Config) -> DesktopBackend:
    """Return what provides the configured desktops."""
    return cast(DesktopBackend, component("desktops", config.backend.desktops))


def engine_backend(config: Config) -> EngineBackend:
    """Return what provides the configured engines."""
    return cast(EngineBackend, component("engine", config.backend.workers))


def learner_backend(config: Config) -> LearnerBackend:
    """Return what provides the configured learner."""
    return cast(LearnerBackend, component("learner", config.backend.learner))
