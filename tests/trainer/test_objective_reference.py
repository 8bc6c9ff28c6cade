"""The objective against an independent reference: the formulas, turn by turn and token by token, in plain Python."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch")

from dartsim.config.sections.trainer import ObjectiveConfig
from dartsim.trainer.objective import objective


def token_terms(turn: Any, config: ObjectiveConfig) -> tuple[list[float], list[float]]:
    """Return w S + eta H and KL of each token of one turn."""
    n = len(turn.new)
    gaps = [a - b for a, b in zip(turn.new, turn.old, strict=True)]
    if config.ratio == "sequence":
        gaps = [sum(gaps) / n] * n
    missing = any(math.isnan(mu) for mu in turn.worker)
    weights = [1.0] * n
    if config.importance == "token" and not missing:
        weights = [min(math.exp(o - mu), config.importance_cap) for o, mu in zip(turn.old, turn.worker, strict=True)]
    if config.importance == "sequence" and not missing:
        weights = [min(math.exp(sum(turn.old) - sum(turn.worker)), config.importance_cap)] * n
    values, divergences = [], []
    for k in range(n):
        rho, advantage = math.exp(gaps[k]), turn.advantage
        clipped = min(max(rho, 1 - config.clip_low), 1 + config.clip_high)
        surrogate = min(rho * advantage, clipped * advantage)
        values.append(weights[k] * surrogate + config.entropy_coefficient * turn.entropy[k])
        d = turn.reference[k] - turn.new[k]
        divergences.append(math.exp(d) - d - 1)
    return values, divergences


def mean(values: list[float]) -> float:
    """Return the plain mean."""
    return sum(values) / len(values)


def average(rows: list[tuple[Any, list[float]]], aggregation: str) -> float:
    """Return the average over turns as configured; ``rows`` are those that count."""
    if aggregation == "token":
        return mean([value for _, values in rows for value in values])
    if aggregation == "turn":
        return mean([mean(values) for _, values in rows])
    units: dict[int, list[float]] = {}
    for turn, values in rows:
        if aggregation == "trajectory":
            units.setdefault(turn.trajectory, []).extend(values)
        else:
            units.setdefault(turn.group, []).append(mean(values))
    return mean([mean(values) for values in units.values()])


def reference_loss(turns: list[Any], config: ObjectiveConfig) -> float:
    """Return -J."""
    surrogates, divergences = [], []
    for turn in turns:
        missing = any(math.isnan(mu) for mu in turn.worker)
        if not turn.new or (missing and config.missing == "mask" and config.importance != "off"):
            continue
        values, kl = token_terms(turn, config)
        surrogates.append((turn, [v * turn.selected for v in values]))
        divergences.append((turn, [v * turn.selected for v in kl]))
    mean_kl = average(divergences, config.aggregation)
    return -average(surrogates, config.aggregation) + config.kl_coefficient * mean_kl


@pytest.mark.parametrize("seed", [0, 1])
def test_every_variant_agrees_with_the_reference(
    seed: int,
    turns: Callable[..., list[Any]],
    batch: Callable[..., Any],
    configs: list[ObjectiveConfig],
):
    toys = turns(seed)
    padded = batch(toys)
    for config in configs:
        assert objective(padded, config).loss.item() == pytest.approx(reference_loss(toys, config), rel=1e-9), config


def test_single_precision_agrees_to_a_millionth(
    turns: Callable[..., list[Any]], batch: Callable[..., Any], configs: list[ObjectiveConfig]
):
    toys = turns(2)
    padded = batch(toys, dtype="float32")
    for config in configs[::3]:
        expected = reference_loss(toys, config)
        assert objective(padded, config).loss.item() == pytest.approx(expected, rel=1e-6, abs=1e-6), config


def test_the_reference_sees_both_clips(turns: Callable[..., list[Any]], batch: Callable[..., Any]):
    # otherwise the agreement above would say little
    config = ObjectiveConfig(clip_low=0.15)
    health = objective(batch(turns(0)), config).health
    assert health.clipped_low > 0
    assert health.clipped_high > 0
    assert health.capped > 0
    assert health.masked_turns == 1
    assert health.unselected_turns == 2
