"""The gymnasium environment over a stand-in server on real sockets, with its own loop in a thread."""

import gc
import threading
import warnings
from dataclasses import replace

import gymnasium
import pytest

pytest.importorskip("httpx")
pytest.importorskip("PIL")
pytest.importorskip("anyio")

from gymnasium.error import ResetNeeded
from gymnasium.utils.env_checker import check_env

import dartsim.real  # noqa: F401 - registers the environment
from dartsim.core.errors import EnvBroken, EnvFault
from dartsim.core.types import Task
from dartsim.envs.actions.model import Click, TypeText
from dartsim.envs.mock.env import MockDesktop
from dartsim.real.osworld import env as env_module
from dartsim.real.osworld.connect import connect
from dartsim.real.osworld.env import OSWorldEnv
from dartsim.real.osworld.errors import ActionUncertain
from dartsim.real.osworld.ready import Readiness, SettlingRules
from dartsim.real.osworld.settings import DesktopSettings
from dartsim.real.osworld.transport import ServerTraits, Timeouts

FAST = Readiness(limit_seconds=2.0, change_seconds=0.0, poll_seconds=0.01, quiet_seconds=0.0, cap_seconds=1.0)
SETTINGS = DesktopSettings(
    screen=(320, 240), settle=SettlingRules(poll_seconds=0.01), ready=FAST, booted=FAST, wait_seconds=0.0
)
TASK = Task("type", "Type hello.", "notes", {"config": [], "evaluator": {"func": "typed"}})
OPTIONS = {"settings": SETTINGS, "timeouts": Timeouts(execute=0.5, screenshot=0.5), "server": ServerTraits()}


class Scorer:
    """Scores 1 if "hello" was typed."""

    def __init__(self, vm):
        self.vm = vm

    async def score(self, task, client, where, *, last_action):
        return float(self.vm.typed == "hello")


@pytest.fixture
def vm(standin):
    return standin.Vm()


@pytest.fixture
def url(standin, vm):
    with standin.served(vm) as base_url:
        yield base_url


@pytest.fixture
def make(url, vm):
    """Return what makes environments on ``vm``, and close them."""
    made = []

    def env(**options):
        made.append(OSWorldEnv(base_url=url, scorer=Scorer(vm), **(OPTIONS | options)))
        return made[-1]

    yield env
    for each in made:
        each.close()
    assert not [thread.name for thread in threading.enumerate() if thread.name == "dartsim-desktop"]


def test_gymnasium_finds_nothing_wrong(url):
    env = gymnasium.make("dartsim/OSWorld-v0", base_url=url, render_mode="rgb_array", **OPTIONS)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(env.unwrapped, skip_render_check=True)
    env.close()


def test_an_episode(make, vm):
    env = make()
    shown, info = env.reset(seed=1, options={"task": TASK})
    assert shown["instruction"] == "Type hello."
    assert (shown["screenshot"] == vm.screen).all()
    assert info == {"task_id": "type"}
    _, reward, terminated, truncated, info = env.step("pyautogui.click(3, 4); pyautogui.write('hello')")
    assert (reward, terminated, truncated) == (0.0, False, False)
    assert vm.actions == [Click(3, 4), TypeText("hello")]
    _, _, _, _, info = env.step("nonsense")
    assert info == {"turn": 2, "malformed": 1}
    _, reward, terminated, _, _ = env.step("DONE")
    assert (reward, terminated) == (1.0, True)
    with pytest.raises(ResetNeeded):
        env.step("WAIT")
    env.reset(options={"task": TASK})
    assert env.step("FAIL")[1] == 0.0


@pytest.mark.parametrize("size", [{}, {"width": 112, "height": 112}])
@pytest.mark.parametrize("accessibility", [True, False])
def test_its_spaces_are_the_mock_desktops(make, size, accessibility):
    env = make(accessibility=accessibility, **size)
    mock = MockDesktop(**(size or {"width": 320, "height": 240}), accessibility=accessibility)
    assert env.observation_space == mock.observation_space
    assert env.action_space == mock.action_space
    shown, _ = env.reset()
    assert shown in mock.observation_space
    mock_shown, _ = mock.reset()
    assert mock_shown in env.observation_space


def test_a_fault_is_raised_and_the_next_reset_attaches_afresh(make, vm):
    env = make(task=TASK)
    env.reset()
    vm.fail("/execute", "lost")
    with pytest.raises(ActionUncertain):
        env.step("pyautogui.press('a')")
    assert env.desktop is None
    with pytest.raises(ResetNeeded):
        env.step("WAIT")
    env.reset()
    env.step("pyautogui.press('b')")
    assert len(vm.actions) == 2


def test_a_desktop_that_is_not_there(standin, vm):
    settings = replace(SETTINGS, booted=replace(FAST, limit_seconds=0.1))
    with standin.served(vm) as url:
        pass
    env = OSWorldEnv(base_url=url, settings=settings)
    with pytest.raises(EnvFault, match="no good screen"):
        env.reset()
    env.close()


@pytest.fixture
def closed(monkeypatch):
    """Which of the environment's desktops were closed, counted from 1."""
    started, closed = [], []

    def noted(url, options):
        started.append(options)
        number = len(started)

        async def close():
            closed.append(number)

        return connect(url, options, close=close)

    monkeypatch.setattr(env_module, "connect", noted)
    return closed


def test_a_desktop_is_given_back_after_a_fault_and_at_the_end(vm, url, closed):
    env = OSWorldEnv(base_url=url, settings=SETTINGS, server=ServerTraits(), grammar="ui_tars")
    env.reset()
    env.reset()
    assert closed == []
    vm.fail("/screenshot", *["html500"] * 3)
    with pytest.raises(EnvBroken):
        env.step("Action: wait()")
    assert closed == [1]
    env.reset()
    env.close()
    env.close()
    assert closed == [1, 2]
    with pytest.raises(EnvBroken, match="was closed"):
        env.reset()
    env.close()


def test_an_environment_that_nobody_closes_gives_its_desktop_back(url, closed):
    env = OSWorldEnv(base_url=url, settings=SETTINGS, server=ServerTraits())
    env.reset()
    assert not closed
    del env
    gc.collect()
    assert closed
