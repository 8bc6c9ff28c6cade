"""The objective's parts: weights, missing log-probabilities, selection, micro-batches, health, settings."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("torch")

import torch

from dartsim.config.sections.trainer import ObjectiveConfig
from dartsim.trainer.health import Health
from dartsim.trainer.objective import TurnBatch, objective, token_shares, truncated_ratio

PLAIN = ObjectiveConfig(kl_coefficient=0.0)


def small(new: list[list[float]], **inputs: Any) -> TurnBatch:
    """Return a batch of turns of equal length with advantage 1; ``worker`` defaults to the new policy."""
    new_BT = torch.tensor(new, dtype=torch.float64)
    inputs = {
        name: torch.tensor(value, dtype=torch.float64 if name.endswith("_BT") else None)
        for name, value in inputs.items()
    }
    inputs = {"advantage_B": torch.ones(len(new), dtype=torch.float64), "worker_BT": new_BT.clone()} | inputs
    return TurnBatch(new_BT=new_BT, mask_BT=torch.ones(new_BT.shape, dtype=torch.bool), **inputs)


@given(st.floats(-30, 0), st.floats(-30, 0), st.floats(0.1, 10))
def test_a_weight_is_the_ratio_at_most_the_cap(old: float, worker: float, cap: float):
    weight = truncated_ratio(
        torch.tensor([[old]], dtype=torch.float64), torch.tensor([[worker]], dtype=torch.float64), cap=cap
    )
    assert weight.item() == pytest.approx(min(math.exp(old - worker), cap))


@pytest.mark.parametrize("importance", ["token", "sequence"])
def test_a_weight_is_exactly_one_where_worker_and_learner_agree(importance: Any):
    health = objective(small([[-1.0, -2.0], [-0.1, -3.0]]), PLAIN.replace(importance=importance)).health
    assert health.metrics()["importance/mean_weight"] == 1.0
    assert health.metrics()["importance/capped_share"] == 0.0
    assert health.metrics()["importance/effective_sample_share"] == 1.0
    assert health.mismatch_max == 0.0


def test_an_old_policy_that_carries_a_graph_gets_no_gradient():
    batch = small([[-1.0, -2.0]], advantage_B=[2.0])
    batch.new_BT.requires_grad_()
    objective(replace(batch, old_BT=batch.new_BT), PLAIN).loss.backward()
    assert batch.new_BT.grad.tolist() == [[-1.0, -1.0]]  # with it, new - old would be constant


def test_half_precision_is_summed_in_single(turns: Callable[..., list[Any]], batch: Callable[..., Any]):
    padded = batch(turns(0), dtype="bfloat16")
    found = objective(padded, ObjectiveConfig())
    found.loss.backward()
    assert found.loss.dtype == torch.float32
    assert padded.new_BT.grad.dtype == torch.bfloat16


# -- missing log-probabilities -----------------------------------------------------------------------


def test_a_missing_logprob_masks_its_turn_and_is_reported():
    batch = small([[-1.0, -1.0], [-1.0, -1.0]], advantage_B=[5.0, 1.0], worker_BT=[[-1.0, math.nan], [-1.0, -1.0]])
    found = objective(batch, PLAIN)
    assert found.loss.item() == -1.0
    assert (found.health.metrics()["objective/missing_share"], found.health.metrics()["objective/masked_share"]) == (
        0.5,
        0.5,
    )


def test_a_missing_logprob_can_count_with_weight_one_and_is_still_reported():
    batch = small([[-1.0, -1.0], [-1.0, -1.0]], advantage_B=[5.0, 1.0], worker_BT=[[0.0, math.nan], [-1.0, -1.0]])
    found = objective(batch, PLAIN.replace(missing="one"))
    assert found.loss.item() == -3.0
    assert (found.health.metrics()["objective/missing_share"], found.health.metrics()["objective/masked_share"]) == (
        0.5,
        0.0,
    )
    assert found.health.weights == 2  # weights set to 1 do not pretend to be sampled ones


def test_without_importance_sampling_missing_logprobs_cost_nothing():
    batch = replace(small([[-1.0], [-1.0]], advantage_B=[5.0, 1.0]), worker_BT=None)
    found = objective(batch, PLAIN.replace(importance="off"))
    assert found.loss.item() == -3.0
    assert found.health.metrics()["objective/missing_share"] == 1.0


def test_a_batch_without_any_logprobs_trains_nothing_and_says_so():
    batch = replace(small([[-1.0], [-1.0]]), worker_BT=None)
    batch.new_BT.requires_grad_()
    found = objective(batch, PLAIN)
    found.loss.backward()
    assert found.loss.item() == 0.0
    assert batch.new_BT.grad.tolist() == [[0.0], [0.0]]
    assert found.health.metrics()["objective/masked_share"] == 1.0


# -- averages ------------------------------------------------------------------------------------------


def test_padding_is_never_looked_at(
    turns: Callable[..., list[Any]], batch: Callable[..., Any], configs: list[ObjectiveConfig]
):
    toy = turns(0)
    clean, dirty = batch(toy, padding=0.0), batch(toy, padding=math.nan)
    for config in configs[::5]:
        one, other = objective(clean, config), objective(dirty, config)
        assert one.loss.item() == other.loss.item()
        assert one.health == other.health
        (gradient,) = torch.autograd.grad(other.loss, dirty.new_BT)
        assert gradient[~dirty.mask_BT].tolist() == [0.0] * int((~dirty.mask_BT).sum())


@pytest.mark.parametrize("cut", [1, 3, 9])
def test_micro_batches_add_up_to_their_batch(
    cut: int, turns: Callable[..., list[Any]], batch: Callable[..., Any], configs: list[ObjectiveConfig]
):
    toy = turns(1)
    whole = batch(toy)
    width = whole.mask_BT.shape[1]
    for config in configs[::5]:
        expected = objective(whole, config)
        shares_BT = token_shares(whole, config)
        rows = [slice(0, cut), slice(cut, len(toy))]
        parts = [objective(rows_of(whole, part), config, shares_BT=shares_BT[part]) for part in rows]
        assert sum(part.loss.item() for part in parts) == pytest.approx(expected.loss.item())
        total = sum((part.health for part in parts), Health())
        for name, value in expected.health.metrics().items():
            assert total.metrics()[name] == pytest.approx(value), name
    assert width == whole.new_BT.shape[1]


def rows_of(batch: TurnBatch, rows: slice) -> TurnBatch:
    """Return some turns of a batch."""
    names = TurnBatch.__dataclass_fields__
    return TurnBatch(**{name: None if (x := getattr(batch, name)) is None else x[rows] for name in names})


# -- health --------------------------------------------------------------------------------------------


def test_the_health_of_a_batch_by_hand():
    log = math.log
    batch = small(
        [[-2.0, -2.0], [-2.0, -2.0]],
        advantage_B=[1.0, -1.0],
        old_BT=[[-2.0 - log(1.5), -2.0], [-2.0 - log(0.5), -2.0 - log(20)]],
        worker_BT=[[-2.0 - log(1.5) - log(4), -2.0 + log(2)], [-2.0 - log(0.5), -2.0 - log(20)]],
        reference_BT=[[-1.0, -2.0], [-2.0, -2.0]],
        entropy_BT=[[0.5, 0.5], [1.0, 2.0]],
    )
    health = objective(batch, ObjectiveConfig()).health
    assert health.metrics()["objective/mean_ratio"] == pytest.approx((1.5 + 1 + 0.5 + 20) / 4)
    assert health.metrics()["objective/clipped_high_share"] == 0.25
    assert health.metrics()["objective/clipped_low_share"] == 0.25
    assert health.metrics()["importance/mean_weight"] == pytest.approx((1 + 0.5 + 1 + 1) / 4)
    assert health.metrics()["importance/capped_share"] == 0.25
    assert health.metrics()["importance/effective_sample_share"] == pytest.approx(3.5**2 / (4 * 3.25))
    assert health.metrics()["importance/raw_effective_sample_share"] == pytest.approx(6.5**2 / (4 * 18.25))
    assert health.metrics()["objective/kl_reference"] == pytest.approx((math.e - 2) / 4)
    assert health.metrics()["objective/kl_old_new"] == pytest.approx(
        (1.5 + 0.5 + 20 + 1 - log(1.5) - log(0.5) - log(20) - 4) / 4
    )
    assert health.metrics()["objective/entropy"] == 1.0
    assert health.mismatch_max == pytest.approx(log(4))
    assert health.metrics()["importance/mismatch_mean"] == pytest.approx((log(4) + log(2)) / 4)
    assert health.metrics()["objective/missing_share"] == 0.0


def test_health_stays_finite_where_policies_have_nothing_in_common():
    batch = small([[-1.0, -2.0]], worker_BT=[[-5000.0, -2000.0]])
    for importance in ("token", "sequence"):
        metrics = objective(batch, PLAIN.replace(importance=importance)).health.metrics()
        assert all(math.isfinite(value) for value in metrics.values())


def test_the_reference_divergence_is_reported_even_where_it_is_not_penalised():
    found = objective(small([[-1.0]], reference_BT=[[0.0]]), PLAIN)
    assert found.loss.item() == -1.0
    assert found.health.metrics()["objective/kl_reference"] == pytest.approx(math.e - 2)


# -- what is refused -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (ObjectiveConfig(), "kl_coefficient 0.1 needs reference_BT"),
        (PLAIN.replace(entropy_coefficient=0.1), "needs entropy_BT"),
        (PLAIN.replace(aggregation="trajectory"), "needs trajectory_B"),
        (PLAIN.replace(aggregation="group"), "needs group_B"),
    ],
)
def test_an_absent_input_is_refused(config: ObjectiveConfig, message: str):
    with pytest.raises(ValueError, match=message):
        objective(small([[-1.0]]), config)


def test_an_input_of_another_shape_is_refused():
    with pytest.raises(ValueError, match=r"old_BT must be of shape \(1, 1\) as mask_BT is, got \(1, 2\)"):
        small([[-1.0]], old_BT=[[-1.0, -1.0]])
    with pytest.raises(ValueError, match="mask_BT must be bool"):
        TurnBatch(new_BT=torch.zeros(1, 1), mask_BT=torch.zeros(1, 1), advantage_B=torch.zeros(1))
