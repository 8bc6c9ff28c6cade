"""Stand-ins for desktops, engines and ranks that are not up yet (``dartsim check --stand-in``)."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from dartsim.core.ports import PolicyWorker
from dartsim.core.registry import register
from dartsim.core.types import Task
from dartsim.run.backends import BackendContext, DesktopBackend, EngineBackend
from dartsim.run.backends.fsdp import FsdpLearnerBackend

if TYPE_CHECKING:
    from dartsim.config import Config


@register("desktops", "stand_in")
class StandInDesktopBackend(DesktopBackend):
    """Servers of OSWorld's protocol without a desktop behind them."""

    boots = True

    @override
    def plan(self, config: Config) -> dict[str, Any]:
        return {"what": f"{config.rollout.num_desktops} stand-ins in one process"}

    @override
    def supported(self, config: Config, tasks: Sequence[Task]) -> Sequence[Task]:
        from dartsim.real.stand_ins.opening import TASK

        return [replace(task, spec=TASK) for task in tasks]

    @override
    def open_here(
        self, config: Config, tasks: Sequence[Task], on_call: Any = None, *, folder: Path | None = None
    ) -> AbstractAsyncContextManager[Any]:
        from dartsim.real.stand_ins.opening import open_stand_ins

        return open_stand_ins(config, tasks, on_call)


@register("engine", "stand_in")
class StandInEngineBackend(EngineBackend):
    """Servers of vLLM's routes without a model behind them."""

    @override
    def plan(self, config: Config) -> dict[str, Any]:
        return {"what": f"{config.rollout.num_workers} stand-ins in one process"}

    @override
    async def open(self, context: BackendContext) -> Sequence[PolicyWorker]:
        from dartsim.real.stand_ins.opening import stand_in_workers

        learning = context.learning
        workers = stand_in_workers(
            context.prepared.config, learning.vlm, version=learning.trainer.updates, on_step=context.on_step
        )
        return await context.stack.enter_async_context(workers)


@register("learner", "stand_in")
class StandInLearnerBackend(FsdpLearnerBackend):
    """The driver's side of a learner with ranks, with stand-ins for the ranks."""

    @override
    def plan(self, config: Config) -> dict[str, Any]:
        return {"what": f"a stand-in for {config.trainer.fsdp.ranks} ranks"}

    @override
    def train(self, config: Config, vlm: Any, **options: Any) -> Any:
        from dartsim.real.stand_ins.ranks import StandInRanks

        return super().train(config, vlm, group=StandInRanks, **options)
