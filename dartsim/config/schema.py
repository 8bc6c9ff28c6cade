"""The configuration of a run: one strict schema, with units in names and the source of each default.

Rules that span several fields are in ``dartsim.config.rules``; reading files and overrides in
``dartsim.config.load``.
"""

from __future__ import annotations

from pydantic import Field

from dartsim.config.sections.backend import BackendConfig
from dartsim.config.sections.cluster import ClusterConfig
from dartsim.config.sections.curation import AttemptsConfig, BatchConfig, CurationConfig
from dartsim.config.sections.desktop import DesktopConfig, DockerHostConfig
from dartsim.config.sections.endpoint import EndpointConfig
from dartsim.config.sections.faults import FaultsConfig, FaultWindow
from dartsim.config.sections.gym import GymConfig
from dartsim.config.sections.policy import PolicyConfig, SurrogateConfig
from dartsim.config.sections.ray import RayConfig
from dartsim.config.sections.rollout import LimitsConfig, RolloutConfig, SyncConfig
from dartsim.config.sections.run import RunConfig
from dartsim.config.sections.tasks import TasksConfig
from dartsim.config.sections.trainer import FsdpConfig, TrainerConfig
from dartsim.config.sections.vllm import VllmConfig
from dartsim.core.section import Section

__all__ = [
    "AttemptsConfig",
    "BatchConfig",
    "Config",
    "DesktopConfig",
    "DockerHostConfig",
    "FaultWindow",
    "FaultsConfig",
    "FsdpConfig",
    "RolloutConfig",
    "SyncConfig",
    "VllmConfig",
]


class Config(Section):
    """A whole run."""

    preset: str = Field("dart", description="Name of the preset it started from.")
    run: RunConfig = Field(default_factory=RunConfig, description="Length and seed.")
    tasks: TasksConfig = Field(default_factory=TasksConfig, description="Task list.")
    policy: PolicyConfig = Field(default_factory=PolicyConfig, description="What workers say.")
    surrogate: SurrogateConfig = Field(default_factory=SurrogateConfig, description="Drawn outcomes.")
    rollout: RolloutConfig = Field(default_factory=RolloutConfig, description="Rollout.")
    curation: CurationConfig = Field(default_factory=CurationConfig, description="Curation.")
    trainer: TrainerConfig = Field(default_factory=TrainerConfig, description="Trainer.")
    cluster: ClusterConfig = Field(default_factory=ClusterConfig, description="Modeled cluster.")
    backend: BackendConfig = Field(default_factory=BackendConfig, description="What is real.")
    vllm: VllmConfig = Field(default_factory=VllmConfig, description="vLLM engines.")
    endpoint: EndpointConfig = Field(default_factory=EndpointConfig, description="Somebody else's model.")
    desktop: DesktopConfig = Field(default_factory=DesktopConfig, description="Real desktops.")
    gym: GymConfig = Field(default_factory=GymConfig, description="Gymnasium environments.")
    ray: RayConfig = Field(default_factory=RayConfig, description="Real parts on a Ray cluster.")
    plugin_modules: list[str] = Field(
        default_factory=list,
        description="Modules that register components of your own, which --plugin has to name, too: no "
        "file is trusted to import code. `config.toml` of a run lists them.",
    )

    @property
    def name(self) -> str:
        """The run's name: ``run.name``, or its preset."""
        return self.run.name or self.preset

    @property
    def limits(self) -> LimitsConfig:
        """Longest time of each call, as an attempt sees it.

        On desktops that revert, a set-up may also wait for the same set-up on another desktop, find its saved state
        unusable, and boot.
        """
        limits = self.rollout.limits
        if self.desktop.revert == "boot":
            return limits
        return limits.replace(setup_seconds=limits.start_seconds + 2.0 * limits.setup_seconds)
