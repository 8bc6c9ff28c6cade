"""The asynchronous desktop over a stand-in server: actions, observations, scores, faults; in virtual time."""

import asyncio
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("httpx")
pytest.importorskip("PIL")

from gymnasium.error import ResetNeeded

from dartsim.core.errors import EnvBroken, ScoreUnavailable
from dartsim.core.types import Task
from dartsim.envs.actions.model import Click, TypeText
from dartsim.envs.mock.env import MockDesktop
from dartsim.real.osworld.client import VmClient
from dartsim.real.osworld.desktop import OsworldDesktop
from dartsim.real.osworld.errors import (
    ActionFailed,
    ActionUncertain,
    BadScreenshot,
    BlackScreen,
    DesktopLost,
    ServerRestarted,
    VmBadReply,
    VmHung,
    VmLost,
    WrongScreenAtStart,
    WrongScreenSize,
)
from dartsim.real.osworld.ready import Readiness, SettlingRules
from dartsim.real.osworld.settings import DesktopSettings
from dartsim.real.osworld.transport import OSWORLD_SERVER, ServerTraits
from dartsim.testing.ports import check_env

LAUNCH = {"type": "launch", "parameters": {"command": "mousepad"}}
TASK = Task("type", "Type hello.", "notes", {"config": [LAUNCH], "evaluator": {"func": "exact_match"}})
PLAIN = replace(TASK, spec={})
QUICK = DesktopSettings(screen=(320, 240), booted=Readiness(limit_seconds=30.0))


def now():
    return asyncio.get_running_loop().time()


async def run_steps(steps, client, where):
    for step in steps:
        await client.launch(step["parameters"]["command"])


class Scorer:
    """Scores 1 if "hello" was typed; remembers what it was asked."""

    def __init__(self, vm):
        self.vm = vm
        self.asked = []
        self.answer = None

    async def score(self, task, client, where, *, last_action):
        self.asked.append((task.id, where, last_action))
        await client.execute(["echo", "looking"], action=False)
        if isinstance(self.answer, Exception):
            raise self.answer
        return float(self.vm.typed == "hello") if self.answer is None else self.answer


@pytest.fixture
def vm(standin):
    vm = standin.Vm()
    vm.on_launch = lambda: vm.paint_later(0.5)
    vm.on_actions = lambda actions: vm.paint_later(0.05, len(vm.actions) % 250, top=100)
    return vm


@pytest.fixture
def scorer(vm):
    return Scorer(vm)


@pytest.fixture
def make(standin, vm, scorer):
    """Return what makes a desktop over ``vm``."""

    def desktop(settings=QUICK, server=None, **options):
        server = server or ServerTraits(screenshot_budget=None)
        client = VmClient("http://vm", server=server, transport=standin.Memory(vm))
        where = options.pop("where", lambda task: f"folder of {task.id}")
        return OsworldDesktop(client, run_steps=run_steps, scorer=scorer, where=where, settings=settings, **options)

    return desktop


# ---- an episode


async def test_it_is_a_desktop_of_the_control_plane(make):
    await check_env(make(), PLAIN)
    await check_env(make(), TASK)


async def test_an_episode(make, vm, scorer):
    desktop = make()
    for early in (desktop.step("WAIT"), desktop.evaluate()):
        with pytest.raises(ResetNeeded):
            await early
    shown = await desktop.reset(TASK, seed=3)
    assert shown.instruction == "Type hello."
    assert shown.screenshot.shape == (240, 320, 3)
    assert shown.screenshot.pixels[0, 0, 0] == 200  # the window that was launched
    assert vm.launched == ["mousepad"]
    shown, over = await desktop.step("pyautogui.click(10, 20); pyautogui.write('hello')")
    assert vm.actions == [Click(10, 20), TypeText("hello")]
    assert shown.screenshot.pixels[100, 0, 0] == 2  # what the actions have painted
    assert not over
    assert (await desktop.step("DONE")).over
    assert await desktop.evaluate() == 1.0
    assert scorer.asked == [("type", "folder of type", "DONE")]
    with pytest.raises(ResetNeeded):
        await desktop.step("WAIT")


