"""Stand-ins for the ranks of a learner: they read each update's turns, and publish the weights that they were given."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import torch
from typing_extensions import override

from dartsim.real.learners.fsdp.files import Setup, read_turns_from, write_tensor
from dartsim.real.learners.fsdp.group import RankGroup
from dartsim.real.scratch import replaced_folder
from dartsim.real.vlm.export import export_weights, read_weights


class StandInRanks(RankGroup):
    """Carries out the orders of ``dartsim.real.learners.fsdp.rank`` in this process, without a model."""

    running = False

    @override
    def start(self) -> None:
        self._prepare()
        self._setup = Setup.read(self._folder)
        self.running = True

    @override
    def ask(self, order: dict[str, Any], seconds: float) -> dict[str, Any]:
        metrics: dict[str, float] = {}
        if "turns" in order:
            data = read_turns_from(Path(order["turns"]))
            metrics = {"learner/turns": float(len(data.examples))}
            if order["do"] == "score":
                write_tensor(torch.zeros(2, *data.mask.shape), Path(order["out"]))
        updates = order.get("update") or order.get("version") or 0
        if (weights := order.get("weights")) is not None:
            model = Path(str(self._setup.model.folder))
            # In the type of the engines' weights, as ranks do: engines refuse any other.
            export_weights(read_weights(model, ()), Path(weights), like=model, dtype=self._setup.export_dtype)
        if (checkpoint := order.get("checkpoint") or (order["folder"] if order["do"] == "save" else None)) is not None:
            _copy(Path(str(self._setup.model.folder)), Path(checkpoint))
            about = {"seed": self._setup.seed, "updates": updates}
            (Path(checkpoint) / "learner.json").write_text(json.dumps(about), encoding="utf-8")
        return {"metrics": metrics, "updates": updates}

    @override
    def kill(self) -> None:
        self.running = False


def _copy(source: Path, target: Path) -> None:
    with replaced_folder(target) as partial:
        shutil.copytree(source, partial, dirs_exist_ok=True)
