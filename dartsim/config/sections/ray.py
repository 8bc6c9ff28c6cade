"""Real parts on a Ray cluster."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from dartsim.core.section import Positive, Section


class RayConfig(Section):
    """Real parts on a Ray cluster. The options of an actor are Ray's own.

    By default an actor takes a CPU (``num_cpus``) and is restarted any number of times (``max_restarts``).
    """

    address: str | None = Field(
        None,
        description="Address of the cluster: HOST:PORT of its head, ray://HOST:PORT, auto, or local (starts its own "
        "Ray); none: everything runs on this machine without Ray.",
    )
    folder: str | None = Field(
        None, description="Folder shared by all nodes, for weights and checkpoints; none: a temporary folder."
    )
    desktop_hosts: Positive = Field(
        1,
        description="Actors that drive the desktops of their nodes, over which they are spread; not with "
        "desktop.hosts.",
    )
    desktop_options: dict[str, Any] = Field(
        default_factory=dict, description="Ray's options of each of them: num_cpus, memory, resources, runtime_env."
    )
    engine_options: dict[str, Any] = Field(
        default_factory=dict,
        description="Ray's options of each vLLM server, one per worker (num_gpus); not with vllm.addresses.",
    )
    engines_listen: Literal["loopback", "node"] = Field(
        "loopback", description="Where vLLM servers listen; node is needed with more than one machine."
    )
    learner_options: dict[str, Any] = Field(
        default_factory=dict, description="Ray's options of each rank of the learner (num_gpus)."
    )
