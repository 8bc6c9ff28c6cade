"""Mock desktops, engines and a learner that compute in this process, in real time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from dartsim.core.ports import EnvProvider, Learner, PolicyWorker
from dartsim.core.registry import register
from dartsim.core.types import Task
from dartsim.run.backends import BackendContext, DesktopBackend, EngineBackend, LearnerBackend

if TYPE_CHECKING:
    from dartsim.config import Config


@register("desktops", "mock")
class MockDesktops(DesktopBackend):
    """Mock desktops, computed on the event loop."""

    task_sources = ("mock",)

    @override
    def saves_states(self, config: Config) -> bool:
        return True

    @override
    def plan(self, config: Config) -> dict[str, Any]:
        return {"what": f"{config.rollout.num_desktops} mock desktops in this process"}

    @override
    @asynccontextmanager
    async def open_here(
        self, config: Config, tasks: Sequence[Task], on_call: Any = None, *, folder: Path | None = None
    ) -> AsyncIterator[EnvProvider]:
        from dartsim.envs.direct import DirectProvider
        from dartsim.envs.mock.env import mock_desktop_maker

        yield DirectProvider(mock_desktop_maker(config.policy), forks=config.desktop.revert != "boot")


@register("engine", "local")
class LocalEngines(EngineBackend):
    """The model in threads of this process."""

    @override
    def plan(self, config: Config) -> dict[str, Any]:
        return {"what": f"{config.rollout.num_workers} in threads of this process"}

    @override
    async def open(self, context: BackendContext) -> Sequence[PolicyWorker]:
        from dartsim.real.local import LocalWorker
        from dartsim.real.vlm import VlmPolicy

        config, served = context.prepared.config, context.model
        weights = served.weights
        workers = []
        for index in range(config.rollout.num_workers):
            policy = VlmPolicy(served.vlm.twin())
            policy.add(weights)
            worker = LocalWorker(index, policy, version=weights.version)
            worker.on_call = None if context.timings is None else context.timings.worker
            workers.append(worker)
        return workers


@register("learner", "local")
class LocalLearnerBackend(LearnerBackend):
    """A thread of this process trains the model."""

    @override
    def plan(self, config: Config) -> dict[str, Any]:
        return {"what": "a thread of this process"}

    @override
    def open(self, context: BackendContext) -> Learner:
        from dartsim.real.local import LocalLearner

        context.stack.callback(context.learning.close)
        return LocalLearner(context.learning.learner)

    @override
    def train(self, config: Config, vlm: Any, **options: Any) -> Any:
        from dartsim.real.learners.torch_learner import TorchLearner

        return TorchLearner(vlm, config.trainer, **options)