async def test_a_small_policy_uses_a_large_screen(make, vm):
    settings = replace(QUICK, shown=(32, 24), grammar="compact", grammar_options={"columns": 4, "rows": 4})
    desktop = make(settings)
    shown = await desktop.reset(PLAIN, seed=0)
    assert shown.screenshot.shape == (24, 32, 3)
    shown, _ = await desktop.step("click 3 0")
    assert shown.screenshot.shape == (24, 32, 3)
    # Cell 3 of 4 has its centre at 28 of 32 pixels, whose middle is 285 of 320.
    assert vm.actions == [Click(285, 35)]


async def test_the_same_texts_mean_the_same_as_on_the_mock_desktop(make, vm):
    texts = ["WAIT", "nonsense", "pyautogui.click(5, 5)", "import os; os.remove('/')", "pyautogui.press('a'); FAIL"]
    desktop, mock = make(), MockDesktop(width=320, height=240, auto_done=False)
    await desktop.reset(PLAIN, seed=0)
    mock.reset()
    for text in texts:
        over = (await desktop.step(text)).over
        assert over == mock.act(text)
        episode = desktop.episode
        assert (episode.malformed, episode.last_actions, episode.last_action, episode.turns) == (
            mock.malformed,
            mock.last_actions,
            mock.last_action,
            mock.turns,
        )
    assert over
    assert len(vm.executed) == 2, "nothing of what is malformed"


async def test_wait_waits(make, vm):
    desktop = make(replace(QUICK, wait_seconds=5.0, settle=SettlingRules(poll_seconds=0.1)))
    await desktop.reset(PLAIN, seed=0)
    began = now()
    await desktop.step("WAIT")
    assert now() - began == pytest.approx(5.1)
    assert vm.executed == []


@pytest.mark.parametrize("ends", [False, True])
async def test_a_click_may_end_the_episode(make, vm, ends):
    desktop = make()
    await desktop.reset(replace(TASK, spec={"auto_done": ends}), seed=0)
    assert (await desktop.step("pyautogui.press('a')")).over is False
    assert (await desktop.step("pyautogui.click(1, 1)")).over is ends
    assert len(vm.actions) == 2


async def test_the_accessibility_tree_is_shown_if_asked_for(make):
    assert (await make().reset(PLAIN, seed=0)).accessibility_tree is None
    tree = (await make(replace(QUICK, accessibility=True)).reset(PLAIN, seed=0)).accessibility_tree
    assert tree.startswith("<desktop-frame")


async def test_the_originals_fixed_sleeps(make, vm):
    settings = replace(QUICK, settle=2.0, ready=60.0, evaluate_wait_seconds=20.0)
    desktop = make(settings)
    await desktop.reset(TASK, seed=0)
    assert 60.0 <= now() < 62.0
    began = now()
    await desktop.step("pyautogui.press('a')")
    assert now() - began == 2.0
    await desktop.evaluate()
    assert now() - began == pytest.approx(22.0)


async def test_what_took_how_long_is_told(make):
    told = {}

    def on_call(name, seconds):
        told.setdefault(name, []).append(round(seconds, 6))

    desktop = make(replace(QUICK, evaluate_wait_seconds=3.0), on_call=on_call)
    await desktop.reset(TASK, seed=0)
    await desktop.step("pyautogui.press('a')")
    await desktop.evaluate()
    await desktop.close()
    assert set(told) == {"boot", "setup", "ready", "step", "act", "settle", "screenshot", "evaluate", "teardown"}
    assert told["evaluate"] == [3.0]
    assert told["step"] == told["settle"] == [0.2]
    assert told["ready"][0] > 0.5


# ---- scores


async def test_a_scorer_that_fails_gives_no_score(make, scorer):
    desktop = make()
    await desktop.reset(PLAIN, seed=0)
    for answer in (ValueError("gold"), 2.0, float("nan")):
        scorer.answer = answer
        with pytest.raises(ScoreUnavailable):
            await desktop.evaluate()
    scorer.answer = 0.5
    assert await desktop.evaluate() == 0.5


