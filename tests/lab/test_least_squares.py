"""The maximum of a posterior with Gaussian priors."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dartsim.lab.least_squares import Evidence, maximize

LIMITS = np.full(2, 100.0)


@given(st.lists(st.floats(-3.0, 3.0), min_size=6, max_size=6), st.floats(0.1, 10.0))
def test_a_linear_model_has_the_posterior_of_linear_regression(numbers, weight):
    jacobian, wanted = np.array(numbers).reshape(3, 2), np.array([1.0, -1.0, 0.5])
    known = Evidence(np.zeros(2), np.eye(2), wanted, np.full(3, weight))
    fit = maximize(known, lambda at: jacobian @ at, lambda *_: jacobian, limits=LIMITS, attempts=3, close=1e-9)
    exact = np.linalg.solve(weight * jacobian.T @ jacobian + np.eye(2), weight * jacobian.T @ wanted)
    assert fit.at == pytest.approx(exact, abs=1e-6)
    assert known.newton(fit.at, fit.values, jacobian, np.zeros(3, dtype=bool)) == pytest.approx(-exact, abs=1e-6)


def test_a_step_that_is_too_long_is_halved():
    """Undamped, the search for a root of the arc tangent that begins at 3 ends ever farther away."""
    known = Evidence(np.array([3.0]), np.array([[1e-9]]), np.zeros(1), np.ones(1))

    def derive(at, values):
        return np.array([[1.0 / (1.0 + at[0] ** 2)]])

    fit = maximize(known, np.arctan, derive, limits=np.array([100.0]), attempts=12, close=1e-9)
    assert fit.at == pytest.approx([0.0], abs=1e-3)
