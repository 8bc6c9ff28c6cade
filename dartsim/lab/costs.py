"""What the machines of a configuration cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dartsim.config import Config


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices in one currency; by default cost is counted in GPU hours.

    Attributes:
        gpu_hour: Of one GPU for an hour, rollout or trainer.
        host_hour: Of one machine for desktops for an hour.
    """

    gpu_hour: float = 1.0
    host_hour: float = 0.0

    def per_hour(self, config: Config) -> float:
        """Return what all machines of a configuration cost in an hour."""
        return self.gpu_hour * num_gpus(config) + self.host_hour * config.cluster.hosts.count

    def figures(self, config: Config, turns_per_minute: float | None) -> dict[str, Any]:
        """Return the cost an hour, and of 1,000 trained turns; None where none was trained."""
        cost = self.per_hour(config)
        per_turn = cost / (60.0 * turns_per_minute) if turns_per_minute else None
        return {"cost_per_hour": cost, "cost_per_1000_turns": None if per_turn is None else 1000.0 * per_turn}


GPU_HOURS = Prices()
"""No prices: cost is GPU hours."""


def num_gpus(config: Config) -> int:
    """Return the GPUs of workers and trainer."""
    return config.rollout.num_workers + config.cluster.learner.gpus
