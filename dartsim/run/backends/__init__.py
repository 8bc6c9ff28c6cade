"""Backends, which provide a run's desktops, engines and learner. To add one, add a module here.

A module imports heavy libraries only when it starts a component, because it is loaded whenever a configuration is read.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

from dartsim.core.errors import ConfigError

if TYPE_CHECKING:
    from dartsim.core.rng import Streams
    from dartsim.core.types import Version
    from dartsim.observe.timings import Timings
    from dartsim.run.learning import Learning
    from dartsim.run.prepare import PreparedRun
    from dartsim.run.served_model import ServedModel
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
    def learning(self) -> Learning:
        return cast("Learning", self.model)

    @property
    def on_call(self) -> Callable[[int, str, float], None] | None:
        """Called with the slot, the call on its desktop, and its duration in seconds."""
        return self.timings.desktop if self.timings else None
