"""One process of a learner, which obeys the driver: every rank gets every order. Large data is in files.

train       turns, update, weights, checkpoint or null     -> metrics, or a fault that changed nothing
score       turns, out: log-probabilities and entropies [2, B, T]
save        folder
load        folder, version or null, weights or none
"""

from __future__ import annotations

import os
import signal
import traceback
from collections.abc import Sequence
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from dartsim.core.errors import BatchUntrainable, LearnerFault
from dartsim.real.learners import checkpoint
from dartsim.real.learners.fsdp.files import Setup, read_turns_from, write_tensor
from dartsim.real.learners.fsdp.sharding import gathered, shard
from dartsim.real.learners.gradient_steps import GradientSteps
from dartsim.real.learners.ranks import Ranks
from dartsim.real.processes import end_with
from dartsim.real.vlm.export import export_weights
from dartsim.real.vlm.lora import add_lora, has_lora
from dartsim.real.vlm.model import Vlm, build, one_thread

_FOREVER = timedelta(days=365)
"""Ranks wait for batches without limit; only the driver has time limits."""


class Rank:
    """One rank of the learner that ``setup`` describes; ``mesh`` and ``ranks`` are all of them."""

    def __init__(self, setup: Setup, mesh: DeviceMesh, ranks: Ranks) -> None:
        self._ranks = ranks
        self._seed = setup.seed
        self._like = Path(str(setup.model.folder))
        self._export_dtype = setup.export_dtype
        config = setup.trainer
        self._vlm = build(setup.model, seed=setup.seed)
        self._reference = self._vlm.twin() if config.objective.kl_coefficient else None
        if config.lora.rank is not None:
            add_lora(self._vlm.model, config.lora, seed=setup.seed)
        self._vlm.trunk.checkpointing = config.fsdp.checkpointing
        if self._reference is not None:
            self._reference.model.requires_grad_(False)
        scorers = (
            shard(self._vlm, mesh, config.fsdp),
            None if self._reference is None else shard(self._reference, mesh, config.fsdp),
        )
        self._steps = GradientSteps(self._vlm, config, seed=setup.seed, ranks=ranks, scorers=scorers)

    def do(self, order: dict[str, Any]) -> dict[str, Any]:
        """Carry out an order; all ranks get the same one."""
        kind, paths = order["do"], {name: Path(value) for name, value in order.items() if isinstance(value, str)}
        if kind == "train":
            return self._train(order["update"], paths)
        if kind == "score":
            scores = self._steps.score(read_turns_from(paths["turns"]))
            if self._ranks.rank == 0:
                write_tensor(torch.stack(scores), paths["out"])
        elif kind == "save":
            checkpoint.save(self._steps, paths["folder"], self._ranks, seed=self._seed)
        elif kind == "load":
            checkpoint.load(self._steps, paths["folder"])
            if order["version"] is not None:
                self._steps.updates = order["version"]
            if self._reference is not None and self._steps.updates == 0 and not has_lora(self._vlm.model):
                self._use_as_reference(self._reference)
            if "weights" in paths:
                self._export(paths["weights"])
        else:
            raise ValueError(f"the order {kind!r} is unknown")
        return {"updates": self._steps.updates}

    def _train(self, update: int, paths: dict[str, Path]) -> dict[str, Any]:
        try:
            metrics = self._steps.fit(read_turns_from(paths["turns"]), update)
        except LearnerFault as fault:
            return {"fault": str(fault), "untrainable": isinstance(fault, BatchUntrainable)}
        if "checkpoint" in paths:
            checkpoint.save(self._steps, paths["checkpoint"], self._ranks, seed=self._seed)
        self._export(paths["weights"])
        if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            metrics["learner/peak_gib"] = torch.cuda.max_memory_allocated() / 2**30
        return {"metrics": metrics, "updates": self._steps.updates}

    def _use_as_reference(self, reference: Vlm) -> None:
        """Copy the current weights to the KL term's reference model, from a checkpoint before the first update.

        With LoRA, which starts at 0, the reference is already the model itself.
        """
        whole: dict[str, Any] = gathered(self._vlm.model, keep=self._ranks.rank == 0)
        # Not strict: tied weights have one more name in the model's state than among its parameters.
        options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True, strict=False)
        set_model_state_dict(reference.model, whole, options=options)

    def _export(self, folder: Path) -> None:
        first = self._ranks.rank == 0
        weights = gathered(self._vlm.model, keep=first)
        if first:
            export_weights(weights, folder, like=self._like, dtype=self._export_dtype)


def join(setup: Setup, number: int, size: int, meeting: str, *, local: int = 0, local_size: int = 1) -> Rank:
    """Join the other ranks at an address, and return this one.

    Args:
        setup: The learner.
        number: Number of this rank.
        size: Number of ranks.
        meeting: Where they meet: ``tcp://HOST:PORT``, on which the first one listens.
        local: Number of this rank on its machine.
        local_size: Number of ranks of this machine.
    """
    device = setup.trainer.fsdp.device
    if device == "auto":
        device = "cuda" if torch.cuda.device_count() >= local_size else "cpu"
    if device == "cuda":
        torch.cuda.set_device(local)
    else:
        one_thread()
    backend = "gloo" if device == "cpu" else "cpu:gloo,cuda:nccl"
    dist.init_process_group(backend, init_method=meeting, rank=number, world_size=size, timeout=_FOREVER)
    return Rank(setup, init_device_mesh(device, (size,)), Ranks(torch.device(device)))


def serve(
    folder: Path, log: Path, meeting: str, size: int, gpus: Sequence[int], number: int, driver: Connection
) -> None:
    """Be a rank of ``RankGroup``: join the others and carry out orders until the driver is gone."""
    end_with(os.getppid(), signal.SIGKILL)
    os.setsid()  # Ctrl-C is the driver's
    with log.open("ab") as file:
        for descriptor in (1, 2):
            os.dup2(file.fileno(), descriptor)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    if gpus:
        os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, gpus))
    try:
        rank = join(Setup.read(folder), number, size, meeting, local=number, local_size=size)
        driver.send({})
        while True:
            driver.send(rank.do(driver.recv()))
    except EOFError:
        return
    except Exception as error:
        traceback.print_exc()
        driver.send({"error": f"{type(error).__name__}: {error}"})
        raise SystemExit(1) from error
