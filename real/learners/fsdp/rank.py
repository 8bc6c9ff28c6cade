"""One process of a learner: ``torchrun … -m dartsim.real.learners.fsdp.rank FOLDER``. It does what the driver says.

The first rank talks to the driver, a JSON object a line, and tells the others. What is large lies in files.

    train       turns, update, weights, checkpoint or null     -> metrics, or a fault that left all as it was
    entropies   turns, out
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
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from dartsim.core.errors import LearnerFault
from dartsim.real.learners.fsdp import checkpoint
from dartsim.real.learners.fsdp.peers import Ranks
from dartsim.real.learners.fsdp.settings import Setup
from dartsim.real.learners.fsdp.sharding import gathered, shard
from dartsim.real.learners.fsdp.wire import read_turns_from, write_tensor
from dartsim.real.learners.gradient_steps import GradientSteps
from dartsim.real.vlm.export import export_weights
from dartsim.real.vlm.lora import add_lora
from dartsim.real.vlm.model import build, one_thread

_FOREVER = timedelta(days=365)
"""Ranks wait for batches as long as it takes; it is the driver that gives up on them."""


class Rank:
    """A part of a learner.

    Args:
        setup: What it is told.
        mesh: All parts.
        peers: All parts.
    """

    def __init__(self, setup: Setup, mesh: DeviceMesh, peers: Ranks) -> None:
        self._peers = peers
        self._seed = setup.seed
        self._like = Path(str(setup.model.folder))
        config = setup.trainer
        self._vlm = build(setup.model, seed=setup.seed)
        reference = self._vlm.twin() if config.objective.kl_coefficient else None
        if config.lora.rank is not None:
            add_lora(self._vlm.model, config.lora, seed=setup.seed)
        self._vlm.trunk.checkpointing = config.fsdp.checkpointing
        if reference is not None:
            reference.model.requires_grad_(False)
        scorers = (
            shard(self._vlm, mesh, setup.trainer.fsdp),
            None if reference is None else shard(reference, mesh, setup.trainer.fsdp),
        )
        self._steps = GradientSteps(self._vlm, config, seed=setup.seed, peers=peers, scorers=scorers)

    def do(self, order: dict[str, Any]) -> dict[str, Any]:
        """Carry out an order; all ranks are given the same."""
        what, paths = order["do"], {name: Path(value) for name, value in order.items() if isinstance(value, str)}
        if what == "train":
            return self._train(order["update"], paths)
        if what == "entropies":
            _, entropy_BT = self._steps.score(read_turns_from(paths["turns"]))
            if self._peers.rank == 0:
                write_tensor(entropy_BT, paths["out"])
        elif what == "save":
            checkpoint.save(self._steps, paths["folder"], self._peers, seed=self._seed)
        elif what == "load":
            checkpoint.load(self._steps, paths["folder"])
            if order["version"] is not None:
                self._steps.updates = order["version"]
            if "weights" in paths:
                self._export(paths["weights"])
        else:
            raise ValueError(f"the order {what!r} is unknown")
        return {"updates": self._steps.updates}

    def _train(self, update: int, paths: dict[str, Path]) -> dict[str, Any]:
        try:
            metrics = self._steps.fit(read_turns_from(paths["turns"]), update)
        except LearnerFault as fault:
            return {"fault": str(fault)}
        if "checkpoint" in paths:
            checkpoint.save(self._steps, paths["checkpoint"], self._peers, seed=self._seed)
        self._export(paths["weights"])
        return {"metrics": metrics | _peak(), "updates": self._steps.updates}

    def _export(self, folder: Path) -> None:
        first = self._peers.rank == 0
        weights = gathered(self._vlm.model, keep=first)
        if first:
            export_weights(weights, folder, like=self._like)


def _peak() -> dict[str, float]:
    """Return the most memory that this rank has held on its GPU so far; nothing on a processor."""
    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return {}
    return {"learner/peak_gib": torch.cuda.max_memory_allocated() / 2**30}


class _Driver:
    """The driver's end of the line, for the first rank."""

    def __init__(self, address: str) -> None:
        line = socket.socket(socket.AF_UNIX)
        line.connect(address)
        self._line = line.makefile("rw", encoding="utf-8")

    def say(self, message: dict[str, Any]) -> None:
        self._line.write(json.dumps(message) + "\n")
        self._line.flush()

    def next(self) -> dict[str, Any] | None:
        """Return the next order; None when the driver is gone."""
        text = self._line.readline()
        return json.loads(text) if text else None


def run(folder: Path) -> None:
    """Join the others and do what the driver says."""
    setup = Setup.read(folder)
    mesh = _mesh(setup)
    device = torch.device(mesh.device_type)
    if device.type == "cpu":
        one_thread()
    peers = Ranks(device)
    driver = _Driver(setup.socket) if peers.rank == 0 else None
    rank = Rank(setup, mesh, peers)
    pids = peers.all(os.getpid())
    if driver is not None:
        driver.say({"pids": pids, "device": mesh.device_type})
    while True:
        order = peers.told(driver.next() if driver is not None else None)
        if order is None:
            break
        answer = rank.do(order)
        if driver is not None:
            driver.say(answer)
    dist.destroy_process_group()


def _mesh(setup: Setup) -> DeviceMesh:
    count, local = int(os.environ["WORLD_SIZE"]), int(os.environ["LOCAL_RANK"])
    here = int(os.environ.get("LOCAL_WORLD_SIZE", count))
    device = setup.trainer.fsdp.device
    if device == "auto":
        device = "cuda" if torch.cuda.device_count() >= here else "cpu"
    if device == "cuda":
        torch.cuda.set_device(local)
    dist.init_process_group("gloo" if device == "cpu" else "cpu:gloo,cuda:nccl", timeout=_FOREVER)
    return init_device_mesh(device, (count,))


if __name__ == "__main__":
    run(Path(sys.argv[1]))