async def test_fail_in_the_grammars_words_is_told_as_fail(make, scorer):
    desktop = make(replace(QUICK, grammar="ui_tars"))
    await desktop.reset(PLAIN, seed=0)
    await desktop.step("Action: call_user()")
    await desktop.evaluate()
    assert scorer.asked[-1][2] == "FAIL"


# ---- faults


@pytest.mark.parametrize(
    ("route", "faults", "error"),
    [
        ("/execute", ["hang"], ActionUncertain),
        ("/execute", ["lost"], ActionUncertain),
        ("/execute", ["html500"], VmBadReply),
        ("/screenshot", ["hang"], VmHung),
        ("/screenshot", ["cut"] * 3, VmLost),
        ("/screenshot", ["half"] * 3, BadScreenshot),
        ("/screenshot", ["html500"] * 3, VmBadReply),
        ("/screenshot", ["black"] * 1000, BlackScreen),
    ],
)
async def test_a_fault_in_a_step_loses_the_desktop(make, vm, route, faults, error):
    desktop = make()
    await desktop.reset(PLAIN, seed=0)
    vm.fail(route, *faults)
    with pytest.raises(error) as caught:
        await desktop.step("pyautogui.press('a')")
    assert isinstance(caught.value, EnvBroken)
    for again in (desktop.evaluate(), desktop.reset(PLAIN, seed=0)):
        with pytest.raises(DesktopLost, match=caught.value.cause):
            await again
    with pytest.raises(ResetNeeded):
        await desktop.step("WAIT")
    await desktop.close()


@pytest.mark.parametrize("faults", [["half", "cut"], ["html500"], ["black", "black"], ["slow"]])
async def test_a_passing_fault_of_a_screenshot_is_no_fault(make, vm, faults):
    desktop = make()
    await desktop.reset(PLAIN, seed=0)
    vm.fail("/screenshot", *faults)
    shown, _ = await desktop.step("pyautogui.press('a')")
    assert shown.screenshot.pixels.any()


async def test_a_dead_x_server_is_a_fault_and_no_bad_action(make, vm):
    desktop = make()
    await desktop.reset(PLAIN, seed=0)
    vm.returncode = 1
    with pytest.raises(ActionFailed, match="DisplayConnectionError"):
        await desktop.step("pyautogui.press('a')")


async def test_a_server_that_restarts_within_an_episode_is_a_fault(make, vm):
    desktop = make(server=ServerTraits(restart_seconds=8.0))
    await desktop.reset(PLAIN, seed=0)
    vm.die(seconds=5.0)
    with pytest.raises(ServerRestarted):
        await desktop.step("nonsense")


async def test_a_screen_of_another_size_is_told(make, vm):
    with pytest.raises(WrongScreenAtStart):
        await make(DesktopSettings()).boot()
    desktop = make()
    await desktop.boot()
    vm.screen = np.full((10, 10, 3), 99, np.uint8)
    with pytest.raises(WrongScreenSize):
        await desktop.reset(PLAIN, seed=0)


async def test_foreign_errors_are_faults_of_the_desktop(make):
    def where(task):
        raise OSError("disk full")

    with pytest.raises(EnvBroken, match="disk full"):
        await make(where=where).reset(PLAIN, seed=0)


async def test_a_cancelled_step_loses_the_desktop(make, vm):
    desktop = make()
    await desktop.reset(PLAIN, seed=0)
    vm.fail("/execute", "hang")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1.0):
            await desktop.step("pyautogui.press('a')")
    with pytest.raises(DesktopLost, match="CancelledError"):
        await desktop.evaluate()


async def test_close_never_raises_and_happens_once(make):
    closed = []

    async def close():
        closed.append(1)
        raise OSError("no engine")

    desktop = make(close=close)
    await desktop.close()
    await desktop.close()
    assert closed == [1]


