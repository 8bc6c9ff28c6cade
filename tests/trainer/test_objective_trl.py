"""The objective against TRL's published GRPO loss, on the cases both have.

TRL's loss is a method of its trainer; it is called on a stand-in that has the settings it reads, with
log-probabilities that are given instead of computed. TRL takes importance weights as an input, made by its
formula here: exp of the difference, or of its sum over a sequence, at most the cap.
"""

from __future__ import annotations

import math
import warnings
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("trl", reason="TRL is not installed; it is only needed to compare with its loss")

import torch

from dartsim.config.sections.trainer import ObjectiveConfig
from dartsim.trainer.objective import objective

AGGREGATION = {"turn": "grpo", "token": "bnpo"}


@pytest.fixture(scope="module")
def trl_loss() -> Callable[[Any, ObjectiveConfig], Any]:
    """Return TRL's loss as a function of a batch and our settings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from trl.trainer.grpo_trainer import GRPOTrainer

    def loss(batch: Any, config: ObjectiveConfig, *, dapo: bool = False) -> Any:
        trainer = TrlTrainer(batch, config, "dapo" if dapo else AGGREGATION[config.aggregation])
        inputs = {
            "prompt_ids": torch.zeros(len(batch.mask_BT), 1, dtype=torch.long),
            "prompt_mask": torch.ones(len(batch.mask_BT), 1, dtype=torch.long),
            "completion_ids": torch.zeros(batch.mask_BT.shape, dtype=torch.long),
            "completion_mask": batch.mask_BT.long(),
            "advantages": batch.advantage_B,
            "old_per_token_logps": batch.old_BT,
            "ref_per_token_logps": batch.reference_BT,
            "num_items_in_batch": batch.mask_BT.sum(),
        }
        if config.importance != "off":
            inputs["importance_sampling_ratio"] = trl_weights(batch, config)
        return GRPOTrainer._compute_loss(trainer, trainer.model, inputs)

    return loss


def trl_weights(batch: Any, config: ObjectiveConfig) -> Any:
    """Return TRL's importance weights: ``token_truncate`` or ``sequence_truncate``."""
    difference = (batch.old_BT - batch.worker_BT) * batch.mask_BT
    if config.importance == "sequence":
        difference = difference.sum(-1, keepdim=True)
    return torch.exp(difference).clamp(max=config.importance_cap)


class Accelerator:
    """Of one process: every collective operation returns what it is given."""

    num_processes = 1

    def gather(self, value: Any) -> Any:
        return value

    gather_for_metrics = gather

    def reduce(self, value: Any, reduction: str) -> Any:
        return value


class Arguments:
    use_bias_correction_kl = False
    delta = None


class EvaluatedModel:
    training = False


class TrlTrainer:
    """The attributes of a TRL trainer that its loss reads."""

    model = EvaluatedModel()
    accelerator = Accelerator()
    aux_loss_enabled = False
    top_entropy_quantile = 1.0
    off_policy_mask_threshold = None
    vllm_importance_sampling_correction = True
    _entropy_bonus_enabled = False

    def __init__(self, batch: Any, config: ObjectiveConfig, loss_type: str) -> None:
        self.args = Arguments()
        self.importance_sampling_level = config.ratio
        self.beta = config.kl_coefficient
        self.loss_type = loss_type
        self.epsilon_low, self.epsilon_high = config.clip_low, config.clip_high
        self.use_vllm = config.importance != "off"
        self._metrics: Any = {"eval": defaultdict(list)}
        self._new_BT = batch.new_BT

    def _get_per_token_logps_and_entropies(self, *_: Any, **__: Any) -> Any:
        return self._new_BT, torch.zeros_like(self._new_BT), None


SHARED = [
    ObjectiveConfig(
        ratio=ratio,
        clip_low=clip_low,
        kl_coefficient=kl_coefficient,
        importance=importance,
        importance_cap=1.3,
        aggregation=aggregation,
    )
    for ratio, clip_low, kl_coefficient, importance, aggregation in product(
        ("token", "sequence"),
        (0.2, 0.1),
        (0.0, 0.1),
        ("off", "token", "sequence"),
        ("turn", "token"),
    )
    # TRL takes the mean over tokens of a value that stands once a sequence, which it broadcasts: same as ours
]


def shared_batch(turns: Callable[..., list[Any]], batch: Callable[..., Any], seed: int) -> Any:
    """Return a batch without what only we have: empty rows, missing log-probabilities, selection."""
    toy = [turn for turn in turns(seed, missing=False) if turn.new]
    return replace(batch(toy, padding=0.0), selected_B=None)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_losses_and_gradients_agree_on_the_shared_cases(
    seed: int, turns: Callable[..., list[Any]], batch: Callable[..., Any], trl_loss: Callable[..., Any]
):
    padded = shared_batch(turns, batch, seed)
    for config in SHARED:
        ours, theirs = objective(padded, config).loss, trl_loss(padded, config)
        assert ours.item() == pytest.approx(theirs.item(), abs=1e-6), config
        (our_gradient,) = torch.autograd.grad(ours, padded.new_BT)
        (their_gradient,) = torch.autograd.grad(theirs, padded.new_BT)
        assert torch.allclose(our_gradient, their_gradient, rtol=0, atol=1e-6), config


def test_trls_dapo_is_our_mean_over_tokens(
    turns: Callable[..., list[Any]], batch: Callable[..., Any], trl_loss: Callable[..., Any]
):
    padded = shared_batch(turns, batch, 3)
    config = ObjectiveConfig(aggregation="token")
    expected = trl_loss(padded, config, dapo=True).item()
    assert objective(padded, config).loss.item() == pytest.approx(expected, abs=1e-6)


def test_group_statistics_agree_with_trls_formula():
    # TRL: rewards grouped, std with n - 1, 1e-4 added (its epsilon), one sample a completion
    from dartsim.config.sections.trainer import AdvantageConfig
    from dartsim.trainer.advantages import group_advantages

    rewards = torch.tensor([1.0, 0.0, 0.0, 0.25], dtype=torch.float64)
    theirs = (rewards - rewards.mean()) / (rewards.std() + 1e-4)
    config = AdvantageConfig(level="trajectory", spread="unbiased", epsilon=1e-4)
    ours = group_advantages(rewards.tolist(), [9, 1, 4, 2], config).values_N
    assert ours.tolist() == pytest.approx(theirs.tolist(), rel=1e-12)
    assert math.isclose(ours.sum(), 0.0, abs_tol=1e-12)
