"""Real parts on a Ray cluster."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from dartsim.core.section import Positive, Section


class RayPart(Section):
    """The actors of one kind."""

    options: dict[str, Any] = Field(
        default_factory=dict,
        description="Options of each actor, in Ray's words: num_cpus (1 by default), num_gpus, memory, resources, "
        "max_restarts (-1 by default: any number), runtime_env.",
    )


class RayDesktopsConfig(RayPart):
    """Desktop hosts: each drives the desktops of its node. Excludes desktop.hosts."""

    hosts: Positive = Field(1, description="Number of actors, spread over nodes.")


class RayEnginesConfig(RayPart):
    """vLLM servers, one actor each. Excludes vllm.addresses."""

    listen: Literal["loopback", "node"] = Field(
        "loopback", description="Where vLLM servers listen; node is needed with more than one machine."
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
    desktops: RayDesktopsConfig = Field(default_factory=RayDesktopsConfig, description="Hosts of desktops.")
    engines: RayEnginesConfig = Field(default_factory=RayEnginesConfig, description="vLLM servers.")
    learner: RayPart = Field(default_factory=RayPart, description="Ranks of the learner, an actor each.")
