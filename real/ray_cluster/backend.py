"""The real components of a run on a Ray cluster: which are placed there, with which options, and their creation."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from dartsim.config import Config
from dartsim.core.errors import ConfigError
from dartsim.core.ports import EnvProvider
from dartsim.core.types import Task
from dartsim.real.ray_cluster.desktops import DesktopHost, RayProvider
from dartsim.real.ray_cluster.parts import Part, actor_options
from dartsim.real.ray_cluster.session import connected

if TYPE_CHECKING:
    from dartsim.real.engines.launcher import Engine
    from dartsim.real.engines.options import EngineOptions

Kind = Literal["desktops", "workers", "learner"]
"""The real components, as ``backend`` names them."""

KINDS: tuple[Kind, ...] = ("desktops", "workers", "learner")


def placed(config: Config, kind: Kind) -> bool:
    """Return whether a component of the run is placed on a Ray cluster: where it outgrows this machine's processes."""
    backend = config.backend
    if config.ray.address is None:
        return False
    if kind == "desktops":
        return not backend.desktop_backend.modeled and not config.desktop.hosts
    return backend.workers == "vllm" and not config.vllm.addresses if kind == "workers" else backend.learner == "fsdp"


def actors(config: Config, kind: Kind) -> tuple[int, dict[str, Any]]:
    """Return the number of actors of a component, and their options."""
    ray = config.ray
    if kind == "desktops":
        return ray.desktop_hosts, ray.desktop_options
    if kind == "workers":
        return config.rollout.num_workers, ray.engine_options
    return config.trainer.fsdp.ranks, ray.learner_options


def session(config: Config) -> AbstractContextManager[None]:
    """Return the connection to the configured cluster, for the length of a run; it may be nested.

    Raises:
        ConfigError: If Ray is not installed, no cluster answers, or the shared folder is not there.
    """
    if config.ray.address is None:
        return nullcontext()
    if config.ray.folder is not None and not Path(config.ray.folder).is_dir():
        raise ConfigError(
            f"ray.folder = {config.ray.folder!r} is no folder of this machine; make it, on a disk that all nodes share"
        )
    cpus, resources = 0.0, dict[str, float]()
    for count, own in (actors(config, kind) for kind in KINDS if placed(config, kind)):
        options = actor_options(own)
        cpus += options["num_cpus"] * count
        for name, amount in options.get("resources", {}).items():
            resources[name] = resources.get(name, 0.0) + amount * count
    return connected(config.ray.address, cpus=cpus, resources=resources)


def ray_desktops(
    config: Config,
    tasks: Sequence[Task],
    open_here: Callable[[Config, Sequence[Task]], AbstractAsyncContextManager[EnvProvider]],
) -> RayProvider:
    """Return the provider of desktops on the nodes of the cluster; use it as ``async with``."""
    number, options = actors(config, "desktops")
    make = partial(DesktopHost, partial(open_here, share(config, number), tasks))
    return RayProvider([Part(f"desktops-{index}", make, options) for index in range(number)])


def share(config: Config, hosts: int) -> Config:
    """Return the configuration of one of several hosts: it has room for at least its share of the desktops."""
    return config.replace(rollout={"num_envs": -(-config.rollout.num_desktops // hosts), "warm_envs": 0})


@asynccontextmanager
async def ray_engines(config: Config, options: Sequence[EngineOptions], folder: Path) -> AsyncIterator[list[Engine]]:
    """Place actors for vLLM servers, which do not run yet.

    Raises:
        ConfigError: If the cluster has no room for them.
    """
    from dartsim.real.ray_cluster.engines import EngineHost, RayEngine

    parts: list[Part] = []
    try:
        for index, engine in enumerate(options):
            name = f"engine-{index}"
            make = partial(EngineHost, engine, str(folder / name), name, config.ray.engines_listen)
            parts.append(Part(name, make, config.ray.engine_options))
        for part in parts:
            await part.placed()
        yield [RayEngine(part, start_seconds=config.vllm.start_seconds) for part in parts]
    finally:
        for part in parts:
            part.kill()
