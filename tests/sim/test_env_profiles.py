import pytest

from dartsim.sim.env_profiles import DART, DESKTOP_APPS, DESKTOP_SMALL, OSWORLD


def cycle_seconds(timing):
    """Mean seconds of a slot's attempt apart from its turns: set-up, evaluation, teardown, next start."""
    between = timing.start.mean + timing.boot.mean + timing.teardown.mean if timing.fresh_per_attempt else 0.0
    sleeps = timing.settle_seconds + timing.evaluate_settle_seconds
    return between + timing.setup.mean + timing.evaluate.mean + sleeps


def test_dart_has_the_means_that_close_its_measured_trajectory_time():
    means = (DART.setup.mean, DART.step.mean, DART.evaluate.mean)
    assert means == (30.0, 5.3, 6.0)
    assert DART.start.mean + DART.boot.mean + DART.teardown.mean == pytest.approx(22.0, abs=0.1)
    # 14.26 turns of a step, at least 0.58 GPU-s and 1.7 s of other inference, and the cycle: 173 s measured.
    assert 14.26 * (5.3 + 0.58 + 1.7) + cycle_seconds(DART) == pytest.approx(173, rel=0.05)


def test_dart_boots_in_a_burst_take_what_its_logs_say():
    alone = DART.start.mean + DART.boot.mean
    for at_once, seconds in [(2, 12.5), (4, 13.2), (8, 16.0), (12, 18.9)]:
        assert alone + (at_once - 1) * DART.start.mean == pytest.approx(seconds, abs=1.3)


def test_osworld_has_the_published_figures():
    assert OSWORLD.step.mean == pytest.approx(3.24, abs=0.02)
    assert 27.6 <= OSWORLD.start.mean + OSWORLD.boot.mean + OSWORLD.setup.mean <= 30.6
    assert 8.6 <= OSWORLD.teardown.mean <= 10.5
    assert OSWORLD.memory_gib == 4.2


def test_a_small_desktop_is_reused_between_attempts():
    assert not DESKTOP_SMALL.fresh_per_attempt
    assert cycle_seconds(DESKTOP_SMALL) == DESKTOP_SMALL.setup.mean + DESKTOP_SMALL.evaluate.mean
    assert DESKTOP_SMALL.step.mean < 0.5


def test_a_container_with_osworlds_applications_starts_as_fast_as_measured():
    assert DESKTOP_APPS.start.mean + DESKTOP_APPS.boot.mean == pytest.approx(1.45, abs=0.1)
    assert DESKTOP_APPS.fresh_per_attempt
