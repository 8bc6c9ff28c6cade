"""A supervised warm start on demonstrations: what a scripted oracle answers to what it sees.

Reinforcement learns to click on one of nine cells from random weights. Free text, pixel coordinates and finer
grids need a first idea of what to say, which some ten seconds of imitation give.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from dartsim.core.types import Observation, Turn
from dartsim.real.vlm.model import Vlm
from dartsim.real.vlm.packing import Example, pack, rows_of, score, split


class Demonstration(NamedTuple):
    """What was seen, the turns before, and the action that a teacher took."""

    observation: Observation
    history: Sequence[Turn]
    action: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmStart:
    """How a model imitates.

    Attributes:
        steps: Gradient steps.
        batch: Demonstrations a step.
        learning_rate: Of AdamW, after a tenth of the steps; it falls to a tenth by a cosine.
        max_grad_norm: Longer gradients are shortened to this.
        max_tokens: Padded tokens of a micro-batch.
        seed: Of the order of demonstrations.
    """

    steps: int = 200
    batch: int = 64
    learning_rate: float = 1e-3
    max_grad_norm: float = 1.0
    max_tokens: int = 16_384
    seed: int = 0


def examples_of(vlm: Vlm, demonstrations: Sequence[Demonstration]) -> list[Example]:
    """Return demonstrations as a model reads them.

    Raises:
        ValueError: If the model's grammar has no way to write an action.
    """
    examples = []
    for shown in demonstrations:
        tokens = vlm.grammar.tokens(shown.action)
        states = np.asarray(vlm.grammar.states(tokens), dtype=np.int64)
        prompt = vlm.prompts.build(shown.observation, shown.history)
        examples.append(Example(prompt, np.asarray(tokens, dtype=np.int64), states))
    return examples


def warm_start(
    vlm: Vlm,
    demonstrations: Sequence[Demonstration],
    settings: WarmStart | None = None,
    *,
    on_step: Callable[[int, float], None] | None = None,
) -> list[float]:
    """Imitate demonstrations in place; return the loss of each step, nats a demonstration's token.

    Args:
        vlm: The model.
        demonstrations: What is imitated.
        settings: How.
        on_step: Given the step and its loss; for a progress bar.
    """
    settings = settings or WarmStart()
    examples = examples_of(vlm, demonstrations)
    rng = np.random.default_rng(settings.seed)
    parameters = [p for p in vlm.model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(
        parameters, lr=settings.learning_rate, betas=(0.9, 0.98), weight_decay=0.0, fused=True
    )
    losses: list[float] = []
    order: list[int] = []
    for step in range(settings.steps):
        while len(order) < settings.batch:
            order.extend(rng.permutation(len(examples)).tolist())
        chosen, order = [examples[i] for i in order[: settings.batch]], order[settings.batch :]
        count = sum(len(example.tokens) for example in chosen)
        optimizer.zero_grad()
        total = 0.0
        for rows in split(rows_of(chosen), max_tokens=settings.max_tokens):
            logprobs, _ = score(vlm, pack(vlm, rows, chosen))
            loss = -logprobs.sum() / count
            loss.backward()  # type: ignore[no-untyped-call]
            total += loss.item()
        torch.nn.utils.clip_grad_norm_(parameters, settings.max_grad_norm)
        for group in optimizer.param_groups:
            group["lr"] = settings.learning_rate * _shape(step, settings.steps)
        optimizer.step()
        losses.append(total)
        if on_step is not None:
            on_step(step, total)
    return losses


def _shape(step: int, steps: int) -> float:
    """Return the share of the learning rate: up over a tenth of the steps, then down a cosine to a tenth."""
    rise = max(1, steps // 10)
    if step < rise:
        return (step + 1) / rise
    return float(0.1 + 0.45 * (1 + np.cos(np.pi * (step - rise) / max(1, steps - rise))))
