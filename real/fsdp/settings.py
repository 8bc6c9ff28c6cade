"""``FsdpSettings``: how a learner is spread over processes; and what those are told at their start, as JSON."""

from __future__ import annotations

import json
import types
import typing
from collections.abc import Mapping
from dataclasses import asdict, dataclass, is_dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from real.learner_config import LearnerConfig
from real.vlm.config import VlmConfig

T = TypeVar("T")

SETUP = "setup.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class FsdpSettings:
    """How a learner is spread over processes.

    Attributes:
        ranks: Processes, one GPU each where there are some.
        device: ``auto`` takes GPUs if there are as many as ranks.
        gpus: GPUs of the ranks, by number, in order; empty: the first ones.
        precision: Of what is computed and gathered. Trained weights, gradients that are summed and optimizer state
            stay in the model's own.
        checkpoint_every: Updates between checkpoints. More than 1 saves time, and loses up to as many updates when a
            rank dies: then the weights go back to the last checkpoint.
        keep_weights: Newest exported weights that are kept; workers must have loaded them by then.
        start_seconds: The ranks must be up within this time.
        update_seconds: An update, or another order, must be done within this time.
    """

    ranks: int = 2
    device: Literal["auto", "cpu", "cuda"] = "auto"
    gpus: tuple[int, ...] = ()
    precision: Literal["float32", "bfloat16"] = "float32"
    checkpoint_every: int = 1
    keep_weights: int = 4
    start_seconds: float = 600.0
    update_seconds: float = 7_200.0

    def __post_init__(self) -> None:
        for name in ("ranks", "checkpoint_every", "keep_weights", "start_seconds", "update_seconds"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be positive, got {getattr(self, name)}")
        if self.gpus and len(self.gpus) != self.ranks:
            raise ValueError(f"{self.ranks} ranks want as many GPUs, got {len(self.gpus)}: {self.gpus}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What a rank is told at its start.

    Attributes:
        model: The model, with the folder of its first weights.
        learner: How it is trained.
        fsdp: How it is spread.
        seed: Of the learner.
        socket: Where the driver listens.
    """

    model: VlmConfig
    learner: LearnerConfig
    fsdp: FsdpSettings
    seed: int
    socket: str

    def write(self, folder: Path) -> None:
        """Write it for ``read``."""
        (folder / SETUP).write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")

    @staticmethod
    def read(folder: Path) -> Setup:
        """Read what was written."""
        return made(Setup, json.loads((folder / SETUP).read_text(encoding="utf-8")))


def made(cls: type[T], values: Mapping[str, Any]) -> T:
    """Return a dataclass of the values that ``json`` made of ``asdict``: lists are tuples again."""
    hints = typing.get_type_hints(cls)
    return cls(**{name: _made(hints[name], value) for name, value in values.items()})


def _made(hint: Any, value: Any) -> Any:
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        inner = [arg for arg in typing.get_args(hint) if arg is not type(None)]
        return None if value is None else _made(inner[0], value)
    if is_dataclass(hint) and isinstance(hint, type):
        return made(hint, value)
    return tuple(value) if isinstance(value, list) else value
