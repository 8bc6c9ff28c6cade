"""Intervals from one run: their coverage, the warm-up, and when a series counts as steady."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from dartsim.observe.records import Snapshot
from dartsim.observe.states import DesktopState, EngineState, PhaseState, TrainerState
from dartsim.observe.steady import (
    FEW_BATCHES,
    FEWEST,
    FEWEST_ATTEMPTS,
    FEWEST_LARGE,
    MAX_WARMUP,
    NUM_BATCHES,
    SteadyCheck,
    batch_means,
    interval,
    warmup_length,
)

POSITIVE = st.floats(0.5, 100.0)
RATES = arrays(np.float64, st.integers(0, 200), elements=POSITIVE)


def autoregressive(rng, length, correlation, *, mean=40.0, deviation=2.0):
    """Return an AR(1) series of known mean."""
    values = np.empty(length)
    value = rng.normal(0.0, deviation)
    for place, shock in enumerate(rng.normal(0.0, deviation * np.sqrt(1.0 - correlation**2), length)):
        value = correlation * value + shock
        values[place] = mean + value
    return values


@pytest.mark.parametrize("length", [400, 60, FEWEST_LARGE])
@pytest.mark.parametrize("correlation", [-0.6, -0.3, 0.0, 0.3, 0.6, 0.8])
def test_intervals_cover_the_mean_of_an_autoregressive_series(correlation, length):
    rng = np.random.default_rng(7)
    minutes = rng.uniform(15.0, 25.0, (300, length))
    found = [interval(autoregressive(rng, length, correlation) * row, row) for row in minutes]
    known = [each for each in found if each is not None]
    covered = np.mean([abs(each.mean - 40.0) <= each.half_width for each in known])
    assert len(known) >= 240
    assert covered >= 0.93, "never too narrow"
    assert covered <= 0.995 or correlation < 0.0, "nor too wide, but where neighbors make up for each other"
    assert np.mean([each.drift != 0.0 for each in known]) < 0.3, "of a line, at a level of 10 %"


def test_a_rising_start_is_cut_off_and_would_have_biased_the_mean():
    rng = np.random.default_rng(1)
    start = 40.0 * np.exp(-np.arange(300) / 15.0)
    amounts = autoregressive(rng, 300, 0.0) - start
    cut = warmup_length(amounts, np.ones(300))
    assert cut is not None
    assert 30 <= cut <= 100
    assert abs(amounts[cut:].mean() - 40.0) < 0.5 < 40.0 - amounts.mean()


def test_a_series_that_never_settles_has_no_warm_up():
    assert warmup_length(np.arange(1.0, 201.0), np.ones(200)) is None


@given(RATES, st.data())
def test_the_warm_up_is_at_most_a_fifth_and_the_interval_holds_the_rate_of_the_batches(amounts, data):
    minutes = data.draw(arrays(np.float64, len(amounts), elements=POSITIVE))
    cut = warmup_length(amounts, minutes)
    assert cut is None or 0 <= cut <= MAX_WARMUP * len(amounts)
    found = batch_means(amounts, minutes)
    assert (found is None) == (len(amounts) < FEW_BATCHES)
    if found is not None:
        num = NUM_BATCHES if len(amounts) >= 4 * NUM_BATCHES else FEW_BATCHES
        kept = len(amounts) // num * num
        assert found.mean == pytest.approx(amounts[-kept:].sum() / minutes[-kept:].sum())
        assert found.half_width >= 0.0


@given(RATES, st.floats(0.1, 10.0), st.floats(0.1, 10.0))
def test_the_interval_scales_with_what_is_counted_and_with_time(amounts, more, slower):
    minutes = np.ones(len(amounts))
    assume(len(amounts) >= FEW_BATCHES and amounts.std() > 1e-3)
    found, scaled = batch_means(amounts, minutes), batch_means(more * amounts, slower * minutes)
    assert scaled.mean == pytest.approx(found.mean * more / slower)
    assert scaled.half_width == pytest.approx(found.half_width * more / slower)
    assert scaled.drift == pytest.approx(found.drift / slower)


def test_a_constant_rate_has_no_width_however_long_its_updates_are():
    minutes = np.random.default_rng(0).uniform(1.0, 30.0, 100)
    found = interval(5.0 * minutes, minutes)
    assert found == pytest.approx((5.0, 0.0, 0.0))
    assert found.is_steady(1e-6)


@given(st.integers(0, 2**32 - 1), st.floats(1e-4, 2e-3), st.booleans(), st.floats(0.0, 20.0))
def test_a_slowly_drifting_run_is_never_steady(seed, drift, rises, noise):
    """The noise of an update is up to 20 times as large as what the figure drifts by in it."""
    shocks = np.random.default_rng(seed).normal(0.0, noise * drift, 200)
    rates = 40.0 * (1.0 + (drift if rises else -drift) * np.arange(200) + shocks)
    check = SteadyCheck(0.5)
    check.start(snapshot(0.0, 0.0))
    for update, trained in enumerate(np.cumsum(20.0 * rates), 1):
        check.update_finished(snapshot(20.0 * update, trained))
        assert not check.reached


def test_a_line_drifts_by_its_slope():
    found = batch_means(20.0 * (100.0 + np.arange(200)), np.full(200, 20.0))
    assert found.mean == pytest.approx(199.5)
    assert found.drift == pytest.approx(3.0 / 199.5), "three updates an hour"


def snapshot(minutes, trained, *, attempts=0):
    """A snapshot of one desktop that was busy all the time."""

    def spent(states, state):
        return tuple(60.0 * minutes * (own is state) for own in states)

    return Snapshot(
        time=60.0 * minutes,
        desktops=spent(DesktopState, DesktopState.GENERATING),
        engines=spent(EngineState, EngineState.OFF),
        trainer=spent(TrainerState, TrainerState.TRAINING),
        phase=spent(PhaseState, PhaseState.ROLLOUT),
        counts={"trained_turns": trained, "trained_trajectories": attempts},
    )


def observed(num_updates, precision, *, seed=0, drift=0.0):
    rng = np.random.default_rng(seed)
    check = SteadyCheck(precision)
    check.start(snapshot(0.0, 0.0))
    minutes = trained = 0.0
    for update in range(1, num_updates + 1):
        minutes += rng.uniform(15.0, 25.0)
        trained += (800.0 + rng.normal(0.0, 20.0)) * (1.0 + drift * update)
        check.update_finished(snapshot(minutes, trained))
        if check.reached:
            return update, check
    return num_updates, check


def test_a_run_is_steady_once_all_figures_are_within_the_precision():
    updates, loose = observed(1000, 0.2)
    more, tight = observed(1000, 0.02)
    assert loose.reached
    assert tight.reached
    assert FEWEST <= updates < more < 1000
    found = tight.intervals()["trained_turns_per_minute"]
    assert found.mean == pytest.approx(40.0, rel=0.05)
    assert found.half_width <= 0.02 * found.mean
    assert tight.intervals()["env_utilization"] == pytest.approx((1.0, 0.0, 0.0))


def test_a_run_is_not_steady_before_enough_updates_or_while_it_varies():
    assert not observed(FEWEST - 1, 0.9)[1].reached
    assert not observed(60, 0.0001)[1].reached


@pytest.mark.parametrize(("attempts", "updates"), [(FEWEST_ATTEMPTS // 40, 40), (1_000, FEWEST_LARGE), (10, FEWEST)])
def test_large_updates_are_checked_earlier(attempts, updates):
    check = SteadyCheck(0.9)
    check.start(snapshot(0.0, 0.0, attempts=77))
    for update in range(1, updates + 1):
        assert not check.reached
        check.update_finished(snapshot(20.0 * update, 800.0 * update, attempts=77 + attempts * update))
    assert check.reached


def test_two_updates_at_one_time_are_one_observation():
    check = SteadyCheck(0.1)
    check.start(snapshot(0.0, 0.0))
    for update in range(1, FEWEST + 1):
        check.update_finished(snapshot(20.0 * update, 800.0 * update - 400.0))
        check.update_finished(snapshot(20.0 * update, 800.0 * update))
    assert check.as_json(hours=1.0, planned_hours=2.0)["updates"] == FEWEST
