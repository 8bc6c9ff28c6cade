"""Screenshots are encoded and written in threads while their attempt goes on, and the store finds them there."""

import asyncio
import threading

import numpy as np
import pytest

from dartsim.core.png import encode_png
from dartsim.core.types import Observation, StepResult
from dartsim.real.screenshot_writer import ScreenshotSavingProvider
from dartsim.store.blobs import BlobStore

pytestmark = pytest.mark.anyio


def screen(seed):
    return np.random.default_rng(seed).integers(0, 256, (6, 8, 3), dtype=np.uint8)


class Desktop:
    """Shows another screen after each of three actions."""

    def __init__(self):
        self.shown = []
        self.closed = False

    def _show(self):
        self.shown.append(Observation(screen(len(self.shown)), "do it", f"<{len(self.shown)}/>"))
        return self.shown[-1]

    async def reset(self, task, *, seed):
        return self._show()

    async def step(self, action):
        return StepResult(self._show(), over=len(self.shown) > 3)

    async def evaluate(self):
        return 1.0

    async def close(self):
        self.closed = True


class Provider:
    def __init__(self):
        self.desktop = Desktop()

    async def start(self, slot):
        return self.desktop


async def played(keep):
    provider = Provider()
    desktop = await ScreenshotSavingProvider(provider, keep).start(0)
    await desktop.reset("task", seed=0)
    while not (await desktop.step("act")).over:
        pass
    assert await desktop.evaluate() == 1.0
    await desktop.close()
    assert provider.desktop.closed
    return provider.desktop.shown


def test_every_screen_of_a_turn_is_on_disk_when_its_attempt_is_scored(tmp_path, monkeypatch):
    blobs, threads = BlobStore(tmp_path), []

    def encoded(picture):
        threads.append(threading.current_thread())
        return encode_png(picture)

    monkeypatch.setattr("dartsim.store.blobs.png_of", encoded)
    shown = asyncio.run(played(blobs.prepare))
    assert len(threads) == 3, "nobody acts on the last screen"
    assert threading.main_thread() not in threads
    monkeypatch.setattr("dartsim.store.blobs.png_of", None)
    for one in shown[:3]:
        blobs.put(one.screenshot)


async def test_the_desktop_does_not_wait_for_it():
    """The first screen is kept while the attempt acts; its score comes when all are."""
    go_on, order = asyncio.Event(), []

    async def keep(picture):
        await go_on.wait()
        order.append("kept")

    class Scored(Desktop):
        async def evaluate(self):
            order.append("scored")
            go_on.set()
            return 1.0

    provider = Provider()
    provider.desktop = Scored()

    desktop = await ScreenshotSavingProvider(provider, keep).start(0)
    await desktop.reset("task", seed=0)
    await desktop.step("act")
    await desktop.evaluate()
    assert order == ["scored", "kept", "kept"]


@pytest.mark.filterwarnings("error")
def test_a_screen_that_cannot_be_kept_is_not_the_desktop_s_fault():
    async def keep(picture):
        raise OSError("no room")

    assert len(asyncio.run(played(keep))) == 4
