import math

import numpy as np
import pytest

from dartsim.core.errors import ConfigError
from dartsim.sim.latency import (
    BLOCK,
    Capped,
    Constant,
    Gamma,
    Lognormal,
    Quantiles,
    Sum,
    from_spec,
)

ACT = Sum((Constant(2.38), Capped(Lognormal.from_median(0.15, 1.9), 60.0)))

EVERY_KIND = [
    Constant(2.5),
    Lognormal(5.3, 2.0),
    Gamma(4.0, 16.0),
    Quantiles(((0.0, 1.0), (0.5, 2.0), (1.0, 9.0))),
    Quantiles(((0.1, 1.0), (0.5, 2.0), (0.9, 40.0)), log=True),
    Sum((Constant(1.0), Gamma(2.0, 4.0), Lognormal(1.0, 0.5))),
    Capped(Lognormal(5.3, 4.0), 7.0),
    Capped(Gamma(5.0, 0.7), 6.0),
    Capped(Quantiles(((0.0, 1.0), (0.5, 2.0), (1.0, 9.0))), 4.0),
    Capped(Quantiles(((0.1, 1.0), (0.5, 2.0), (0.9, 40.0)), log=True), 11.0),
    Capped(Sum((Gamma(2.0, 4.0), Lognormal(1.0, 0.5))), 3.5),
    Capped(Capped(Lognormal(5.3, 4.0), 9.0), 7.0),
    ACT,
]


@pytest.mark.parametrize("latency", EVERY_KIND, ids=repr)
def test_the_mean_of_many_draws_is_the_mean(latency):
    draws = latency.draw(np.random.default_rng(1), 40_000)
    error = draws.std() / 200
    assert abs(draws.mean() - latency.mean) <= 4 * error + 1e-12
    assert draws.min() >= 0


@pytest.mark.parametrize("latency", EVERY_KIND, ids=repr)
def test_a_sampler_goes_through_the_blocks_of_draw(latency):
    sample = latency.sampler(np.random.default_rng(7))
    rng = np.random.default_rng(7)
    expected = [*latency.draw(rng, BLOCK).tolist(), *latency.draw(rng, BLOCK).tolist()]
    assert [sample() for _ in range(2 * BLOCK)] == expected


def test_a_lognormal_by_median_has_that_median_and_sigma():
    latency = Lognormal.from_median(0.15, 1.9)
    assert math.exp(latency.mu) == pytest.approx(0.15, rel=1e-12)
    assert latency.sigma == pytest.approx(1.9, rel=1e-12)


def test_quantiles_are_met_and_the_ends_are_flat():
    latency = Quantiles(((0.1, 1.0), (0.5, 2.0), (0.9, 40.0)), log=True)
    draws = latency.draw(np.random.default_rng(3), 100_000)
    assert draws.min() == 1.0
    assert draws.max() == pytest.approx(40.0)
    assert np.quantile(draws, 0.5) == pytest.approx(2.0, rel=0.02)
    assert np.quantile(draws, 0.7) == pytest.approx(math.sqrt(80), rel=0.04)  # half way in the logarithm


@pytest.mark.parametrize(
    ("spec", "latency"),
    [
        (5, Constant(5.0)),
        ({"kind": "constant", "seconds": 5}, Constant(5.0)),
        ({"kind": "lognormal", "mean_seconds": 5.3, "sd_seconds": 2.0}, Lognormal(5.3, 2.0)),
        ({"kind": "lognormal", "median_seconds": 0.15, "sigma": 1.9}, Lognormal.from_median(0.15, 1.9)),
        ({"kind": "gamma", "mean_seconds": 5.3, "k": 16}, Gamma(5.3, 16.0)),
        ({"kind": "quantiles", "points": [[0, 1], [1, 2]]}, Quantiles(((0.0, 1.0), (1.0, 2.0)))),
        (
            {"kind": "quantiles", "points": [[0, 1], [1, 2]], "log": True},
            Quantiles(((0.0, 1.0), (1.0, 2.0)), log=True),
        ),
        (
            {"kind": "sum", "parts": [1, {"kind": "gamma", "mean_seconds": 2, "k": 4}]},
            Sum((Constant(1.0), Gamma(2.0, 4.0))),
        ),
        (
            {
                "kind": "sum",
                "parts": [
                    2.38,
                    {
                        "kind": "capped",
                        "cap_seconds": 60,
                        "of": {"kind": "lognormal", "median_seconds": 0.15, "sigma": 1.9},
                    },
                ],
            },
            ACT,
        ),
    ],
    ids=str,
)
def test_plain_data_becomes_a_distribution(spec, latency):
    assert from_spec(spec) == latency


@pytest.mark.parametrize(
    ("spec", "key"),
    [
        ({"kind": "lognormall", "mean_seconds": 1}, "did you mean 'lognormal'"),
        ({"mean_seconds": 1}, "kind"),
        ({"kind": "lognormal", "mean_second": 5.3, "sd_seconds": 2.0}, "did you mean 'mean_seconds'"),
        ({"kind": "lognormal", "mean_seconds": 5.3}, "sd_seconds"),
        ({"kind": "gamma", "mean_seconds": -1, "k": 2}, "mean_seconds"),
        ({"kind": "gamma", "mean_seconds": "5", "k": 2}, "mean_seconds"),
        ({"kind": "quantiles", "points": [1, 2]}, "points"),
        ({"kind": "quantiles", "points": [[0, 1], [0.5, 0.5]]}, "points"),
        ({"kind": "quantiles", "points": [[0, 0], [1, 1]], "log": True}, "points"),
        ({"kind": "quantiles", "points": [[0, 1]], "log": 1}, "log"),
        ({"kind": "sum", "parts": 3}, "parts"),
        ({"kind": "capped", "cap_seconds": 0, "of": 1}, "cap_seconds"),
        ({"kind": "capped", "cap_seconds": 1, "of": {"kind": "gam"}}, "did you mean 'gamma'"),
        (math.nan, "seconds"),
        (-1, "seconds"),
        ("5 s", "5 s"),
    ],
    ids=str,
)
def test_bad_data_is_refused_and_the_key_or_the_nearest_name_is_given(spec, key):
    with pytest.raises(ConfigError, match=key):
        from_spec(spec)
