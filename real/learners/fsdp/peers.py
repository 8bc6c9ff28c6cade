"""``Ranks``: the processes of the default group, as ``dartsim.real.learners.gradient_steps.Peers``."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from dartsim.real.learners.mismatch import Mismatch
from dartsim.trainer.health import Health


class Ranks:
    """Adds up the parts of all processes. With one process, sums are exactly its own values."""

    def __init__(self, device: torch.device) -> None:
        self.rank = dist.get_rank()
        self.size = dist.get_world_size()
        self._device = device

    def add(self, values: Tensor) -> Tensor:
        return self._reduced(values, dist.ReduceOp.SUM)

    def norm(self, local: Tensor) -> Tensor:
        if self.size == 1:
            return local
        squares = (local.double() ** 2).cpu()
        return self.add(squares).sqrt().to(local.dtype).to(self._device)

    def health(self, health: Health) -> Health:
        values = asdict(health)
        largest = self._largest(values["mismatch_max"])
        sums = self.add(torch.tensor(list(values.values()), dtype=torch.float64)).tolist()
        return Health(**dict(zip(values, sums, strict=True)) | {"mismatch_max": largest})

    def mismatch(self, mismatch: Mismatch) -> Mismatch:
        total, tokens = self.add(torch.tensor([mismatch.total, mismatch.tokens], dtype=torch.float64)).tolist()
        return Mismatch(total, tokens, self._largest(mismatch.largest))

    def barrier(self) -> None:
        self.add(torch.zeros(1))

    def _largest(self, value: float) -> float:
        return float(self._reduced(torch.tensor(value, dtype=torch.float64), dist.ReduceOp.MAX))

    def _reduced(self, values: Tensor, operation: Any) -> Tensor:
        result = values.clone()
        if self.size > 1:
            dist.all_reduce(result, op=operation)
        return result