async def test_a_close_that_is_cancelled_removes_the_container(make, monkeypatch):
    closed = []

    async def close():
        closed.append(1)

    desktop = make(close=close)
    monkeypatch.setattr(desktop.client, "aclose", lambda: asyncio.sleep(10.0))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1.0):
            await desktop.close()
    assert closed == [1]
    with pytest.raises(DesktopLost, match="is closed"):
        await desktop.reset(PLAIN, seed=0)


# ---- the windows of launched programs


def launching(*programs):
    return replace(TASK, spec={"config": [{"type": "launch", "parameters": {"command": each}} for each in programs]})


@pytest.fixture
def slow_start(vm):
    """Each launched program has a splash screen at once, which stands still, and its window after 8 s, and 8 s more."""

    def later(seconds, level, window, splash):
        left = 40 * len(vm.launched)

        def show():
            vm.paint(level, left=left)
            vm.windows.append(window)
            vm.splashes |= {window} if splash else set()

        asyncio.get_running_loop().call_later(seconds, show)

    def launch():
        count = len(vm.launched)
        if "socat" not in vm.launched[-1]:
            later(0.2, 90, f"0x0a00000{count}", splash=True)
            later(8.0 * count, 200 + count, f"0x0b00000{count}", splash=False)

    vm.on_launch = launch
    return vm


@pytest.mark.parametrize(
    ("programs", "seconds", "levels"),
    [
        (["gimp"], 8, (201,)),
        (["VLC_VERBOSE=-1 vlc"], 8, (201,)),
        ([["/usr/bin/google-chrome", "--x"], ["socat", "tcp-listen:9222"]], 8, (201,)),
        (["thunar", "gimp"], 16, (201, 202)),
    ],
)
async def test_the_first_observation_has_the_launched_programs_windows(make, slow_start, programs, seconds, levels):
    shown = await make().reset(launching(*programs), seed=0)
    pixels = shown.screenshot.pixels
    assert tuple(pixels[0, 40 * number, 0] for number in range(1, 1 + len(levels))) == levels
    assert seconds < now() < seconds + 5


async def test_a_desktop_that_lists_no_windows_is_waited_for_as_by_osworld(make, slow_start, monkeypatch, standin):
    def execute(vm, values):
        return (500, {"status": "error"}) if values["command"] == ["wmctrl", "-l"] else vm.execute(values)

    monkeypatch.setitem(standin.ROUTES, "/execute", ("POST", execute))
    await make().reset(launching("gimp"), seed=0)
    assert 60 < now() < 65


async def test_a_set_up_that_launches_nothing_asks_for_no_window(make, vm):
    desktop = make()
    await desktop.boot()
    asked = vm.requests.count("/execute")
    await desktop.reset(replace(TASK, spec={"config": []}), seed=0)
    assert vm.requests.count("/execute") == asked
    assert now() < 2


# ---- more than one attempt


async def test_a_used_desktop_is_reverted_if_it_can_be(make, vm, standin):
    fresh = []

    async def revert():
        fresh.append(standin.Vm())
        return VmClient("http://fresh", transport=standin.Memory(fresh[-1]))

    desktop = make(revert=revert)
    await desktop.reset(PLAIN, seed=0)
    assert fresh == []
    await desktop.reset(PLAIN, seed=0)
    assert len(fresh) == 1
    fresh[0].fail("/execute", "lost")
    with pytest.raises(ActionUncertain):
        await desktop.step("pyautogui.press('a')")
    await desktop.reset(PLAIN, seed=0)
    await desktop.step("pyautogui.press('a')")
    assert len(fresh[1].actions) == 1


async def test_the_server_is_restarted_between_attempts(make, vm):
    desktop = make(server=ServerTraits(screenshot_budget=12))
    await desktop.reset(PLAIN, seed=0)
    for _ in range(3):
        await desktop.step("pyautogui.press('a')")
    assert vm.pid == 100
    await desktop.reset(PLAIN, seed=0)
    assert vm.pid == 101
    await desktop.step("pyautogui.press('a')")


