"""The error card's own figures."""

import numpy as np
import pytest

from experiments.error_card import card, model_error


@pytest.mark.parametrize("own", [0.0, 0.1, 0.3])
def test_the_models_error_is_what_parameters_and_repetitions_do_not_explain(own):
    rng = np.random.default_rng(0)
    variances = rng.uniform(0.001, 0.05, 2_000)
    errors = rng.normal(0.0, np.sqrt(variances + own**2))
    left_out = [{"error": e, "variance": v} for e, v in zip(errors, variances, strict=True)]
    assert model_error(left_out) == pytest.approx(own, abs=0.03)


def test_only_rows_that_are_held_out_and_supported_count():
    def row(error, low, high, *, fitted=False, supported=True):
        return {"supported": supported, "fitted": fitted, "error": error, "published": 1.0, "low": low, "high": high}

    rows = [row(0.1, 0.5, 2.0), row(-0.3, 0.5, 0.9), row(9.0, 2.0, 3.0, fitted=True), row(None, None, None)]
    found = card([{"rows": rows, "best_named": True, "tau": 0.5}, {"rows": [], "best_named": None, "tau": None}])
    assert (found["held_out_rows"], found["median_error"], found["coverage"]) == (2, pytest.approx(0.2), 0.5)
    assert (found["share_within_20_percent"], found["best_asked"]) == (0.5, 1)
