"""Success rates, their intervals and pass@k, against their definitions."""

from __future__ import annotations

from itertools import combinations
from statistics import mean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dartsim.observe.success import Z95, pass_at_k, success_figures, wilson


@given(st.integers(1, 400), st.floats(0.0, 1.0))
def test_wilson_s_bounds_are_the_shares_that_the_observed_one_just_contradicts(count: int, share: float):
    low, high = wilson(share, count)
    assert 0.0 <= low <= share + 1e-12
    assert share - 1e-12 <= high <= 1.0
    for bound in (low, high):
        if 1e-6 < bound < 1.0 - 1e-6:
            assert abs(share - bound) == pytest.approx(Z95 * (bound * (1.0 - bound) / count) ** 0.5, rel=1e-6, abs=1e-9)


def test_intervals_of_the_literature():
    assert wilson(0.2, 5) == pytest.approx((0.0362, 0.6245), abs=1e-4)
    assert wilson(0.0, 10) == pytest.approx((0.0, 0.2775), abs=1e-4)
    assert wilson(1.0, 10) == pytest.approx((0.7225, 1.0), abs=1e-4)
    assert wilson(81 / 263, 263) == pytest.approx((0.2553, 0.3662), abs=1e-4)  # R. Newcombe (1998), table I
    with pytest.raises(ValueError, match="needs observations"):
        wilson(0.5, 0)


@given(st.lists(st.booleans(), min_size=1, max_size=7), st.data())
def test_pass_at_k_is_the_share_of_choices_of_k_attempts_with_a_success(attempts: list[bool], data: st.DataObject):
    k = data.draw(st.integers(1, len(attempts)))
    share = mean(any(chosen) for chosen in combinations(attempts, k))
    assert pass_at_k(len(attempts), sum(attempts), k) == pytest.approx(share)


def test_figures_are_means_over_tasks_and_leave_tasks_without_a_score_out():
    figures = success_figures({"a": [1.0, 0.0, 0.0, 1.0], "b": [0.5, 0.0, 0.0], "c": []})
    assert (figures["tasks"], figures["attempts"]) == (2, 7)
    assert figures["success_rate"] == pytest.approx((0.5 + 0.5 / 3) / 2)
    assert figures["interval"] == list(wilson(figures["success_rate"], 2))
    assert {k: each["tasks"] for k, each in figures["pass_at"].items()} == {"1": 2, "2": 2, "4": 1}
    assert figures["pass_at"]["2"]["value"] == pytest.approx((1.0 - 1 / 6) / 2)
    assert success_figures({"c": []})["success_rate"] is None


@pytest.mark.parametrize(("attempts", "successes", "k"), [(3, 4, 1), (3, 1, 4), (3, 1, 0), (0, 0, 1)])
def test_impossible_counts_are_refused(attempts: int, successes: int, k: int):
    with pytest.raises(ValueError, match="wanted 1 <= k <= attempts"):
        pass_at_k(attempts, successes, k)
