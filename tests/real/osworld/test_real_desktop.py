"""The desktop and the environment in real containers: an episode, gymnasium's own check."""

import asyncio
import warnings
from contextlib import asynccontextmanager
from dataclasses import replace

import gymnasium
import pytest

pytest.importorskip("httpx")
pytest.importorskip("PIL")

from gymnasium.utils.env_checker import check_env as check_gymnasium

import dartsim.real  # noqa: F401 - registers the environment
from dartsim.core.types import Task
from dartsim.real.osworld.connect import DesktopOptions
from dartsim.real.osworld.provider import start_desktop
from dartsim.real.osworld.ready import Readiness
from dartsim.real.osworld.recycle import open_windows
from dartsim.real.osworld.settings import DesktopSettings
from dartsim.real.osworld.transport import Timeouts
from dartsim.testing.ports import check_env

pytestmark = pytest.mark.docker

NOTE = "/home/user/note.txt"
LAUNCH = {"type": "launch", "parameters": {"command": f"touch {NOTE}; mousepad {NOTE}", "shell": True}}
TASK = Task("note", "Write a note.", "notes", {"config": [LAUNCH], "evaluator": {"func": "infeasible"}})
# Nothing moves on a desktop that has just started, without an application.
SETTINGS = DesktopSettings(
    screen=(640, 480), action_seconds=10.0, booted=Readiness(quiet_seconds=0.0, poll_seconds=0.1)
)
# Real time: long enough for a busy machine, short for one desktop that hangs.
TIMEOUTS = Timeouts(screenshot=4.0)


@pytest.mark.usefixtures("docker_engine")
def test_engines_report_the_memory_that_limits_spares(monkeypatch):
    from dartsim.config import load
    from dartsim.real.osworld.backend import memory_of_hosts

    config = load("desktop")
    found = memory_of_hosts(config)
    assert found is not None
    (host,), desktop = found
    assert host > desktop == config.desktop.memory_mib / 1024
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere.sock")
    assert memory_of_hosts(config) is None


@asynccontextmanager
async def running(spec, settings=SETTINGS):
    from dartsim.real.containers import DockerHost

    async with DockerHost(run="test") as host:
        desktop = await start_desktop(host, spec, DesktopOptions(settings=settings, timeouts=TIMEOUTS))
        try:
            yield desktop
        finally:
            await desktop.close()
        assert host.num_held == 0


@pytest.mark.anyio
async def test_an_episode_in_an_application(small_desktop):
    async with running(small_desktop) as desktop:
        shown = await desktop.reset(TASK, seed=0)
        assert (shown.screenshot.shape, shown.instruction) == ((480, 640, 3), "Write a note.")
        text = "a <b> & 'c' ~1\n\tA_Z"
        after, _ = await desktop.step(f"pyautogui.click(320, 240); pyautogui.write({text!r})")
        assert after.screenshot.digest != shown.screenshot.digest
        assert len(await open_windows(desktop.client)) == 1
        await desktop.step("pyautogui.hotkey('ctrl', 's')")
        assert (await desktop.client.file(NOTE)).decode().rstrip() == text
        assert (await desktop.step("DONE")).over
        assert await desktop.evaluate() == 0.0


TERMINAL = {
    "type": "launch",
    "parameters": {"command": f"xterm -u8 -e sh -c 'stty raw -echo; touch {NOTE}; cat > {NOTE}'", "shell": True},
}


@pytest.mark.parametrize(("step", "paste"), [(LAUNCH, True), (TERMINAL, False)])
@pytest.mark.anyio
async def test_typed_text_is_exact_on_a_busy_desktop(small_desktop, step, paste):
    texts = ["Grüße, 世界 0 ", "plain <ASCII> ~", "aé" * 130, "a😀", "ß", "x" * 3_000]
    settings = replace(SETTINGS, paste=paste, action_seconds=60.0)
    async with running(small_desktop, settings) as desktop:
        await desktop.reset(replace(TASK, spec={**TASK.spec, "config": [step]}), seed=0)
        # Busy, and with something in the user's clipboard.
        load = "printf mine | xsel -b -i; for i in 1 2 3 4 5 6; do timeout 60 sh -c 'while :; do :; done' & done"
        await desktop.client.execute(load, shell=True)
        await desktop.step("pyautogui.click(200, 200)")
        await desktop.step("; ".join(f"pyautogui.write({text!r})" for text in texts[:3]))
        for text in texts[3:]:
            await desktop.step(f"pyautogui.write({text!r})")
        await desktop.step("pyautogui.press(['B', 'c', '!'])")
        if step is LAUNCH:
            await desktop.step("pyautogui.hotkey('ctrl', 's')")
            await asyncio.sleep(2.0)
        assert (await desktop.client.file(NOTE)).decode().rstrip("\n") == "".join(texts) + "Bc!"
        clipboard = await desktop.client.execute(["xsel", "-b", "-o"])
        assert clipboard.output == (texts[-1] if paste else "mine")


@pytest.mark.anyio
async def test_it_conforms(small_desktop):
    async with running(small_desktop) as desktop:
        await check_env(desktop, replace(TASK, spec={**TASK.spec, "config": []}))


def test_gymnasium_finds_nothing_wrong_in_a_desktop_that_runs(desktop_url):
    env = gymnasium.make("dartsim/OSWorld-v0", base_url=desktop_url, settings=SETTINGS, width=112, height=112)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_gymnasium(env.unwrapped, skip_render_check=True)
    env.close()


def test_the_environment_starts_its_own_container(small_desktop):
    env = gymnasium.make("dartsim/OSWorld-v0", container=small_desktop, settings=SETTINGS)
    first, _ = env.reset(options={"task": TASK})
    env.step("pyautogui.write('x')")
    container = env.unwrapped.desktop.client.base_url
    again, _ = env.reset(options={"task": TASK})
    assert env.unwrapped.desktop.client.base_url != container
    assert first["screenshot"].shape == again["screenshot"].shape == (480, 640, 3)
    env.close()
