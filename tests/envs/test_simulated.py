import subprocess
import sys

import gymnasium
import pytest
from gymnasium.utils.env_checker import check_env

import dartsim.envs  # noqa: F401 - registers
from dartsim.core.types import Task
from dartsim.envs.base import DONE, FAIL, WAIT
from dartsim.envs.simulated import SOLVE_ACTION, WORK_ACTION, SimDesktop

TASK = Task("t", "Save it.")


@pytest.mark.parametrize("draw", [False, True])
@pytest.mark.parametrize("size", [(1, 1), (64, 48), (333, 77)])
def test_gymnasiums_checker_finds_nothing(draw, size):
    width, height = size
    made = gymnasium.make("dartsim/SimDesktop-v0", draw=draw, width=width, height=height, render_mode="rgb_array")
    check_env(made.unwrapped)


def test_importing_envs_imports_no_environment():
    heavy = "{'dartsim.envs.simulated', 'pydantic'}"
    code = f"import sys, dartsim.envs; assert not {heavy} & sys.modules.keys()"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("actions", "score"),
    [
        ([SOLVE_ACTION, DONE], 1.0),
        ([WORK_ACTION, SOLVE_ACTION, WORK_ACTION, WAIT, DONE], 1.0),
        ([WORK_ACTION, DONE], 0.0),
        ([DONE], 0.0),
        ([SOLVE_ACTION, FAIL], 0.0),
        (["import os; os._exit(1)", DONE], 0.0),
    ],
)
@pytest.mark.parametrize("draw", [False, True])
def test_done_scores_one_only_after_the_decisive_action(draw, actions, score):
    env = SimDesktop(draw=draw, width=8, height=8)
    env.reset(seed=0, options={"task": TASK})
    *_, last = [env.step(action) for action in actions]
    assert last[1:4] == (score, True, False)
    env.begin(TASK, 0)
    assert [env.act(action) for action in actions] == [False] * (len(actions) - 1) + [True]
    assert env.evaluate() == score
