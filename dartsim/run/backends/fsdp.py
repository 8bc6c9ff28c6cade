"""A learner of several processes (torch FSDP2)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import finalize

from typing_extensions import override

from dartsim.core.registry import register
from dartsim.run.backends.in_process import LocalLearnerBackend

if TYPE_CHECKING:
    from dartsim.config import Config

FOLDER = "FOLDER"
"""Stands for the learner's folder, which is made at the start."""


@register("learner", "fsdp")
class FsdpLearnerBackend(LocalLearnerBackend):
    """The model is trained by several processes, from a copy on disk."""

    starts_processes = True

    @override
    def problems(self, config: Config) -> Iterator[str]:
        fsdp, ray = config.trainer.fsdp, config.ray
        if ray.address is not None and ray.learner.place and fsdp.nodes > 1:
            yield (
                f"trainer.fsdp.nodes = {fsdp.nodes}, but Ray places a learner with all of its ranks on one node. Set "
                "ray.learner.place = false, or trainer.fsdp.nodes = 1."
            )
        each, odd = divmod(fsdp.ranks, fsdp.nodes)
        if odd:
            yield (
                f"trainer.fsdp.ranks = {fsdp.ranks} cannot be divided evenly among trainer.fsdp.nodes = {fsdp.nodes}; "
                "set a multiple."
            )
        elif fsdp.gpus and len(fsdp.gpus) != each:
            yield f"trainer.fsdp.gpus names {len(fsdp.gpus)} GPUs of a node, which has {each} ranks; name as many."
        if fsdp.nodes == 1:
            return
        if fsdp.address is None or not fsdp.address.rpartition(":")[2].isdecimal():
            yield (
                f"trainer.fsdp.nodes = {fsdp.nodes} needs trainer.fsdp.address, HOST:PORT of the first node as the "
                f"others reach it, got {fsdp.address!r}."
            )
        if fsdp.folder is None:
            yield (
                f"trainer.fsdp.nodes = {fsdp.nodes} needs trainer.fsdp.folder, on a disk that all nodes have under the "
                "same path: ranks read batches there and write checkpoints."
            )

    @override
    def plan(self, config: Config) -> dict[str, Any]:
        from dartsim.real.learners.fsdp.group import node_command, rank_command, rank_variables

        fsdp = config.trainer.fsdp
        folder, environment = fsdp.folder or FOLDER, rank_variables(fsdp)
        there = [
            {
                "name": f"torchrun on node {node}",
                "listens": "started there by you, before the run or within trainer.fsdp.start_seconds; ends with "
                "the run",
                "command": node_command(fsdp, folder, node),
                "environment": environment,
            }
            for node in range(1, fsdp.nodes)
        ]
        on = "" if fsdp.nodes == 1 else f" on {fsdp.nodes} nodes"
        trains = "all weights" if config.trainer.lora.rank is None else f"LoRA of rank {config.trainer.lora.rank}"
        how = f"({fsdp.device}, {fsdp.precision}), by torchrun; {trains}"
        return {
            "what": f"{fsdp.ranks} processes{on} of torch FSDP2 {how}",
            "processes": [
                {
                    "name": "torchrun",
                    "listens": "on the loopback"
                    if fsdp.nodes == 1
                    else f"node 0, this machine; listens at {fsdp.address}",
                    "command": rank_command(fsdp, folder),
                    "environment": environment,
                }
            ],
            **({"start_there": there} if there else {}),
        }

    @override
    def train(self, config: Config, vlm: Any, folder: Path | None, **options: Any) -> Any:
        from shutil import rmtree

        from dartsim.real.engines.options import weights_dtype
        from dartsim.real.learners.fsdp.learner import FsdpLearner
        from dartsim.real.scratch import scratch
        from dartsim.real.vlm.export import export

        own = config.trainer.fsdp.folder
        base = scratch("learner", folder) if own is None else Path(own)
        options["export_dtype"] = weights_dtype(config)
        learner = FsdpLearner(vlm, export(vlm, base / "model"), base, config.trainer, **options)
        if own is None:
            finalize(learner, rmtree, base, ignore_errors=True)
        return learner
