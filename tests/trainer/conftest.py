"""What the tests of the objective share: made-up turns as plain lists, and the same as a padded batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import pytest

from dartsim.config.sections.trainer import ObjectiveConfig


@dataclass(frozen=True, kw_only=True)
class ToyTurn:
    """One turn: a list entry a token."""

    new: list[float]
    old: list[float]
    worker: list[float]
    reference: list[float]
    entropy: list[float]
    advantage: float
    selected: bool
    trajectory: int
    group: int


def make_turns(seed: int, *, rows: int = 10, missing: bool = True) -> list[ToyTurn]:
    """Return turns that meet both clips; the last has no tokens, one lacks log-probabilities."""
    rng = np.random.default_rng(seed)
    turns = []
    for row in range(rows):
        length = 0 if row == rows - 1 else int(rng.integers(1, 7))
        old = -rng.exponential(1.0, length) - 0.05
        new = old + rng.normal(0.0, 0.35, length)
        advantage = float(rng.normal())
        if row == 0:  # a ratio of 20
            advantage, new = -1.3, old + 3.0
        worker = old + rng.normal(0.0, 0.4, length)
        if row == 2 and missing:
            worker[-1] = np.nan
        turns.append(
            ToyTurn(
                new=new.tolist(),
                old=old.tolist(),
                worker=worker.tolist(),
                reference=(new + rng.normal(0.0, 0.5, length)).tolist(),
                entropy=rng.exponential(1.0, length).tolist(),
                advantage=advantage,
                selected=row not in (3, 6),
                trajectory=10 + row // 2,
                group=5 - row // 5,
            )
        )
    return turns


def make_batch(turns: list[ToyTurn], *, dtype: str = "float64", padding: float = float("nan")) -> Any:
    """Return the turns as a ``TurnBatch`` whose padding holds ``padding``; ``new_BT`` wants a gradient."""
    torch = pytest.importorskip("torch")
    objective = pytest.importorskip("dartsim.trainer.objective")
    width = max(len(turn.new) for turn in turns) + 1

    def padded(name: str) -> Any:
        rows = [getattr(turn, name) + [padding] * (width - len(turn.new)) for turn in turns]
        return torch.tensor(rows, dtype=getattr(torch, dtype))

    return objective.TurnBatch(
        new_BT=padded("new").requires_grad_(),
        mask_BT=torch.tensor([[k < len(turn.new) for k in range(width)] for turn in turns]),
        advantage_B=torch.tensor([turn.advantage for turn in turns], dtype=torch.float64),
        old_BT=padded("old"),
        worker_BT=padded("worker"),
        reference_BT=padded("reference"),
        entropy_BT=padded("entropy"),
        selected_B=torch.tensor([turn.selected for turn in turns]),
        trajectory_B=torch.tensor([turn.trajectory for turn in turns]),
        group_B=torch.tensor([turn.group for turn in turns]),
    )


def every_config() -> list[ObjectiveConfig]:
    """Return every combination of the objective's choices."""
    return [
        ObjectiveConfig(
            ratio=ratio,
            clip_low=0.15,
            kl_coefficient=kl_coefficient,
            importance=importance,
            importance_cap=cap,
            missing=missing,
            aggregation=aggregation,
            entropy_coefficient=0.05,
        )
        for ratio, kl_coefficient, (importance, cap), missing, aggregation in product(
            ("token", "sequence"),
            (0.0, 0.1),
            (("off", 1.0), ("token", 1.0), ("token", 1.4), ("sequence", 1.2)),
            ("mask", "one"),
            ("token", "turn", "trajectory", "group"),
        )
    ]


@pytest.fixture
def turns() -> Callable[..., list[ToyTurn]]:
    """Return the maker of turns."""
    return make_turns


@pytest.fixture
def batch() -> Callable[..., Any]:
    """Return the maker of padded batches."""
    return make_batch


@pytest.fixture
def configs() -> list[ObjectiveConfig]:
    """Return every combination of the objective's choices."""
    return every_config()
