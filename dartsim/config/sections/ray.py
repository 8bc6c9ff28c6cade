"""Real parts on a Ray cluster."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from dartsim.core.section import Deadline, Positive, Section


class RayPart(Section):
    """What each actor of a kind asks of the Ray cluster."""

    place: bool = Field(True, description="Place this component on the cluster if it is real.")
    cpus: float = Field(1.0, ge=0.0, description="CPUs that each actor reserves.")
    gpus: float = Field(0.0, ge=0.0, description="GPUs that each actor reserves.")
    memory_gib: float | None = Field(None, gt=0.0, description="Memory that each actor reserves, GiB.")
    resources: dict[str, float] = Field(
        default_factory=dict, description="Custom resources that each actor reserves (`ray start --resources`)."
    )
    restarts: int = Field(-1, ge=-1, description="How often Ray restarts an actor; -1: no limit.")


class RayDesktopsConfig(RayPart):
    """Hosts of desktops: each drives those of the node it is placed on."""

    hosts: Positive = Field(1, description="Number of actors, spread over nodes.")


class RayEnginesConfig(RayPart):
    """Inference engines, an actor each."""

    listen: Literal["loopback", "node"] = Field(
        "loopback", description="Where vLLM servers listen; node is needed with more than one machine."
    )


class RayLearnerConfig(RayPart):
    """The learner, with all of its ranks in one place."""

    checkpoint_every_updates: Positive = Field(
        1, description="Updates between checkpoints; the updates since the last one are lost if the actor ends."
    )


class RayConfig(Section):
    """Real parts on a Ray cluster."""

    address: str | None = Field(
        None,
        description="Address of the cluster: HOST:PORT of its head, ray://HOST:PORT, auto, or local (starts its own "
        "Ray); none: everything runs on this machine without Ray.",
    )
    folder: str | None = Field(
        None, description="Folder shared by all nodes, for weights and checkpoints; none: a temporary folder."
    )
    ready_seconds: Deadline = Field(120.0, description="Time limit for placing an actor.")
    desktops: RayDesktopsConfig = Field(default_factory=RayDesktopsConfig, description="Hosts of desktops.")
    engines: RayEnginesConfig = Field(default_factory=RayEnginesConfig, description="Inference engines.")
    learner: RayLearnerConfig = Field(default_factory=RayLearnerConfig, description="Learner.")
