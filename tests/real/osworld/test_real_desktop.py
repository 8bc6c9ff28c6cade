"""The desktop and the environment in real containers: an episode, faults of the engine, gymnasium's own check."""

import asyncio
import warnings
from dataclasses import replace
from operator import methodcaller

import gymnasium
import pytest

pytest.importorskip("httpx")
pytest.importorskip("PIL")

from gymnasium.utils.env_checker import check_env as check_gymnasium

import dartsim.real  # noqa: F401 - registers the environment
from dartsim.core.errors import EnvBroken
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


class Container:
    """Remembers the containers that an engine starts."""

    def __init__(self, host):
        self.host = host
        self.newest = None

    async def start(self, spec, *, slot):
        self.newest = await self.host.start(spec, slot=slot)
        return self.newest


def test_engines_report_the_memory_that_limits_spares(monkeypatch):
    from dartsim.config import load
    from dartsim.real.osworld.backend import memory_of_hosts

    config = load(preset_name="desktop")
    found = memory_of_hosts(config)
    assert found is not None
    (host,), desktop = found
    assert host > desktop == config.desktop.memory_mib / 1024
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere.sock")
    assert memory_of_hosts(config) is None


def with_desktop(spec, *uses, settings=SETTINGS):
    """Start a desktop for each of ``uses``, and hand it over with what remembers its container."""
    from dartsim.real.containers import DockerHost

    async def main():
        async with DockerHost(run="test") as host:

            async def one(use, slot):
                engine = Container(host)
                desktop = await start_desktop(
                    engine, spec, DesktopOptions(settings=settings, timeouts=TIMEOUTS), slot=slot
                )
                try:
                    await use(desktop, engine)
                finally:
                    await desktop.close()

            await asyncio.gather(*(one(use, slot) for slot, use in enumerate(uses)))
            assert host.num_held == 0

    asyncio.run(main())


def test_an_episode_in_an_application(small_desktop):
    async def use(desktop, _):
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

    with_desktop(small_desktop, use)


TERMINAL = {
    "type": "launch",
    "parameters": {"command": f"xterm -u8 -e sh -c 'stty raw -echo; touch {NOTE}; cat > {NOTE}'", "shell": True},
}


@pytest.mark.parametrize("step", [LAUNCH, TERMINAL])
@pytest.mark.parametrize("paste", [False, True])
def test_typed_text_is_exact_on_a_busy_desktop(small_desktop, step, paste):
    texts = ["Grüße, 世界 0 ", "plain <ASCII> ~", "aé" * 130, "a😀", "ß", "x" * 3_000]

    async def use(desktop, _):
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

    with_desktop(small_desktop, use, settings=replace(SETTINGS, paste=paste, action_seconds=60.0))


async def kill_x(container):
    await container.exec(["pkill", "-9", "Xvfb"])


async def stop_x(container):
    await container.exec(["pkill", "-STOP", "Xvfb"])


async def pause(container):
    await container.engine.call(container.id, methodcaller("pause"))


async def kill(container):
    await container.kill()


async def kill_later(container):
    asyncio.get_running_loop().call_later(0.5, lambda: asyncio.ensure_future(container.kill()))


FAULTS = {
    kill_x: {"action_failed", "vm_bad_reply", "bad_screenshot", "vm_refused", "action_uncertain"},
    stop_x: {"action_uncertain", "vm_hung"},
    pause: {"action_uncertain"},
    kill: {"vm_refused"},
    kill_later: {"action_uncertain"},
}


@pytest.mark.slow
def test_each_fault_has_its_cause_and_a_fresh_desktop_serves_again(small_desktop):
    plain = replace(TASK, spec={})

    def befalling(faults):
        async def use(desktop, engine):
            await check_env_steps(desktop, plain)
            for fault in faults:
                await fault(engine.newest)
                with pytest.raises(EnvBroken) as caught:
                    await desktop.step(f"pyautogui.write({'a' * 60!r})")
                assert caught.value.cause in FAULTS[fault], fault.__name__
                await check_env_steps(desktop, plain)

        return use

    # An action takes longer on busy cores than alone; the typing takes 6 s.
    settings = replace(SETTINGS, action_seconds=4.0, key_seconds=0.1)
    # On two desktops at once: where one hangs, most of the time is waited.
    with_desktop(small_desktop, befalling([stop_x, kill]), befalling([pause, kill_later, kill_x]), settings=settings)


async def check_env_steps(desktop, task):
    await desktop.reset(task, seed=0)
    assert not (await desktop.step("pyautogui.moveTo(50, 60)")).over
    where = await desktop.client.execute(["python", "-c", "import pyautogui; print(tuple(pyautogui.position()))"])
    assert where.output == "(50, 60)\n"


def test_it_conforms(small_desktop):
    task = replace(TASK, spec={**TASK.spec, "config": []})
    with_desktop(small_desktop, lambda desktop, _: check_env(desktop, task))


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
