"""``Ranks``: the processes that compute an update together: those of torch's default group, or this one alone."""

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

    def __init__(self, device: torch.device | None = None) -> None:
        together = dist.is_initialized()
        self.rank = dist.get_rank() if together else 0
        self.size = dist.get_world_size() if together else 1
        self._device = device

    def add(self, values: Tensor) -> Tensor:
        """Return the sum over all processes of each value."""
        return self._reduced(values, dist.ReduceOp.SUM)

    def norm(self, local: Tensor) -> Tensor:
        """Return the norm of the whole from the norm of this process's part."""
        if self.size == 1:
            return local
        squares = (local.double() ** 2).cpu()
        return self.add(squares).sqrt().to(local.dtype).to(self._device)

    def health(self, health: Health) -> Health:
        """Return the health of the whole batch."""
        values = asdict(health)
        largest = self._largest(values["mismatch_max"])
        sums = self.add(torch.tensor(list(values.values()), dtype=torch.float64)).tolist()
        return Health(**dict(zip(values, sums, strict=True)) | {"mismatch_max": largest})

    def mismatch(self, mismatch: Mismatch) -> Mismatch:
        """Return the mismatch of the whole batch."""
        total, tokens = self.add(torch.tensor([mismatch.total, mismatch.tokens], dtype=torch.float64)).tolist()
        return Mismatch(total, tokens, self._largest(mismatch.largest))

    def barrier(self) -> None:
        """Wait for all processes."""
        self.add(torch.zeros(1))

    def _largest(self, value: float) -> float:
        return float(self._reduced(torch.tensor(value, dtype=torch.float64), dist.ReduceOp.MAX))

    def _reduced(self, values: Tensor, operation: Any) -> Tensor:
        result = values.clone()
        if self.size > 1:
            dist.all_reduce(result, op=operation)
        return result
