from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from dartsim.core.backoff import backoff_seconds


def test_each_wait_is_twice_the_one_before_up_to_the_longest() -> None:
    waits = [backoff_seconds(failures, first_seconds=5.0, max_seconds=30.0) for failures in range(1, 6)]
    assert waits == [5.0, 10.0, 20.0, 30.0, 30.0]


@given(st.integers(0, 10**9), st.floats(1e-3, 1e3))
def test_a_wait_is_finite_however_often_it_failed(failures: int, first_seconds: float) -> None:
    wait = backoff_seconds(failures, first_seconds=first_seconds)
    assert first_seconds <= wait < math.inf
