"""How many attempts a task gets."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dartsim.curation.rules.attempts import AttemptsBySuccess


def by_success(most=8, least=2):
    parameters = AttemptsBySuccess.Parameters(group_size=most, min_group_size=least, threshold=0.6)
    return AttemptsBySuccess(parameters)


@pytest.mark.parametrize(
    ("success_rate", "attempts"),
    [(0.0, 8), (0.3, 8), (0.59, 8), (0.6, 8), (0.65, 6), (0.7, 5), (0.8, 4), (0.9, 3), (0.95, 2), (1.0, 2)],
)
def test_easy_tasks_get_fewer_attempts(success_rate, attempts):
    assert by_success().size_at(success_rate) == attempts


@given(st.floats(0, 1), st.floats(0, 1), st.integers(1, 16), st.integers(1, 16))
def test_attempts_never_rise_with_success_and_stay_in_their_range(a, b, one, other):
    least, most = sorted((one, other))
    low, high = (by_success(most, least).size_at(rate) for rate in sorted((a, b)))
    assert least <= high <= low <= most


def test_the_newest_rewards_of_a_task_decide():
    rule = by_success()
    rule.learn("a", [0.0] * 8)
    assert rule.attempts("a") == 8
    rule.learn("a", [1.0] * 6)
    assert rule.attempts("a") == 5  # 6 of the last 8: 9 / 0.75 - 7
    rule.learn("a", [1.0, 1.0])
    assert rule.attempts("a") == 2
    assert rule.attempts("b") == 8
