"""Any gymnasium environment with a screen as the desktops of a run, in virtual time and in real time."""

import asyncio
import sys
import threading
from types import SimpleNamespace

import numpy as np
import pytest

import dartsim
from dartsim.cli.options import backend_overrides, env_overrides
from dartsim.config import load
from dartsim.config.sections.gym import GymConfig
from dartsim.config.sections.policy import PolicyConfig
from dartsim.core.errors import ConfigError, EnvBroken, EnvStartFailed
from dartsim.core.types import Task
from dartsim.envs.actions import make_grammar
from dartsim.envs.actions.model import Click
from dartsim.envs.direct import WrappedDesktop
from dartsim.envs.gym import gym_desktop_maker, gym_tasks, make_desktop, make_env
from dartsim.real.gym import ThreadedProvider
from dartsim.run.prepare import prepare
from dartsim.run.run_prepared import run_prepared

MODULE = """
import os

import gymnasium
import numpy as np
from gymnasium import spaces


class Buttons(gymnasium.Env):
    "Some tasks are solved by PRESS, the others by nothing."

    observation_space = spaces.Dict(
        {"screenshot": spaces.Box(0, 255, (24, 48, 3), np.uint8), "instruction": spaces.Text(100)}
    )
    action_space = spaces.Text(100)
    tasks = ["Press the button.", {"id": "again", "instruction": "Press it again."}]

    def __init__(self, color=200):
        self.color = color
        self.read = []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.task = options["task"]
        self.works, self.pressed = self.np_random.random() < 0.5, False
        return self.shown(), {}

    def step(self, action):
        self.read.append(action)
        self.pressed |= action == "PRESS"
        return self.shown(), float(self.pressed and self.works), False, False, {}

    def shown(self):
        return {"screenshot": np.full((24, 48, 3), self.color, np.uint8), "instruction": self.task.instruction}


class Numbered(Buttons):
    tasks = None


class Moves(gymnasium.Env):
    observation_space = spaces.Box(0, 255, (24, 48, 3), np.uint8)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros((24, 48, 3), np.uint8), {}

    def step(self, action):
        return np.zeros((24, 48, 3), np.uint8), float(action), True, False, {}


class AsText(gymnasium.ActionWrapper):
    action_space = spaces.Text(100)

    def action(self, text):
        return int(text == "PRESS")


class Crashes(Buttons):
    def step(self, action):
        raise ValueError("no such key")


def broken():
    raise RuntimeError("no display")
"""


@dartsim.register("policy", "presser")
class Presser(dartsim.Policy):
    """Presses, then says that it is done."""

    def act(self, request):
        assert request.observation.screenshot.shape == (24, 48, 3)
        return "DONE" if request.turn else "PRESS"


