"""A supervised warm start on demonstrations of a scripted oracle.

Reinforcement alone learns to click on one of nine cells from random weights. Free text, pixel coordinates and finer
grids need a start, which some ten seconds of imitation give.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from dartsim.core.types import Observation, Turn
from dartsim.real.vlm.model import Vlm
from dartsim.real.vlm.packing import Example, pack, rows_of, score, split


class Demonstration(NamedTuple):
    """An observation, the turns before it, and the oracle's action."""

    observation: Observation
    history: Sequence[Turn]
    action: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmStart:
    """Settings of the imitation.

    Attributes:
        steps: Gradient steps.
        present_steps: Steps before them on prompts that show the present screenshot alone. They are short, and
            spare the model from learning where to look while it learns what it sees.
        batch: Turns a step, at least; an episode is not divided.
        learning_rate: AdamW's, after a warmup of a tenth of the steps; it falls to a tenth by a cosine.
        max_tokens: Tokens of a micro-batch.
        seed: Seed of the order of demonstrations.
    """

    steps: int = 200
    present_steps: int = 0
    batch: int = 64
    learning_rate: float = 1e-3
    max_tokens: int = 2_048
    seed: int = 0


def examples_of(vlm: Vlm, demonstrations: Sequence[Demonstration]) -> list[Example]:
    """Return demonstrations as examples of a model.

    Raises:
        ValueError: If the model's grammar cannot write an action.
    """
    examples = []
    for demonstration in demonstrations:
        tokens = vlm.grammar.tokens(demonstration.action)
        prompt = vlm.prompts.build(demonstration.observation, demonstration.history)
        examples.append(Example(prompt, np.asarray(tokens, dtype=np.int64)))
    return examples


def warm_start(
    vlm: Vlm,
    demonstrations: Sequence[Demonstration],
    settings: WarmStart | None = None,
    *,
    on_step: Callable[[int, float], None] | None = None,
) -> list[float]:
    """Train the model on demonstrations in place; return the loss of each step, nats a token.

    ``on_step`` is called with each step and its loss, for a progress bar.
    """
    settings = settings or WarmStart()
    stages = [
        (settings.present_steps, [demonstration._replace(history=()) for demonstration in demonstrations]),
        (settings.steps, demonstrations),
    ]
    losses: list[float] = []
    for steps, shown in stages:
        for loss in _imitate(vlm, _episodes(vlm, shown), steps, settings) if steps else ():
            if on_step is not None:
                on_step(len(losses), loss)
            losses.append(loss)
    return losses


def _episodes(vlm: Vlm, demonstrations: Sequence[Demonstration]) -> list[list[Example]]:
    """Return the examples of each episode; the turns of one share most of their prompts, and are computed together."""
    episodes: list[list[Example]] = []
    for demonstration, example in zip(demonstrations, examples_of(vlm, demonstrations), strict=True):
        if not (episodes and demonstration.history):
            episodes.append([])
        episodes[-1].append(example)
    return episodes


def _imitate(vlm: Vlm, episodes: Sequence[list[Example]], steps: int, settings: WarmStart) -> Iterator[float]:
    """Take gradient steps and yield the loss of each."""
    rng = np.random.default_rng(settings.seed)
    parameters = [p for p in vlm.model.parameters() if p.requires_grad]
    held_in = parameters[0].dtype
    for parameter in parameters:
        parameter.data = parameter.data.float()  # in less, small steps would round to nothing
    optimizer = torch.optim.AdamW(
        parameters, lr=settings.learning_rate, betas=(0.9, 0.98), weight_decay=0.0, fused=True
    )
    order: list[list[Example]] = []
    for step in range(steps):
        chosen: list[Example] = []
        while len(chosen) < settings.batch:
            order = order or [episodes[i] for i in rng.permutation(len(episodes))]
            chosen += order.pop()
        count = sum(len(example.tokens) for example in chosen)
        optimizer.zero_grad()
        total = 0.0
        for rows in split(rows_of(chosen), max_tokens=settings.max_tokens):
            logprobs, _ = score(vlm, pack(vlm, rows, chosen))
            loss = -logprobs.sum() / count
            loss.backward()  # type: ignore[no-untyped-call]
            total += loss.item()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        for group in optimizer.param_groups:
            group["lr"] = settings.learning_rate * _rate_share(step, steps)
        optimizer.step()
        yield total
    for parameter in parameters:
        parameter.data = parameter.data.to(held_in)


def _rate_share(step: int, steps: int) -> float:
    """Return the share of the learning rate: it rises for a tenth of the steps, then falls by a cosine to a tenth."""
    warmup = max(1, steps // 10)
    if step < warmup:
        return (step + 1) / warmup
    return float(0.1 + 0.45 * (1 + np.cos(np.pi * (step - warmup) / max(1, steps - warmup))))
