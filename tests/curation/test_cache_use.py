"""The bound on attempts that run: how it follows the engines' caches, and what the data manager does about it."""

import asyncio
from functools import partial

import pytest

from dartsim.core.types import Drop
from dartsim.curation import CachePressure, EngineCaches
from dartsim.curation.rules import cache_use

EMPTY, FULL = CachePressure(0.1), CachePressure(0.85)


class Engines:
    """Engines whose caches a test fills."""

    def __init__(self, first):
        self.now = EMPTY
        self.caches = EngineCaches(first, lambda: self.now)


class Ruled:
    """The rule over such engines."""

    def __init__(self, made, first=20, group_size=4, **numbers):
        self.engines = Engines(first)
        self.rule = made.admission("cache_use", caches=self.engines.caches, group_size=group_size, **numbers)

    @property
    def bound(self):
        return self.rule.max_running

    def look(self, now, running, pressure):
        self.engines.now = pressure
        return self.rule.adjust(now, running)


@pytest.fixture(scope="session")
def ruled(made):
    return partial(Ruled, made)


def looks(ruled, pressure, seconds, *, running=None, start=0.0, ends=0):
    """Look once a second, and return the bounds after each look."""
    seen = []
    for second in range(seconds):
        for _ in range(ends):
            ruled.rule.attempt_ended()
        ruled.look(start + second, ruled.bound if running is None else running, pressure)
        seen.append(ruled.bound)
    return seen


def test_it_rises_by_a_quarter_a_turnover_a_group_at_a_time(ruled):
    """20 may run, and 20 end every second: the goal is 25 at once, and 4 more may run every 5 s."""
    assert looks(ruled(), EMPTY, 12, ends=20) == [24] * 5 + [25] * 5 + [29] * 2


def test_without_a_turnover_it_rises_when_the_gate_is_open_again(ruled):
    assert looks(ruled(first=4), EMPTY, 16) == [5] * 15 + [7]


def test_what_does_not_bind_is_not_raised(ruled):
    assert set(looks(ruled(), EMPTY, 60, running=17, ends=20)) == {20}


def test_caches_half_full_leave_it_alone(ruled):
    assert set(looks(ruled(), CachePressure(0.7), 60, ends=20)) == {20}


def test_a_full_cache_cuts_to_the_target_once_and_then_rests(ruled):
    one = ruled()
    assert looks(one, FULL, 8) == [16] * 7 + [13]  # 20 * .7 / .85; six looks later 16 * .7 / .85


def test_only_above_nine_tenths_the_youngest_are_given_up(ruled):
    assert [ruled().look(0.0, 20, CachePressure(share)) for share in (0.79, 0.89, 0.91)] == [False, False, True]


def test_a_queue_that_stays_cuts_by_a_tenth(ruled):
    assert looks(ruled(), CachePressure(0.7, waiting=6, running=10), 6) == [20] * 5 + [18]
    assert set(looks(ruled(), CachePressure(0.7, waiting=5, running=10), 20)) == {20}


def test_two_looks_in_a_second_are_one(ruled):
    one = ruled()
    one.look(0.0, 20, CachePressure(0.7))
    assert not one.look(0.5, 20, CachePressure(1.0))
    assert one.bound == 20


async def soon():
    for _ in range(5):
        await asyncio.sleep(0)


async def asking(data, slots):
    """Let slots ask, and return their questions."""
    asked = [asyncio.get_running_loop().create_task(data.admit(slot)) for slot in slots]
    await soon()
    return asked


def answered(asked):
    return [one.result() for one in asked if one.done()]


async def test_no_more_run_than_it_allows_and_who_waits_is_told(made, monkeypatch):
    monkeypatch.setattr(cache_use, "MAX_ATTEMPTS", 3)
    engines = Engines(2)
    data = made.make(admission=made.admission("cache_use", caches=engines.caches))
    asked = await asking(data, range(4))
    first = answered(asked)
    assert len(first) == 2
    assert data.status().admission() == "2 attempts run, and the engines' caches allow at most 2"
    assert data.idle_without_reason() is None
    for attempt in first:
        data.finish(made.ended(attempt))
        await asyncio.sleep(20.0)
    assert len(answered(asked)) == 4
    data.close()
    for attempt in answered(asked)[2:]:
        data.finish(made.ended(attempt, None))
    data.ledger.check()


async def test_full_caches_give_the_youngest_groups_up(made):
    engines, ended = Engines(6), []
    data = made.make(num_envs=6, admission=made.admission("cache_use", caches=engines.caches))
    data.withdraw = ended.append
    first = answered(await asking(data, range(6)))
    engines.now = CachePressure(0.95)
    data.finish(made.ended(first[0]))  # 5 run, of which 3 are within .7 / .95 of them
    assert ended == [first[4].id, first[5].id]
    data.finish(made.ended(first[4]))
    data.finish(made.ended(first[5], None))
    assert data.recorder.counts[f"dropped/{Drop.CROWDED}"] == 1
    assert data.recorder.counts[f"dropped/{Drop.MASKED}"] == 1
    assert len(data.ledger.running) == 3
    for attempt in first[1:4]:
        data.finish(made.ended(attempt))
    data.close()
    data.ledger.check()
