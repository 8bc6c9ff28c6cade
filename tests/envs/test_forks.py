"""Mock and modeled desktops return to saved states: siblings share a set-up and nothing else."""

import asyncio
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
from gymnasium.error import ResetNeeded
from hypothesis import given
from hypothesis import strategies as st

from dartsim.config import load
from dartsim.core.errors import EnvBroken
from dartsim.envs.direct import DirectProvider
from dartsim.envs.mock.env import MockDesktop
from dartsim.envs.mock.suites import mock_suite
from dartsim.envs.simulated import SOLVE_ACTION, SimDesktop
from dartsim.envs.timed import TimedProvider
from dartsim.run.prepare import prepare
from dartsim.sim.env_profiles import DART
from dartsim.sim.host import SimHost
from dartsim.testing.ports import check_env_provider, check_snapshots

TASKS = mock_suite("long", 13)


def modeled(make_env=SimDesktop, timing=DART):
    host = SimHost(asyncio.get_running_loop().env, cores=8, memory_gib=16)
    rng = np.random.default_rng(0)
    return TimedProvider(make_env, timing, [host], num_envs=2, rng=rng, forks=True)


async def test_mock_desktops_conform():
    await check_snapshots(DirectProvider(MockDesktop, forks=True), TASKS[0], TASKS[1], act="pyautogui.press('a')")


async def test_modeled_desktops_conform():
    await check_snapshots(modeled(), act=SOLVE_ACTION)
    await check_snapshots(modeled(MockDesktop), TASKS[0], TASKS[1])
    await check_env_provider(modeled())


async def test_a_fork_takes_the_time_of_a_restore():
    loop = asyncio.get_running_loop()
    desktop = await modeled().start(0)
    began = loop.time()
    await desktop.reset(TASKS[0], seed=1)
    assert loop.time() - began > 10.0
    began = loop.time()
    assert await desktop.snapshots.save("a") == 375 * 2**20
    assert loop.time() - began == pytest.approx(1.2)
    began = loop.time()
    await desktop.snapshots.restore("a")
    await desktop.reset(TASKS[0], seed=2)
    assert loop.time() - began == pytest.approx(0.8)


async def test_restores_fail_as_often_as_the_profile_says():
    desktop = await modeled(timing=replace(DART, restore_failures=1.0)).start(0)
    await desktop.snapshots.save("a")
    with pytest.raises(EnvBroken, match="did not return"):
        await desktop.snapshots.restore("a")


ACTIONS = st.one_of(
    st.tuples(st.integers(0, 639), st.integers(0, 479)).map(lambda at: f"pyautogui.click({at[0]}, {at[1]})"),
    st.sampled_from(["pyautogui.write('abc')", "pyautogui.press('tab')", "pyautogui.scroll(-3)", "nonsense"]),
)


@given(st.sampled_from(TASKS), st.lists(ACTIONS, max_size=6), st.lists(ACTIONS, max_size=6))
def test_siblings_do_what_they_would_alone(task, mine, theirs):
    """Two forks whose actions alternate show what a desktop shows that did the same by itself."""
    saved = MockDesktop()
    saved.begin(task, 0)
    state = saved.copy_state()
    siblings = MockDesktop(), MockDesktop()
    for sibling in siblings:
        sibling.resume(state, task)
        assert np.array_equal(sibling.observe().screenshot, saved.observe().screenshot)
    for number in range(6):
        for sibling, actions in zip(siblings, (mine, theirs), strict=True):
            if number < len(actions):
                play(sibling, actions[number])
    for sibling, actions in zip(siblings, (mine, theirs), strict=True):
        alone = MockDesktop()
        alone.begin(task, 0)
        for action in actions:
            play(alone, action)
        assert np.array_equal(sibling.observe().screenshot, alone.observe().screenshot)
        assert (sibling.turns, sibling.evaluate()) == (alone.turns, alone.evaluate())
    saved.resume(state, task)
    fresh = MockDesktop()
    fresh.begin(task, 0)
    assert np.array_equal(saved.observe().screenshot, fresh.observe().screenshot), "the saved state changed"


def play(desktop, action):
    with suppress(ResetNeeded):  # a click may have ended the episode
        desktop.act(action)


class Random(SimDesktop):
    """A desktop that draws."""

    seeded = True


def test_siblings_draw_by_their_own_seeds():
    saved = Random()
    saved.begin(TASKS[0], 0)
    state = saved.copy_state()
    drawn = []
    for seed in (1, 2, 1):
        sibling = Random()
        sibling.resume(state, TASKS[0], seed)
        drawn.append(sibling.np_random.random())
    assert drawn[0] == drawn[2] != drawn[1]


def test_hosts_set_memory_aside_for_saved_states():
    from dartsim.run.prepare import hosts
    from dartsim.sim import SimEnvironment

    config = load("dart", overrides=('desktop.revert="fork"', "desktop.states_gib=8.0"))
    prepared = prepare(config)
    whole = config.cluster.hosts.memory_gib
    assert [host.memory_gib for host in hosts(prepared.config, SimEnvironment())] == [whole - 8.0] * 4


def test_mock_desktops_of_this_process_need_no_memory_of_modeled_hosts():
    config = load("tiny", overrides=('desktop.revert="fork"', "backend.desktops=mock"))
    assert prepare(config).config.cluster.hosts.memory_gib <= config.desktop.states_gib
