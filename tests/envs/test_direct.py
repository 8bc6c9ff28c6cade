"""Desktops as fast as they are: the ports' conformance, and faults that are told apart."""

import asyncio

import pytest

from dartsim.core.errors import EnvBroken, EnvStartFailed, ScoreUnavailable
from dartsim.envs.direct import DirectProvider
from dartsim.envs.simulated import SimDesktop
from dartsim.testing import ports as checks


def test_direct_desktops_keep_what_the_ports_promise():
    asyncio.run(checks.check_env_provider(DirectProvider(SimDesktop), cancel_after=(0.0,)))


class Broken(SimDesktop):
    def _act(self, action):
        raise RuntimeError("no display")

    def _score(self):
        raise RuntimeError("no evaluator")


def test_what_fails_is_a_fault_with_its_cause():
    async def main():
        desktop = await DirectProvider(Broken).start(0)
        await desktop.reset(checks.TASK, seed=0)
        with pytest.raises(EnvBroken, match="no display"):
            await desktop.step("pyautogui.click(1, 1)")
        with pytest.raises(ScoreUnavailable, match="no evaluator"):
            await desktop.evaluate()
        with pytest.raises(EnvStartFailed, match="slot 3"):
            await DirectProvider(lambda: SimDesktop(width=0)).start(3)

    asyncio.run(main())