async def test_the_server_is_restarted_within_an_attempt_if_need_be(make, vm):
    desktop = make(server=ServerTraits(screenshot_budget=10))
    await desktop.reset(PLAIN, seed=0)
    for _ in range(8):
        await desktop.step("pyautogui.press('a')")
    assert vm.pid > 101
    assert len(vm.actions) == 8


async def test_a_restart_that_loses_what_was_on_the_screen_is_a_fault(make, vm):
    async def recycle(client):
        vm.screen[:] = 33
        client.server_restarted()

    desktop = make(server=ServerTraits(screenshot_budget=6), recycle=recycle)
    await desktop.reset(PLAIN, seed=0)
    await desktop.step("pyautogui.press('a')")
    with pytest.raises(ServerRestarted):
        await desktop.step("pyautogui.press('a')")


# ---- a screen that keeps moving, on OSWorld's server at its own speed


@pytest.fixture
def video(vm):
    """A desktop on which the task's set-up starts a video, and a server that leaks."""
    vm.screenshot_seconds = 0.2
    vm.max_screenshots = 250

    def launch():
        vm.moving = True
        vm.windows.append("0x01000002")

    vm.on_launch = launch
    return vm


MOVING = replace(QUICK, settle=SettlingRules(cap_seconds=2.0))


async def play(desktop, steps):
    await desktop.reset(TASK, seed=0)
    for _ in range(steps):
        await asyncio.sleep(5.0)  # the model thinks
        await desktop.step("pyautogui.press('a')")


async def test_sixty_steps_on_a_moving_screen_need_no_restart(make, video):
    desktop = make(MOVING, server=OSWORLD_SERVER)
    await play(desktop, 60)
    assert len(video.actions) == 60
    assert video.pid == 100
    assert video.total_screenshots < 200
    assert await desktop.evaluate() == 0.0


@pytest.mark.parametrize("debug_mode", [True, False])
@pytest.mark.parametrize("moving", [True, False])
async def test_150_steps_end_well_on_a_server_that_dies_at_200(make, video, debug_mode, moving):
    """Whether it can be replaced without an end of its programs or not."""
    video.max_screenshots = 200
    video.windows_die_with_server = True
    video.debug_mode = debug_mode
    desktop = make(MOVING, server=OSWORLD_SERVER)
    await desktop.reset(TASK, seed=0)
    video.moving = moving
    for _ in range(150):
        await desktop.step("pyautogui.press('a')")
    assert len(video.actions) == 150
    assert len(video.windows) == 2
    assert (video.pid > 101) == debug_mode
    assert await desktop.evaluate() == 0.0


async def test_a_screen_that_changed_since_the_last_step_is_not_compared(make, vm):
    desktop = make(server=ServerTraits(screenshot_budget=6))
    await desktop.reset(PLAIN, seed=0)
    await desktop.step("pyautogui.press('a')")
    for level in range(4):
        vm.paint(level)
        vm.paint_later(3.0, 100 + level)  # while the server restarts
        await desktop.step("pyautogui.press('a')")
    assert vm.pid > 100


async def test_a_window_that_dies_with_the_server_is_a_fault_on_a_moving_screen(make, video):
    video.windows_die_with_server = True
    with pytest.raises(ServerRestarted, match="0x01000002"):
        await play(make(MOVING, server=OSWORLD_SERVER), 200)


async def test_a_desktop_that_cannot_list_its_windows_is_taken_as_it_is(make, video, standin, monkeypatch):
    answers = [(200, standin.done("", "Cannot open display.", 1)), (500, {"status": "error", "message": "no wmctrl"})]
    for answer in answers:

        def execute(vm, values, answer=answer):
            return answer if values["command"] == ["wmctrl", "-l"] else vm.execute(values)

        monkeypatch.setitem(standin.ROUTES, "/execute", ("POST", execute))
        pid = video.pid
        await play(make(MOVING, server=ServerTraits(screenshot_budget=40)), 20)
        assert video.pid > pid
