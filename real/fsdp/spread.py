"""``FsdpSettings``: how a learner is spread over processes and machines. Needs no torch, so that a plan can be told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class FsdpSettings:
    """How a learner is spread over processes.

    Attributes:
        ranks: Processes, one GPU each where there are some.
        nodes: Machines, with equally many ranks each; the driver is on the first and starts those there.
        address: ``HOST:PORT`` of the first machine, where the ranks of several meet.
        interface: Network interface by which ranks of several machines talk; empty: the one of the machine's name.
        device: ``auto`` takes GPUs if there are as many as ranks.
        gpus: GPUs of a machine's ranks, by number, in order; empty: the first ones.
        precision: Of what is computed and gathered. Trained weights, gradients that are summed and optimizer state
            stay in the model's own.
        checkpoint_every: Updates between checkpoints. More than 1 saves time, and loses up to as many updates when a
            rank dies: then the weights go back to the last checkpoint.
        keep_weights: Newest exported weights that are kept; workers must have loaded them by then.
        start_seconds: The ranks must be up within this time.
        update_seconds: An update, or another order, must be done within this time.
    """

    ranks: int = 2
    nodes: int = 1
    address: str = ""
    interface: str = ""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    gpus: tuple[int, ...] = ()
    precision: Literal["float32", "bfloat16"] = "float32"
    checkpoint_every: int = 1
    keep_weights: int = 4
    start_seconds: float = 600.0
    update_seconds: float = 7_200.0

    def __post_init__(self) -> None:
        for name in ("ranks", "nodes", "checkpoint_every", "keep_weights", "start_seconds", "update_seconds"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be positive, got {getattr(self, name)}")
        if self.ranks % self.nodes:
            raise ValueError(f"{self.ranks} ranks cannot be dealt to {self.nodes} machines, equally many on each")
        if self.gpus and len(self.gpus) != self.ranks_a_node:
            raise ValueError(f"{self.ranks_a_node} ranks want as many GPUs, got {len(self.gpus)}: {self.gpus}")
        if self.nodes > 1 and not self.address.rpartition(":")[2].isdecimal():
            raise ValueError(f"ranks on {self.nodes} machines meet at HOST:PORT of the first, got {self.address!r}")

    @property
    def ranks_a_node(self) -> int:
        """Processes on each machine."""
        return self.ranks // self.nodes
