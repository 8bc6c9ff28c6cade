"""``Setup``: what the processes of a learner are told at their start, as JSON."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter

from dartsim.config.sections.trainer import TrainerConfig
from dartsim.real.vlm.config import VlmConfig

SETUP = "setup.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What a rank is told at its start.

    Attributes:
        model: The model, with the folder of its first weights.
        trainer: How it is trained, and by how many.
        seed: Of the learner.
        socket: Where the driver listens.
    """

    model: VlmConfig
    trainer: TrainerConfig
    seed: int
    socket: str

    def write(self, folder: Path) -> None:
        """Write it for ``read``."""
        (folder / SETUP).write_bytes(TypeAdapter(Setup).dump_json(self, indent=1))

    @staticmethod
    def read(folder: Path) -> Setup:
        """Read what was written."""
        return TypeAdapter(Setup).validate_json((folder / SETUP).read_bytes())
