"""Fitting of measured durations: answers that are known, means that are kept."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dartsim.sim.fitting import fit_line, fit_quantiles

SECONDS = st.floats(0.0, 1e4, allow_subnormal=False)
PARTS = st.floats(0.0, 100.0, allow_subnormal=False)


@given(st.lists(SECONDS, min_size=1, max_size=60))
def test_quantiles_keep_the_mean_and_rise(seconds):
    found = fit_quantiles(seconds)
    assert found.mean == pytest.approx(np.mean(seconds), rel=1e-9, abs=1e-300)
    values = [value for _, value in found.points]
    assert values == sorted(values)


def test_draws_are_like_the_measurements():
    measured = np.random.default_rng(0).gamma(3.0, 0.5, 2_000)
    drawn = fit_quantiles(measured.tolist()).draw(np.random.default_rng(1), 20_000)
    assert drawn.mean() == pytest.approx(measured.mean(), rel=0.02)
    for quantile in (0.1, 0.5, 0.95):
        assert np.quantile(drawn, quantile) == pytest.approx(np.quantile(measured, quantile), rel=0.04)


@pytest.mark.parametrize("seconds", [[], [-1.0], [float("nan")]])
def test_no_duration_is_refused(seconds):
    with pytest.raises(ValueError, match="at least one duration"):
        fit_quantiles(seconds)


@given(PARTS, PARTS, st.lists(st.integers(1, 64), min_size=2, max_size=50).filter(lambda counts: len(set(counts)) > 1))
def test_a_line_is_found_again(fixed, each, counts):
    found = fit_line(counts, [fixed + each * count for count in counts])
    assert found.fixed == pytest.approx(fixed, rel=1e-6, abs=1e-6)
    assert found.each == pytest.approx(each, rel=1e-6, abs=1e-6)


@given(st.lists(st.tuples(st.integers(1, 64), SECONDS), min_size=1, max_size=50))
def test_any_line_has_the_measured_total_and_no_negative_part(measured):
    counts, seconds = zip(*measured, strict=True)
    found = fit_line(counts, seconds)
    assert min(found.fixed, found.each) >= 0.0
    assert sum(map(found.seconds, counts)) == pytest.approx(sum(seconds), rel=1e-9, abs=1e-9)


def test_disturbed_durations_do_not_turn_the_line():
    rng = np.random.default_rng(3)
    counts = rng.integers(1, 33, 400)
    seconds = 0.02 + 0.003 * counts + rng.normal(0.0, 0.0005, 400).clip(-0.01)
    seconds[counts > 28] += np.where(rng.random((counts > 28).sum()) < 0.3, 0.5, 0.0)  # a pause, of large ones only
    found = fit_line(counts.tolist(), seconds.tolist())
    assert found.each == pytest.approx(0.003, rel=0.03)
    assert np.polyfit(counts, seconds, 1)[0] > 0.0045  # least squares are turned


@pytest.mark.parametrize(("counts", "seconds"), [([], []), ([0], [1.0]), ([1, 2], [1.0]), ([1], [-1.0])])
def test_what_is_no_measurement_is_refused(counts, seconds):
    with pytest.raises(ValueError, match="as many counts"):
        fit_line(counts, seconds)
