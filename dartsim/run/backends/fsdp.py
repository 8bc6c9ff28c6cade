"""A learner of several processes (torch FSDP2)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import finalize

from typing_extensions import override

from dartsim.core.registry import register
from dartsim.run.backends.in_process import LocalLearnerBackend

if TYPE_CHECKING:
    from dartsim.config import Config


@register("learner", "fsdp")
class FsdpLearnerBackend(LocalLearnerBackend):
    """Several processes train the model, from a copy on disk."""

    @override
    def problems(self, config: Config) -> Iterator[str]:
        fsdp = config.trainer.fsdp
        if fsdp.gpus and config.ray.address is not None:
            yield (
                f"trainer.fsdp.gpus = {fsdp.gpus} names GPUs of this machine. With Ray, leave it out, and set "
                "ray.learner_options.num_gpus = 1."
            )
        elif fsdp.gpus and len(fsdp.gpus) != fsdp.ranks:
            yield f"trainer.fsdp.gpus names {len(fsdp.gpus)} GPUs for {fsdp.ranks} ranks; name as many."

    @override
    def plan(self, config: Config) -> dict[str, Any]:
        fsdp = config.trainer.fsdp
        trains = "all weights" if config.trainer.lora.rank is None else f"LoRA of rank {config.trainer.lora.rank}"
        where = f"GPUs {', '.join(map(str, fsdp.gpus))}" if fsdp.gpus else fsdp.device
        return {"what": f"{fsdp.ranks} processes of torch FSDP2 ({where}, {fsdp.precision}); {trains}"}

    @override
    def train(self, config: Config, vlm: Any, **options: Any) -> Any:
        from shutil import rmtree

        from dartsim.real.engines.options import weights_dtype
        from dartsim.real.learners.fsdp.learner import FsdpLearner
        from dartsim.real.ray_cluster.backend import placed
        from dartsim.real.ray_cluster.ranks import RayRanks
        from dartsim.real.scratch import scratch
        from dartsim.real.vlm.export import export

        own = config.trainer.fsdp.folder
        base = scratch("learner", config.ray.folder) if own is None else Path(own)
        options["export_dtype"] = weights_dtype(config)
        if placed(config, "learner"):
            options["group"] = partial(RayRanks, options=config.ray.learner_options)
        learner = FsdpLearner(vlm, export(vlm, base / "model"), base, config.trainer, **options)
        if own is None:
            finalize(learner, rmtree, base, ignore_errors=True)
        return learner
