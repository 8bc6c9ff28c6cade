"""``Setup``: what the processes of a learner are told at their start, as JSON."""

from __future__ import annotations

import json
import types
import typing
from collections.abc import Mapping
from dataclasses import asdict, dataclass, is_dataclass
from pathlib import Path
from typing import Any, TypeVar

from dartsim.core.section import Section
from dartsim.real.fsdp.spread import FsdpSettings
from dartsim.real.learner_config import LearnerConfig
from dartsim.real.vlm.config import VlmConfig

T = TypeVar("T")

SETUP = "setup.json"


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
        (folder / SETUP).write_text(
            json.dumps(asdict(self), indent=1, default=Section.model_dump) + "\n", encoding="utf-8"
        )

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
    if isinstance(hint, type) and issubclass(hint, Section):
        return hint(**value)
    if is_dataclass(hint) and isinstance(hint, type):
        return made(hint, value)
    return tuple(value) if isinstance(value, list) else value
