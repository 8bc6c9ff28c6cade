"""The objective's gradient against central finite differences, on a small softmax policy in double precision."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("torch")

import torch

from dartsim.config import load
from dartsim.config.sections.trainer import ObjectiveConfig
from dartsim.trainer.objective import TurnBatch, objective

CONTEXTS, ACTIONS = 3, 4
STEP = 1e-6

DART_PAPER = ObjectiveConfig()
DART_RELEASED = load("dart-released").trainer.objective
DART_RELEASED_PPO = DART_RELEASED.replace(ratio="token")


class ToyPolicy:
    """A table of logits; each token of a batch is one action in one context, drawn once."""

    def __init__(self, batch: TurnBatch, seed: int) -> None:
        chance = torch.Generator().manual_seed(seed)
        self.logits = torch.randn(CONTEXTS, ACTIONS, dtype=torch.float64, generator=chance)
        self.context_BT = torch.randint(CONTEXTS, batch.mask_BT.shape, generator=chance)
        self.action_BT = torch.randint(ACTIONS, batch.mask_BT.shape, generator=chance)
        start_BT = self.logprobs(self.logits)[0]
        drift_BT = torch.randn(batch.mask_BT.shape, dtype=torch.float64, generator=chance) * 0.35
        drift_BT[0] = -3.0
        missing_BT = torch.where(torch.isnan(batch.worker_BT) & batch.mask_BT, torch.nan, 0.0)
        self.batch = replace(
            batch,
            old_BT=start_BT + drift_BT,
            worker_BT=start_BT - 0.7 * drift_BT.roll(1, 1) + missing_BT,
            reference_BT=start_BT + 1.3 * drift_BT.roll(2, 1).clamp(-1, 1),
        )

    def logprobs(self, logits: Any) -> tuple[Any, Any]:
        """Return [B, T] log-probabilities of the actions, and entropies."""
        logprobs = torch.log_softmax(logits, -1)
        entropies = -(logprobs.exp() * logprobs).sum(-1)
        return logprobs[self.context_BT, self.action_BT], entropies[self.context_BT]

    def loss(self, logits: Any, config: ObjectiveConfig) -> Any:
        """Return the loss as a function of the logits."""
        new_BT, entropy_BT = self.logprobs(logits)
        return objective(replace(self.batch, new_BT=new_BT, entropy_BT=entropy_BT), config).loss


def worst_difference(policy: ToyPolicy, config: ObjectiveConfig) -> float:
    """Return the largest difference between the gradient and central finite differences."""
    logits = policy.logits.clone().requires_grad_()
    policy.loss(logits, config).backward()
    worst = 0.0
    with torch.no_grad():
        for place in range(logits.numel()):
            shift = torch.zeros(logits.numel(), dtype=torch.float64)
            shift[place] = STEP
            shift = shift.view_as(logits)
            ahead, behind = policy.loss(policy.logits + shift, config), policy.loss(policy.logits - shift, config)
            numeric = ((ahead - behind) / (2 * STEP)).item()
            worst = max(worst, abs(numeric - logits.grad.view(-1)[place].item()))
    return worst


def test_every_variant_agrees_with_finite_differences(
    turns: Callable[..., list[Any]], batch: Callable[..., Any], configs: list[ObjectiveConfig]
):
    policy = ToyPolicy(batch(turns(0)), seed=0)
    for config in configs[::17]:  # 17 divides no number of choices: every one of them is met
        assert worst_difference(policy, config) < 1e-6, config


@pytest.mark.parametrize("config", [DART_PAPER, DART_RELEASED, DART_RELEASED_PPO])
@pytest.mark.parametrize("seed", [1, 2])
def test_the_named_settings_agree_with_finite_differences(
    config: ObjectiveConfig, seed: int, turns: Callable[..., list[Any]], batch: Callable[..., Any]
):
    assert worst_difference(ToyPolicy(batch(turns(seed)), seed=seed), config) < 1e-6


def test_no_gradient_passes_through_the_importance_weight(turns: Callable[..., list[Any]], batch: Callable[..., Any]):
    # without an old policy of its own, old and new are one tensor: only a detached weight leaves w A as gradient
    toy = turns(3, missing=False)
    padded = replace(batch(toy), old_BT=None, selected_B=None)
    config = ObjectiveConfig(kl_coefficient=0.0, importance_cap=1.5, aggregation="token")
    objective(padded, config).loss.backward()
    tokens = sum(len(turn.new) for turn in toy)
    for row, turn in enumerate(toy):
        for k, (new, worker) in enumerate(zip(turn.new, turn.worker, strict=True)):
            weight = min(torch.tensor(new - worker).exp().item(), 1.5)
            assert padded.new_BT.grad[row, k].item() == pytest.approx(-weight * turn.advantage / tokens, rel=1e-6)


def test_ratios_beyond_all_bounds_leave_finite_gradients(turns: Callable[..., list[Any]], batch: Callable[..., Any]):
    toy = [replace(turn, old=[-2000.0] * len(turn.old)) for turn in turns(5)]
    for config in (DART_PAPER, DART_RELEASED, DART_RELEASED_PPO):
        padded = batch(toy)
        found = objective(padded, config)
        found.loss.backward()
        assert torch.isfinite(found.loss)
        assert torch.isfinite(padded.new_BT.grad).all()
