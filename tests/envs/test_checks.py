"""Simulated desktops do what the control plane expects of any desktop, and the check finds those that do not."""

import asyncio
from collections import Counter

import numpy as np
import pytest

from dartsim.config.schema import FaultsConfig, FaultWindow
from dartsim.core.errors import EnvBroken, InvariantViolated
from dartsim.core.rng import Streams
from dartsim.core.types import Observation, StepResult
from dartsim.envs.simulated import SimDesktop
from dartsim.envs.timed import TimedProvider
from dartsim.sim.env_profiles import DART, OSWORLD
from dartsim.sim.faults import ClusterSize, FaultInjector, FaultyCluster, active_faults
from dartsim.sim.host import SimHost
from dartsim.testing.ports import check_env, check_env_provider


def provider(timing, *, draw=False):
    host = SimHost(asyncio.get_running_loop().env, cores=8, memory_gib=16, concurrent_starts=1)
    rng = np.random.default_rng(0)
    made = TimedProvider(lambda: SimDesktop(draw=draw, width=8, height=8), timing, [host], num_envs=2, rng=rng)
    return made, host


@pytest.mark.parametrize("timing", [DART, OSWORLD])
@pytest.mark.parametrize("draw", [True, False])
async def test_simulated_desktops_conform(timing, draw):
    made, host = provider(timing, draw=draw)
    await check_env_provider(made, cancel_after=(0.0, 0.3, 5.0, 20.0))
    assert host.memory.level == host.memory.capacity


async def test_desktops_with_faults_that_are_never_injected_conform():
    made, host = provider(DART)
    windows = [FaultWindow(kind=kind, at_seconds=1e9) for kind in ("start_failed", "host_lost", "message_delay")]
    injector = FaultInjector(
        active_faults(FaultsConfig(schedule=windows)),
        env=asyncio.get_running_loop().env,
        streams=Streams(0),
        counts=Counter(),
        size=ClusterSize(desktops=2, hosts=1, workers=1),
    )
    await check_env_provider(FaultyCluster(injector, [0, 0]).provider(made))
    assert host.memory.level == host.memory.capacity


class Desktop:
    """A desktop that conforms, unless told how not to."""

    def __init__(self, *, screen=None, over=("DONE",), score=1.0, faulty_action=None, instruction=None):
        self.screen = np.zeros((2, 2, 3), np.uint8) if screen is None else screen
        self.over = over
        self.score = score
        self.faulty_action = faulty_action
        self.instruction = instruction

    async def reset(self, task, *, seed):
        self.shown = Observation(self.screen, self.instruction or task.instruction)
        return self.shown

    async def step(self, action):
        if action == self.faulty_action:
            raise EnvBroken("what is this?")
        return StepResult(self.shown, action in self.over)

    async def evaluate(self):
        return self.score

    async def close(self):
        pass


async def test_a_plain_desktop_conforms():
    await check_env(Desktop())


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"screen": np.zeros((2, 2), np.uint8)}, "a screenshot is uint8"),
        ({"screen": np.zeros((2, 2, 3))}, "a screenshot is float64"),
        ({"over": ()}, "does not say that the episode is over after DONE"),
        ({"over": ("WAIT", "DONE")}, "over after 'WAIT', which ends none"),
        ({"score": 100.0}, "scored 100.0, wanted a number in"),
        ({"instruction": "Something else."}, "shows the instruction 'Something else.'"),
    ],
)
async def test_a_desktop_that_answers_something_else_does_not(wrong, message):
    with pytest.raises(InvariantViolated, match=message):
        await check_env(Desktop(**wrong))


async def test_a_malformed_action_is_no_fault():
    with pytest.raises(EnvBroken):
        await check_env(Desktop(faulty_action="this is no action"))


async def test_two_slots_must_not_share_a_desktop():
    class Sharing:
        desktop = Desktop()

        async def start(self, slot):
            return self.desktop

    with pytest.raises(InvariantViolated, match="two slots were given the same desktop"):
        await check_env_provider(Sharing())
