"""Actions of an oracle are played on desktops whose screenshots are PNG files."""

import numpy as np
import pytest

pytest.importorskip("docker")
pytest.importorskip("httpx")

from dartsim.core.png import Screenshot, encode_png
from dartsim.core.types import Observation, StepResult, Task
from dartsim.envs.base import WAIT
from dartsim.real.desktop.tasks.playing import PATIENCE, play


class Slow:
    """A desktop that shows an action only after it was waited for; implements ``AsyncEnv``."""

    def __init__(self):
        self.level = 0
        self.closed = False

    def shown(self) -> Observation:
        return Observation(Screenshot(encode_png(np.full((20, 30, 3), self.level, np.uint8))), "Play.")

    async def reset(self, task: Task, *, seed: int) -> Observation:
        return self.shown()

    async def step(self, action: str) -> StepResult:
        self.level += 60 * (action == WAIT)
        return StepResult(self.shown(), False)

    async def evaluate(self) -> float:
        return 1.0

    async def close(self):
        self.closed = True


async def test_an_action_is_waited_for_until_it_shows():
    desktop = Slow()

    class Provider:
        async def start(self, slot: int):
            return desktop

    played = await play(Provider(), Task("t", "Play."), ["click", "type"])
    assert PATIENCE >= 1
    assert played.actions == ("click", WAIT, "type", WAIT)
    assert [int(frame.max()) for frame in played.frames] == [0, 0, 60, 60, 120]
    assert (played.score, desktop.closed) == (1.0, True)
