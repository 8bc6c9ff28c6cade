"""When faults strike: as often as their rate says, at the same times whoever asks, and not after the healing."""

from math import inf

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dartsim.config.schema import FaultWindow
from dartsim.sim.faults.kinds import KINDS, ActiveFault
from dartsim.sim.faults.timing import CallFault, WindowFault
from dartsim.sim.latency import Constant


def window(at, lasts, **options):
    return FaultWindow(kind="port_clash", at_seconds=at, lasts_seconds=lasts, **options)


def window_fault(*, per_hour=0.0, seconds=60.0, seed=0, **options):
    rng = np.random.default_rng(seed)
    return WindowFault(per_hour=per_hour, rng=rng, lasts=Constant(seconds), value=lambda: 3.0, **options)


def call_fault(*, rate=0.0, windows=(), heal_at=inf, seed=0):
    active = ActiveFault(KINDS["port_clash"], rate, Constant(1.0), tuple(windows))
    return CallFault(active, rng=np.random.default_rng(seed), lasts=lambda: 1.0, heal_at=heal_at)


def test_calls_are_struck_with_their_share():
    fault = call_fault(rate=0.25)
    struck = sum(fault.hit(0.0, 0, 1) is not None for _ in range(10_000))
    assert 2300 < struck < 2700
    assert all(call_fault(rate=1.0).hit(0.0, 0, 1) == 1.0 for _ in range(3))
    assert call_fault().hit(0.0, 0, 1) is None


def test_a_strike_at_a_set_time_meets_the_next_calls_of_its_target():
    fault = call_fault(windows=[window(10.0, 7.0, target=4, times=2)])
    assert [fault.hit(now, target, 3) for now, target in [(9.0, 1), (11.0, 0), (12.0, 1), (13.0, 1), (14.0, 1)]] == [
        None,
        None,
        7.0,
        7.0,
        None,
    ]


def test_after_the_healing_nothing_strikes():
    fault = call_fault(rate=1.0, heal_at=5.0)
    assert [fault.hit(now, 0, 1) for now in (4.0, 5.0, 6.0)] == [1.0, None, None]
    healed = window_fault(windows=[window(1.0, 100.0), window(5.0, 1.0)], heal_at=5.0)
    assert [healed.is_open(now) for now in (0.5, 1.0, 4.9, 5.0, 6.0)] == [False, True, True, False, False]


def test_spells_begin_as_often_as_their_rate_says():
    always = window_fault(per_hour=60.0, seconds=60.0)  # a minute between two, a minute long
    lasting = sum(always.is_open(now) for now in np.arange(0.0, 3600.0 * 200, 30.0))
    assert lasting / (3600.0 * 200 / 30.0) == pytest.approx(0.5, abs=0.02)


@given(st.lists(st.floats(0.0, 20_000.0), max_size=30), st.integers(0, 50))
def test_what_lasts_at_a_time_does_not_depend_on_who_asked_before(times, seed):
    often, once = window_fault(per_hour=10.0, seed=seed), None
    for now in sorted(times):
        once = window_fault(per_hour=10.0, seed=seed)
        assert (often.is_open(now), often.begin, often.end) == (once.is_open(now), once.begin, once.end)


def test_spells_at_set_times_come_in_order_and_may_overlap():
    found = window_fault(windows=[window(10.0, 100.0, target=5), window(20.0, 5.0, target=7)], by_target=True)
    assert not found.is_open(9.0)
    assert found.is_open(22.0)
    assert (found.begin, found.end, found.value) == (10.0, 110.0, 5.0)
    assert not found.is_open(110.0)
    assert found.begin == inf


def test_a_spell_that_is_over_has_touched_what_began_before_its_end():
    found = window_fault(windows=[window(10.0, 5.0)])
    assert not found.was_open(0.0, 9.0)
    assert found.was_open(0.0, 12.0)
    assert found.was_open(12.0, 20.0)
    assert not found.was_open(15.0, 20.0)


def test_spells_without_length_end():
    found = window_fault(per_hour=3600.0, seconds=0.0)
    assert not found.is_open(1e4)
    assert found.begin > 1e4
