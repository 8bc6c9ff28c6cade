"""The real components of a run on a Ray cluster: which are placed, with which resources, and how they are made."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from dartsim.config import Config
from dartsim.config.schema import RayPart
from dartsim.core.ports import EnvProvider
from dartsim.core.types import Task, Weights
from dartsim.real.local import SamplingPolicy
from dartsim.real.ray_cluster.desktops import DesktopHost, RayProvider
from dartsim.real.ray_cluster.learner import Checkpointed, LearnerHost, RayLearner
from dartsim.real.ray_cluster.parts import Part
from dartsim.real.ray_cluster.session import connected
from dartsim.real.ray_cluster.workers import RayWorker, Shared, WorkerHost

if TYPE_CHECKING:
    from dartsim.real.engines.launcher import Engine
    from dartsim.real.engines.options import EngineOptions

Kind = Literal["desktops", "workers", "learner"]
"""The real components, as ``backend`` names them."""

KINDS: tuple[Kind, ...] = ("desktops", "workers", "learner")


def placed(config: Config, kind: Kind) -> bool:
    """Return whether a component of the run is placed on a Ray cluster."""
    part = config.backend.parts[KINDS.index(kind)]
    return config.ray.address is not None and not part.modeled and actors(config, kind)[1].place


def actors(config: Config, kind: Kind) -> tuple[int, RayPart]:
    """Return the number of actors of a component, and what each of them asks for."""
    ray = config.ray
    if kind == "desktops":
        return ray.desktops.hosts, ray.desktops
    return (config.rollout.num_workers, ray.engines) if kind == "workers" else (1, ray.learner)


def session(config: Config) -> AbstractContextManager[None]:
    """Return the connection to the configured cluster, for the length of a run; it may be nested.

    Raises:
        ConfigError: If Ray is not installed, or no cluster answers.
    """
    ray = config.ray
    if ray.address is None:
        return nullcontext()
    wanted = [actors(config, kind) for kind in KINDS if placed(config, kind)]
    resources: dict[str, float] = {}
    for count, part in wanted:
        for name, amount in part.resources.items():
            resources[name] = resources.get(name, 0.0) + amount * count
    return connected(ray.address, cpus=sum(part.cpus * count for count, part in wanted), resources=resources)


def ray_desktops(config: Config, tasks: Sequence[Task]) -> RayProvider:
    """Return the provider of desktops on the nodes of the cluster; use it as ``async with``."""
    ray = config.ray
    opener = partial(open_desktops, share(config, ray.desktops.hosts), tasks)
    make = partial(DesktopHost, opener)
    hosts = [Part(f"desktops-{n}", make, ray.desktops, spread=True) for n in range(ray.desktops.hosts)]
    return RayProvider(hosts, ready_seconds=ray.ready_seconds)


def share(config: Config, hosts: int) -> Config:
    """Return the configuration of one of several hosts: it has room for at least its share of the desktops."""
    rollout = config.rollout
    fewer = rollout.model_copy(update={"num_envs": -(-rollout.num_desktops // hosts), "warm_envs": 0})
    return config.model_copy(update={"rollout": fewer})


@asynccontextmanager
async def open_desktops(config: Config, tasks: Sequence[Task]) -> AsyncIterator[EnvProvider]:
    """Provide the configured desktops of this machine."""
    async with config.backend.desktop_backend.open_here(config, tasks) as provider:
        yield provider


@asynccontextmanager
async def ray_workers(config: Config, weights: Weights) -> AsyncIterator[list[RayWorker]]:
    """Place workers that compute the model themselves, and give them their first weights.

    Raises:
        ConfigError: If the cluster has no room for them.
    """
    ray = config.ray
    shared = Shared()
    workers: list[RayWorker] = []
    async with AsyncExitStack() as stack:
        for index in range(config.rollout.num_workers):
            make = partial(WorkerHost, index, partial(make_policy, config))
            part = Part(f"engine-{index}", make, ray.engines, spread=True)
            worker = RayWorker(index, part, weights=weights, shared=shared, images=config.policy.max_images)
            stack.callback(worker.close)
            workers.append(worker)
        for worker in workers:
            await worker.start(ray.ready_seconds)
        yield workers


def make_policy(config: Config) -> SamplingPolicy:
    """Make the configured model, whose first weights are never served; called where a worker is placed."""
    from dartsim.real.vlm import VlmPolicy, build
    from dartsim.real.vlm.model import one_thread
    from dartsim.real.vlm.plan import vlm_config

    one_thread()
    return VlmPolicy(build(vlm_config(config), seed=config.run.seed))


@asynccontextmanager
async def ray_engines(config: Config, options: Sequence[EngineOptions], folder: Path) -> AsyncIterator[list[Engine]]:
    """Place actors for vLLM servers, which do not run yet.

    Raises:
        ConfigError: If the cluster has no room for them.
    """
    from dartsim.real.ray_cluster.engines import EngineHost, RayEngine

    ray = config.ray
    parts: list[Part] = []
    try:
        for index, engine in enumerate(options):
            name = f"engine-{index}"
            make = partial(EngineHost, engine, str(folder / name), name, ray.engines.listen)
            parts.append(Part(name, make, ray.engines, spread=True))
        for part in parts:
            await part.placed(ray.ready_seconds)
        yield [RayEngine(part, name=part.name, start_seconds=config.vllm.start_seconds) for part in parts]
    finally:
        for part in parts:
            part.kill()


def ray_learner(config: Config, make: Callable[[], Checkpointed], folder: Path, first: Any) -> RayLearner:
    """Place the learner.

    Raises:
        ConfigError: If the cluster has no room for it.
    """
    settings = config.ray.learner
    host = partial(LearnerHost, make, str(folder), settings.checkpoint_every_updates)
    part = Part("learner", host, settings)
    return RayLearner(part, first=first, ready_seconds=config.ray.ready_seconds)
