"""One process of a learner: ``torchrun … -m dartsim.real.learners.fsdp.rank FOLDER``. It obeys the driver.

The first rank talks to the driver, one JSON object a line, and broadcasts the orders. Large data is in files.

    train       turns, update, weights, checkpoint or null     -> metrics, or a fault that changed nothing
    score       turns, out: log-probabilities and entropies [2, B, T]
    save        folder
    load        folder, version or null, weights or none
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

from dartsim.real.processes import end_with

if __name__ == "__main__":  # before torch is imported, which takes seconds
    end_with(os.getppid(), signal.SIGKILL)
    for _number in (signal.SIGTERM, signal.SIGINT):  # a fork has torchrun's handlers, which run between bytecodes only
        signal.signal(_number, signal.SIG_DFL)

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from dartsim.core.errors import BatchUntrainable, LearnerFault
from dartsim.real.learners import checkpoint
from dartsim.real.learners.fsdp.files import Setup, read_turns_from, write_tensor
from dartsim.real.learners.fsdp.peers import Ranks
from dartsim.real.learners.fsdp.sharding import gathered, shard
from dartsim.real.learners.gradient_steps import GradientSteps
from dartsim.real.vlm.export import export_weights
from dartsim.real.vlm.lora import add_lora, has_lora
from dartsim.real.vlm.model import Vlm, build, one_thread

_FOREVER = timedelta(days=365)
"""Ranks wait for batches without limit; only the driver has time limits."""


class Rank:
    """One rank of the learner that ``setup`` describes; ``mesh`` and ``peers`` are all of its ranks."""

    def __init__(self, setup: Setup, mesh: DeviceMesh, peers: Ranks) -> None:
        self._peers = peers
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
        self._steps = GradientSteps(self._vlm, config, seed=setup.seed, peers=peers, scorers=scorers)

    def do(self, order: dict[str, Any]) -> dict[str, Any]:
        """Carry out an order; all ranks get the same one."""
        kind, paths = order["do"], {name: Path(value) for name, value in order.items() if isinstance(value, str)}
        if kind == "train":
            return self._train(order["update"], paths)
        if kind == "score":
            scores = self._steps.score(read_turns_from(paths["turns"]))
            if self._peers.rank == 0:
                write_tensor(torch.stack(scores), paths["out"])
        elif kind == "save":
            checkpoint.save(self._steps, paths["folder"], self._peers, seed=self._seed)
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
            checkpoint.save(self._steps, paths["checkpoint"], self._peers, seed=self._seed)
        self._export(paths["weights"])
        if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            metrics["learner/peak_gib"] = torch.cuda.max_memory_allocated() / 2**30
        return {"metrics": metrics, "updates": self._steps.updates}

    def _use_as_reference(self, reference: Vlm) -> None:
        """Copy the current weights to the KL term's reference model, from a checkpoint before the first update.

        With LoRA, which starts at 0, the reference is already the model itself.
        """
        whole: dict[str, Any] = gathered(self._vlm.model, keep=self._peers.rank == 0)
        # Not strict: tied weights have one more name in the model's state than among its parameters.
        options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True, strict=False)
        set_model_state_dict(reference.model, whole, options=options)

    def _export(self, folder: Path) -> None:
        first = self._peers.rank == 0
        weights = gathered(self._vlm.model, keep=first)
        if first:
            export_weights(weights, folder, like=self._like, dtype=self._export_dtype)


class _Driver:
    """The first rank's connection to the driver."""

    def __init__(self, address: str) -> None:
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(address)
        self._text = connection.makefile("rw", encoding="utf-8")

    def send(self, message: dict[str, Any]) -> None:
        self._text.write(json.dumps(message) + "\n")
        self._text.flush()

    def receive(self) -> dict[str, Any] | None:
        """Return the next order; None when the driver is gone."""
        line = self._text.readline()
        return json.loads(line) if line else None


def join(setup: Setup) -> tuple[Rank, Ranks]:
    """Join the other ranks, which torchrun's variables in the environment name; return this one, and all."""
    mesh = _mesh(setup)
    device = torch.device(mesh.device_type)
    if device.type == "cpu":
        one_thread()
    peers = Ranks(device)
    return Rank(setup, mesh, peers), peers


def run(folder: Path) -> None:
    """Join the others and carry out orders until the driver is gone."""
    setup = Setup.read(folder)
    rank, peers = join(setup)
    driver = _Driver(setup.socket) if peers.rank == 0 else None
    pids = peers.gather(os.getpid())
    if driver is not None:
        driver.send({"pids": pids})
    while True:
        order = peers.broadcast(driver.receive() if driver is not None else None)
        if order is None:
            break
        answer = rank.do(order)
        if driver is not None:
            driver.send(answer)
    dist.destroy_process_group()


def _mesh(setup: Setup) -> DeviceMesh:
    count, local = int(os.environ["WORLD_SIZE"]), int(os.environ["LOCAL_RANK"])
    local_count = int(os.environ.get("LOCAL_WORLD_SIZE", count))
    device = setup.trainer.fsdp.device
    if device == "auto":
        device = "cuda" if torch.cuda.device_count() >= local_count else "cpu"
    if device == "cuda":
        torch.cuda.set_device(local)
    dist.init_process_group("gloo" if device == "cpu" else "cpu:gloo,cuda:nccl", timeout=_FOREVER)
    return init_device_mesh(device, (count,))


if __name__ == "__main__":
    run(Path(sys.argv[1]))
