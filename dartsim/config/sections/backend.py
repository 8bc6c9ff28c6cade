"""Which components are real, and what a configuration has to know about each backend."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, ClassVar

from pydantic import Field

from dartsim.core.registry import Named, NamedComponent, component
from dartsim.core.section import Section

Whole = Any
"""A ``Config``, which has this file's section and so cannot be imported here."""


class Backend(NamedComponent):
    """What is known of a backend before anything starts; ``dartsim.run.backends`` starts it."""

    modeled: ClassVar[bool] = False
    """Whether it is modeled and so can run in virtual time."""
    packages: ClassVar[tuple[str, ...]] = ()
    """Packages of the extra `real` that it needs on this machine."""

    def problems(self, config: Whole) -> Iterator[str]:
        """Yield one sentence for each reason why it cannot work as configured."""
        return iter(())

    def plan(self, config: Whole) -> dict[str, Any]:
        """Return what would be started: a sentence as ``what``, and details."""
        return {"what": self.name}


class Desktops(Backend):
    """A kind of desktop, as ``backend.desktops`` names it."""

    task_sources: ClassVar[tuple[str, ...] | None] = None
    """Values of ``tasks.source`` that its desktops support; None: all."""
    boots: ClassVar[bool] = False
    """Whether desktops are booted, so that an attempt costs minutes rather than milliseconds."""
    no_states: ClassVar[str] = "a gymnasium environment cannot be copied"
    """Why its desktops cannot save their states, if they cannot."""

    def saves_states(self, config: Whole) -> bool:
        """Return whether its desktops provide ``dartsim.core.snapshots.Snapshots``."""
        return False

    def reverts(self, config: Whole) -> bool:
        """Return whether its desktops revert to saved states between attempts instead of booting."""
        return bool(config.desktop.revert != "boot" and self.saves_states(config))


class Engines(Backend):
    """A kind of inference engine, as ``backend.workers`` names it."""

    loads_weights: ClassVar[bool] = True
    """Whether engines load the weights that a run trains, rather than serve a fixed model."""
    can_release: ClassVar[bool] = False
    """Whether engines can give their GPUs back and start again with newer weights, so that GPUs can be lent to them."""


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
    def desktop_backend(self) -> Desktops:
        backend: Desktops = component("desktops", self.desktops)
        return backend

    @property
    def engine_backend(self) -> Engines:
        backend: Engines = component("engine", self.workers)
        return backend

    @property
    def learner_backend(self) -> Backend:
        backend: Backend = component("learner", self.learner)
        return backend

    @property
    def parts(self) -> tuple[Desktops, Engines, Backend]:
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
