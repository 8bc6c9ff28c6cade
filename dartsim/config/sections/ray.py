"""Real parts on a Ray cluster."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from dartsim.core.section import Deadline, Positive, Section


class RayPart(Section):
    """What each actor of a kind asks of the Ray cluster."""

    place: bool = Field(True, description="Whether this part, where it is real, is placed on the cluster.")
    cpus: float = Field(1.0, ge=0.0, description="CPUs, as Ray counts them.")
    gpus: float = Field(0.0, ge=0.0, description="GPUs.")
    memory_gib: float | None = Field(None, gt=0.0, description="Memory, GiB; none reserves none.")
    resources: dict[str, float] = Field(
        default_factory=dict, description="The cluster's own resources (`ray start --resources`), by name."
    )
    restarts: int = Field(-1, ge=-1, description="How often Ray starts it again; -1: without end.")


class RayDesktopsConfig(RayPart):
    """Hosts of desktops: each drives those of the node it is placed on."""

    hosts: Positive = Field(1, description="How many, spread over nodes.")


class RayEnginesConfig(RayPart):
    """Inference engines, an actor each."""

    listen: Literal["loopback", "node"] = Field(
        "loopback", description="Where vLLM servers listen: node is needed as soon as there is another machine."
    )


class RayLearnerConfig(RayPart):
    """The learner, with all of its ranks in one place."""

    checkpoint_every_updates: Positive = Field(
        1, description="Updates between checkpoints; its actor's end costs the updates since the last one."
    )


class RayConfig(Section):
    """Real parts on a Ray cluster."""

    address: str | None = Field(
        None,
        description="HOST:PORT of the cluster's head, ray://HOST:PORT, auto, or local (a Ray of our own); none: "
        "everything on this machine, without Ray.",
    )
    folder: str | None = Field(
        None, description="Folder on a disk that all nodes share, for weights and checkpoints; none: a temporary one."
    )
    ready_seconds: Deadline = Field(120.0, description="Time until an actor must be placed.")
    desktops: RayDesktopsConfig = Field(default_factory=RayDesktopsConfig, description="Hosts of desktops.")
    engines: RayEnginesConfig = Field(default_factory=RayEnginesConfig, description="Inference engines.")
    learner: RayLearnerConfig = Field(default_factory=RayLearnerConfig, description="The learner.")
