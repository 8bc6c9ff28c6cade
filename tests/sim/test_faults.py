"""Drawn faults: none where none are wanted, all where all are, and never a reward."""

import asyncio

import numpy as np
import pytest

from dartsim.core.errors import EnvBroken, EnvStartFailed, ScoreUnavailable
from dartsim.core.types import StepResult
from dartsim.sim.faults import FaultyEnv, FaultyProvider, chance


def now():
    return asyncio.get_running_loop().time()


class Desktop:
    def __init__(self):
        self.closed_at = None

    async def reset(self, task, *, seed):
        await asyncio.sleep(1.0)
        return ("reset", task, seed)

    async def step(self, action):
        await asyncio.sleep(2.0)
        return StepResult(action, False)

    async def evaluate(self):
        await asyncio.sleep(3.0)
        return 1.0

    async def close(self):
        await asyncio.sleep(4.0)
        self.closed_at = now()


class Provider:
    def __init__(self):
        self.desktops = []

    async def start(self, slot):
        await asyncio.sleep(10.0)
        self.desktops.append(Desktop())
        return self.desktops[-1]


NEVER, ALWAYS = (lambda: False), (lambda: True)


def provider(*, start_fails=NEVER, breaks=NEVER, unscored=NEVER):
    inner = Provider()
    return FaultyProvider(inner, start_fails=start_fails, breaks=breaks, unscored=unscored), inner


def test_a_chance_is_drawn_with_its_share_and_none_draws_nothing():
    rng = np.random.default_rng(1)
    before = rng.bit_generator.state
    never = chance(0.0, rng)
    assert not any(never() for _ in range(100))
    assert rng.bit_generator.state == before
    always = chance(1.0, rng)
    assert all(always() for _ in range(100))
    draw = chance(0.25, np.random.default_rng(7))
    assert 2300 < sum(draw() for _ in range(10_000)) < 2700


async def test_without_faults_a_desktop_is_passed_through():
    faulty, _ = provider()
    desktop = await faulty.start(0)
    assert await desktop.reset("task", seed=7) == ("reset", "task", 7)
    assert await desktop.step("act") == StepResult("act", False)
    assert await desktop.evaluate() == 1.0
    await desktop.close()
    assert now() == 10.0 + 1.0 + 2.0 + 3.0 + 4.0


async def test_a_failed_start_takes_the_time_of_a_good_one_and_leaves_nothing():
    faulty, inner = provider(start_fails=ALWAYS)
    with pytest.raises(EnvStartFailed, match="the desktop of slot 3 did not become ready"):
        await faulty.start(3)
    assert inner.desktops[0].closed_at == now() == 14.0


async def test_a_desktop_breaks_at_the_end_of_an_action():
    desktop = FaultyEnv(Desktop(), breaks=ALWAYS, unscored=NEVER)
    with pytest.raises(EnvBroken):
        await desktop.step("act")
    assert now() == 2.0


async def test_an_evaluator_fails_instead_of_scoring():
    desktop = FaultyEnv(Desktop(), breaks=NEVER, unscored=ALWAYS)
    with pytest.raises(ScoreUnavailable):
        await desktop.evaluate()
    assert now() == 3.0
