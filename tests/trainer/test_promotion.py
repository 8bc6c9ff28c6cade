"""Promotion by paired bootstrap: exact on degenerate cases, and seldom wrong on drawn ones."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dartsim.config.sections.trainer import PromotionConfig
from dartsim.core.types import Attempt, Ending, Task, Trajectory
from dartsim.trainer.promotion import (
    HeldOutRewards,
    Promotions,
    Verdict,
    paired_bootstrap,
    resampled_means,
)

scores = st.dictionaries(st.sampled_from([f"t{i}" for i in range(12)]), st.sampled_from([0.0, 0.25, 1.0]), min_size=1)


def evaluation(version: int, means: list[float]) -> HeldOutRewards:
    return HeldOutRewards(version=version, rewards={f"t{i}": [mean] for i, mean in enumerate(means)})


def promotions(**rule: Any) -> Promotions:
    return Promotions(rule=PromotionConfig(**rule), rng=np.random.default_rng(0))


def verdicts(old: list[float], new: list[float], **rule: Any) -> tuple[Verdict, str, int | None]:
    judge = promotions(**rule)
    judge.judge(evaluation(0, old))
    decision = judge.judge(evaluation(1, new))
    return decision.verdict, decision.reason, decision.promoted


# -- degenerate cases, exactly ------------------------------------------------------------------------


def test_the_first_evaluation_is_the_one_to_beat():
    decision = promotions().judge(evaluation(3, [0.0] * 8))
    assert (decision.verdict, decision.reason, decision.promoted) == (Verdict.PROMOTE, "first", 3)


def test_a_version_better_on_every_task_is_promoted():
    assert verdicts([0.25] * 8, [0.5] * 8) == (Verdict.PROMOTE, "better", 1)


def test_a_version_worse_on_every_task_is_rolled_back_to_the_promoted_one():
    assert verdicts([0.5] * 8, [0.25] * 8) == (Verdict.ROLL_BACK, "worse", 0)


def test_an_equal_version_is_neither_promoted_nor_rolled_back():
    assert verdicts([0.5] * 8, [0.5] * 8) == (Verdict.KEEP, "unclear", 0)


def test_an_equal_version_is_promoted_where_only_a_loss_has_to_be_excluded():
    assert verdicts([0.5] * 8, [0.5] * 8, min_gain=-0.01) == (Verdict.PROMOTE, "better", 1)


def test_without_a_largest_loss_nothing_is_rolled_back():
    assert verdicts([0.5] * 8, [0.25] * 8, max_loss=None) == (Verdict.KEEP, "unclear", 0)


def test_a_small_loss_within_the_largest_one_is_kept():
    assert verdicts([0.5] * 8, [0.25] * 8, max_loss=0.25) == (Verdict.KEEP, "unclear", 0)
    assert verdicts([0.5] * 8, [0.25] * 8, max_loss=0.24) == (Verdict.ROLL_BACK, "worse", 0)


def test_too_few_tasks_in_common_decide_nothing():
    assert verdicts([0.0] * 8, [1.0] * 7) == (Verdict.KEEP, "too_few_tasks", 0)
    decision = promotions().judge(evaluation(0, []))
    assert (decision.verdict, decision.promoted) == (Verdict.KEEP, None)


def test_equal_differences_have_exact_bounds():
    found = paired_bootstrap({"a": 0.0, "b": 0.25}, {"a": 0.5, "b": 0.75, "c": 0.0}, np.random.default_rng(0))
    assert (found.num_tasks, found.gain, found.low, found.high, found.share_better) == (2, 0.5, 0.5, 0.5, 1.0)


def test_versions_without_a_task_in_common_are_refused():
    with pytest.raises(ValueError, match="tasks that both versions played, got none among 1 and 2"):
        paired_bootstrap({"a": 0.0}, {"b": 0.0, "c": 0.0}, np.random.default_rng(0))


# -- drawn cases ----------------------------------------------------------------------------------------


@given(scores, scores.map(lambda s: s | {"t0": 0.5}), st.integers(0, 9))
def test_bounds_enclose_the_gain_and_swap_with_the_versions(old: Any, new: Any, seed: int):
    old = old | {"t0": 0.5}
    found = paired_bootstrap(old, new, np.random.default_rng(seed), resamples=400)
    swapped = paired_bootstrap(new, old, np.random.default_rng(seed), resamples=400)
    differences = [new[task] - old[task] for task in old.keys() & new.keys()]
    assert min(differences) <= found.low <= found.high <= max(differences)
    assert found.gain == pytest.approx(sum(differences) / len(differences))
    assert (swapped.gain, swapped.share_better) == pytest.approx((-found.gain, 1 - found.share_better))
    assert (swapped.low, swapped.high) == pytest.approx((-found.high, -found.low))


def test_the_same_seed_gives_the_same_bounds_in_blocks_or_not(monkeypatch: pytest.MonkeyPatch):
    values = np.arange(7.0)
    whole = resampled_means(values, np.random.default_rng(5), 100)
    monkeypatch.setattr("dartsim.trainer.promotion._BLOCK", 70)
    assert resampled_means(values, np.random.default_rng(5), 100).tolist() == whole.tolist()


def test_bootstrap_means_spread_as_the_standard_error_says():
    values = np.random.default_rng(1).normal(size=50)
    means = resampled_means(values, np.random.default_rng(2), 20_000)
    assert means.mean() == pytest.approx(values.mean(), abs=0.01)
    assert means.std() == pytest.approx(values.std() / np.sqrt(50), rel=0.03)


def judged(loss: float, *, num_tasks: int = 40, runs: int = 300) -> Counter[Verdict]:
    """Judge a version whose success rates are lower by ``loss``, many times, eight attempts a task."""
    rng = np.random.default_rng(7)
    found: Counter[Verdict] = Counter()
    for _ in range(runs):
        rates = rng.beta(0.6, 0.6, num_tasks)
        old = rng.binomial(8, rates) / 8
        new = rng.binomial(8, np.clip(rates - loss, 0, 1)) / 8
        judge = Promotions(rule=PromotionConfig(resamples=500), rng=rng, promoted=evaluation(0, old.tolist()))
        found[judge.judge(evaluation(1, new.tolist())).verdict] += 1
    return found


def test_a_worse_version_is_promoted_less_often_than_confidence_allows():
    assert judged(0.1)[Verdict.PROMOTE] == 0
    assert judged(0.1)[Verdict.ROLL_BACK] > 0.8 * 300
    assert judged(0.0)[Verdict.PROMOTE] <= 0.09 * 300  # 5 % by the rule, and room for the draw
    assert judged(-0.1)[Verdict.PROMOTE] > 0.8 * 300


# -- records --------------------------------------------------------------------------------------------


def test_masked_attempts_are_counted_and_never_scored():
    def played(index: int, task: str, reward: float | None) -> Trajectory:
        attempt = Attempt(id=index, task=Task(task, "do it"), group=0, index=index, seed=0, turn_limit=30, version=4)
        return Trajectory(attempt, (), Ending.DONE, reward, None, 0.0, 1.0)

    found = HeldOutRewards.of(4, [played(0, "a", 1.0), played(1, "a", 0.0), played(2, "a", None), played(3, "b", 1.0)])
    assert found.task_means() == {"a": 0.5, "b": 1.0}
    assert (found.mean, found.num_masked) == (0.75, 1)
    assert HeldOutRewards.of(4, []).mean is None


def test_the_promoted_version_changes_by_promotion_only_and_all_is_recorded():
    judge = promotions()
    for version, mean in enumerate([0.25, 0.5, 0.25, 0.5, 0.75]):
        judge.judge(evaluation(version, [mean] * 8))
    assert [d.verdict.value for d in judge.decisions] == ["promote", "promote", "roll_back", "keep", "promote"]
    assert [d.promoted for d in judge.decisions] == [0, 1, 1, 1, 4]
    assert judge.counts == {Verdict.PROMOTE: 3, Verdict.ROLL_BACK: 1, Verdict.KEEP: 1}


@pytest.mark.parametrize(
    "rule", [{"confidence": 0.5}, {"max_loss": -0.1}, {"min_tasks": 0}, {"resamples": 10}], ids=str
)
def test_a_rule_out_of_range_is_refused(rule: dict[str, Any]):
    (name,) = rule
    with pytest.raises(ValueError, match=name):
        PromotionConfig(**rule)


def test_a_new_evaluation_of_the_promoted_version_is_what_is_compared_with():
    judge = promotions()
    judge.judge(evaluation(0, [0.9] * 8))  # lucky
    decision = judge.judge(evaluation(1, [0.5] * 8), against=evaluation(0, [0.5] * 8))
    assert decision.reason == "unclear"
    with pytest.raises(ValueError, match="the promoted version is 0, got an evaluation of 1"):
        judge.judge(evaluation(2, [0.5] * 8), against=evaluation(1, [0.5] * 8))
    with pytest.raises(ValueError, match="the promoted version is none"):
        promotions().judge(evaluation(2, [0.5] * 8), against=evaluation(1, [0.5] * 8))
