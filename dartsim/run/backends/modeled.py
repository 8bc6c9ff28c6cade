"""Modeled desktops, engines and trainer: a simulated cluster."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from dartsim.core.ports import EnvProvider, Learner, PolicyWorker
from dartsim.core.registry import register
from dartsim.run.backends import BackendContext, DesktopBackend, EngineBackend
from dartsim.run.backends.in_process import LocalLearnerBackend

if TYPE_CHECKING:
    from dartsim.config import Config


@register("desktops", "sim")
class SimDesktops(DesktopBackend):
    """Desktops whose latencies are modeled."""

    modeled = True

    @override
    def saves_states(self, config: Config) -> bool:
        # With spare desktops, forks are set up ahead, as for containers.
        ahead = config.desktop.revert == "fork" and config.rollout.warm_envs
        return config.tasks.source != "gym" and not ahead

    @override
    def problems(self, config: Config) -> Iterator[str]:
        if config.tasks.source == "desktop":
            yield 'tasks.source = "desktop" needs the real desktops: set backend.desktops = "desktop".'
        kept, there = config.desktop.states_gib, config.cluster.hosts.memory_gib
        if self.reverts(config) and kept >= there:
            yield (
                f"desktop.states_gib = {kept:g} leaves no memory for desktops on hosts of {there:g} GiB "
                "(cluster.hosts.memory_gib). Lower the first."
            )

    @override
    def memory_gib(self, config: Config) -> tuple[Sequence[float], float]:
        from dartsim.run.prepare import env_timing

        hosts = config.cluster.hosts
        return [hosts.memory_gib] * hosts.count, env_timing(config).memory_gib

    @override
    def plan(self, config: Config) -> dict[str, Any]:
        return {"what": f"{config.rollout.num_desktops} modeled"}

    @override
    async def open(self, context: BackendContext) -> EnvProvider:
        from dartsim.run.sim_cluster import provider

        return provider(context.prepared, context.world, context.streams)


@register("engine", "sim")
class SimEngines(EngineBackend):
    """Engines whose latencies are modeled; a model may write their replies."""

    modeled = True
    can_release = True

    @override
    def plan(self, config: Config) -> dict[str, Any]:
        return {"what": f"{config.rollout.num_engines} modeled"}

    @override
    async def open(self, context: BackendContext) -> Sequence[PolicyWorker]:
        from dartsim.run.sim_cluster import workers

        served = context.optional_model
        model = served.model if served else None
        return workers(
            context.prepared, context.world, context.streams, model, version=context.version, control=context.control
        )


@register("learner", "sim")
class SimLearnerBackend(LocalLearnerBackend):
    """Updates whose duration is modeled; a model may be trained in them."""

    modeled = True

    @override
    def plan(self, config: Config) -> dict[str, Any]:
        if config.policy.kind == "surrogate":
            return {"what": "modeled"}
        return {"what": "in this process; an update takes the modeled time"}

    @override
    def open(self, context: BackendContext) -> Learner:
        from dartsim.run.sim_cluster import learner

        inner = context.learning.learner if context.optional_model else None
        return learner(context.prepared, inner, context.control)