@pytest.fixture(autouse=True)
def buttons(tmp_path, monkeypatch):
    """Have a module `buttons` with environments."""
    (tmp_path / "buttons.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("buttons", None)


def configured(*overrides: str, env: str = "buttons:Buttons"):
    plain = ["tasks.source=gym", f'gym.env="{env}"', "policy.agent.rule=presser", "rollout.num_envs=3"]
    return load("dart", overrides=[*plain, "rollout.num_workers=1", *overrides])


def test_an_environment_timed_by_a_profile_is_the_same_run_twice():
    config = configured("run.hours=3", "curation.batch.min_groups=1")
    first, second = (run_prepared(prepare(config)) for _ in range(2))
    assert first.event_hash == second.event_hash
    counts = first.recorder.counts
    assert 0 < counts["reward"] < counts["rewarded"], "the environment scored"
    assert counts["updates"] > 0, "and the trainer trained"
    assert set(first.recorder.offered) == {"Buttons-0", "again"}


FAST = ('cluster.engine.model="batch"', "cluster.engine.batch_seconds=0.001", "cluster.engine.overhead_seconds=0.0")
PAIRS = ("curation.attempts.rule=fixed", "curation.attempts.group_size=2", "run.hours=1")
FAST += ("cluster.learner.fixed_seconds=0.0", "cluster.learner.kilotoken_seconds=0.0", "curation.batch.min_groups=1")


def test_an_environment_in_real_time_serves_the_same_rollout():
    config = configured(*FAST, "backend.desktops=gym", "run.updates=1", *PAIRS)
    assert not config.backend.virtual
    counts = run_prepared(prepare(config)).recorder.counts
    assert counts["updates"] == 1
    assert 0 < counts["reward"] < counts["rewarded"]


def test_a_fault_of_an_environment_is_no_reward():
    make = gym_desktop_maker(GymConfig(env="buttons:Crashes"), PolicyConfig())

    async def main():
        env = await ThreadedProvider(make).start(0)
        await env.reset(Task("t", "Press."), seed=0)
        with pytest.raises(EnvBroken, match="no such key"):
            await env.step("PRESS")
        await env.close()
        await env.close()

    asyncio.run(main())


def test_an_environment_that_hangs_is_left_behind_with_a_warning(monkeypatch, caplog):
    entered, released = threading.Event(), threading.Event()
    monkeypatch.setattr("dartsim.real.gym.GRACE_SECONDS", 0.05)

    class Hangs(WrappedDesktop):
        def act(self, action):
            entered.set()
            released.wait()

    async def main():
        env = await ThreadedProvider(lambda: Hangs(make_env(GymConfig(env="buttons:Buttons")))).start(7)
        step = asyncio.create_task(env.step("PRESS"))
        await asyncio.to_thread(entered.wait)
        step.cancel()
        await env.close()

    asyncio.run(main())
    (left,) = (thread for thread in threading.enumerate() if thread.name == "desktop-7")
    assert left.daemon, "it does not hold up the exit of the process"
    assert "hangs" in caplog.text
    released.set()
    left.join()


def test_the_thread_of_an_environment_ends_where_its_close_was_canceled():
    released = threading.Event()

    async def main():
        env = await ThreadedProvider(lambda: SimpleNamespace(close=released.wait)).start(8)
        closing = asyncio.create_task(env.close())
        await asyncio.sleep(0)
        closing.cancel()
        await asyncio.wait([closing])

    asyncio.run(main())
    (thread,) = (thread for thread in threading.enumerate() if thread.name == "desktop-8")
    released.set()
    thread.join(10.0)
    assert not thread.is_alive()


def test_an_environment_that_cannot_be_made_is_a_failed_start():
    make = gym_desktop_maker(GymConfig(env="buttons:broken"), PolicyConfig())
    with pytest.raises(EnvStartFailed, match="no display"):
        asyncio.run(ThreadedProvider(make).start(0))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (["gym.env=buttons:Moves"], r"takes Discrete\(2\); wanted observations that are a screenshot"),
        (["gym.env=buttons:Nothing"], "the module buttons has no 'Nothing'"),
        (["gym.env=no_such_module:Env"], "cannot be imported: No module named 'no_such_module'"),
        (["gym.env=buttons:broken"], "cannot be made: RuntimeError: no display"),
        (["gym.env=NoSuch-v0"], "cannot be made: NameNotFound"),
        (["gym.env=none"], "needs gym.env"),
        (["gym.wrapper=buttons"], 'wanted "package.module:NAME"'),
        (["policy.agent.rule=drawn"], "does not go with tasks.source"),
    ],
)
def test_what_cannot_be_used_is_refused_before_anything_starts(settings, said):
    with pytest.raises(ConfigError, match=said):
        prepare(configured(*settings))


def test_options_of_the_command_line_choose_the_environment_and_its_time():
    env = env_overrides("buttons:Buttons")
    virtual = load("tiny", overrides=env)
    assert (virtual.backend.virtual, virtual.tasks.source, virtual.gym.env) == (True, "gym", "buttons:Buttons")
    real = load("tiny", overrides=[*backend_overrides("gym", None), *env_overrides("buttons:Buttons")])
    assert (real.backend.desktops, real.backend.workers, real.backend.learner) == ("gym", "local", "local")
    modeled = backend_overrides("gym", "sim")
    assert load("tiny", overrides=[*modeled, *env]).backend.learner == "sim"


def test_an_adapter_makes_other_spaces_usable():
    gym = GymConfig(env="buttons:Moves", wrapper="buttons:AsText")
    desktop = make_desktop(gym, PolicyConfig())
    desktop.begin(Task("t", "Go right."), 0)
    assert desktop.act("PRESS")
    assert (desktop.evaluate(), desktop.observe().instruction) == (1.0, "Go right.")


def test_numbered_tasks_are_seeds_of_reset():
    gym = GymConfig(env="buttons:Numbered", arguments={"color": 7})
    tasks = gym_tasks(gym, 3)
    assert [task.id for task in tasks] == ["Numbered-0", "Numbered-1", "Numbered-2"]
    desktop = make_desktop(gym, PolicyConfig())
    works = []
    for task in (*tasks, *tasks):
        desktop.begin(task, seed=len(works))
        desktop.act("PRESS")
        works.append(desktop.evaluate())
    assert works[:3] == works[3:], "whatever the attempt's seed"
    assert desktop.observe().screenshot.max() == 7


def test_a_models_clicks_become_code_for_the_environments_own_pixels():
    import buttons

    made = []
    buttons.recorded = lambda: made.append(buttons.Buttons()) or made[0]
    policy = PolicyConfig(kind="vlm", screen=12, grid=3)
    desktop = make_desktop(GymConfig(env="buttons:recorded"), policy)
    desktop.begin(Task("t", "Press."), 0)
    assert np.asarray(desktop.observe().screenshot).shape == (12, 12, 3)
    name, options = policy.action_grammar
    desktop.act(make_grammar(name, 12, 12, **options).format([Click(10, 2)]))
    desktop.act("no action at all")
    assert desktop.act("DONE")
    assert made[0].read == ["pyautogui.click(42, 5)", "WAIT", "DONE"]
