from typing import Any

import numpy as np
import pytest
from gymnasium.error import ResetNeeded
from gymnasium.utils.env_checker import check_env

from dartsim.core.errors import ScoreUnavailable
from dartsim.core.types import Observation, Task
from dartsim.envs.base import DONE, FAIL, WAIT, GuiEnv, UnicodeText

TASK = Task("t", "Größe ändern: 尺寸 🙂")
INFEASIBLE = Task("i", "Do what cannot be done.", spec={"evaluator": {"func": "infeasible"}})


class Notepad(GuiEnv):
    """A desktop that writes down what it is asked to do."""

    score: Any = 0.5

    def _begin(self, task):
        self.log = [f"begin {self.np_random.integers(100)}"]

    def _act(self, action):
        self.log.append(action)

    def _observe(self):
        frame = np.full((self.height, self.width, 3), len(self.log), np.uint8)
        return Observation(frame, self.task.instruction, f"<log length='{len(self.log)}'/>")

    def _score(self):
        return self.score


def notepad(**options):
    return Notepad(width=64, height=48, task=TASK, **options)


@pytest.mark.parametrize("accessibility", [False, True])
def test_gymnasiums_checker_finds_nothing(accessibility):
    check_env(notepad(accessibility=accessibility), skip_render_check=True)


def test_the_accessibility_tree_is_there_only_when_asked_for():
    assert set(notepad().reset()[0]) == {"screenshot", "instruction"}
    observation, _ = notepad(accessibility=True).reset()
    assert observation["accessibility_tree"] == "<log length='1'/>"
    assert set(notepad(accessibility=True).observation_space.spaces) == set(observation)


def test_reset_takes_a_task_and_returns_to_the_constructors():
    env = notepad()
    other = Task("other", "Something else")
    observation, info = env.reset(options={"task": other})
    assert (observation["instruction"], info) == ("Something else", {"task_id": "other"})
    assert env.reset()[1] == {"task_id": "t"}


def test_reset_without_a_task_or_with_another_option_is_refused():
    with pytest.raises(ValueError, match=r"wants options=.*found None"):
        Notepad().reset()
    with pytest.raises(ValueError, match="found 'tsk'"):
        notepad().reset(options={"tsk": TASK})
    with pytest.raises(ValueError, match="found 'a string'"):
        notepad().reset(options={"task": "a string"})


def test_the_reward_comes_with_the_end():
    env = notepad()
    env.reset()
    assert env.step("pyautogui.click(1, 2)")[1:] == (0.0, False, False, {"turn": 1})
    assert env.step(WAIT)[1:] == (0.0, False, False, {"turn": 2})
    assert env.step(DONE)[1:] == (0.5, True, False, {"turn": 3})
    assert env.log[1:] == ["pyautogui.click(1, 2)", "WAIT"]  # DONE is no work for the desktop


def test_without_score_on_end_the_caller_evaluates():
    env = notepad(score_on_end=False)
    env.reset()
    assert env.step(DONE)[1:3] == (0.0, True)
    assert [env.evaluate(), env.evaluate()] == [0.5, 0.5]


@pytest.mark.parametrize(
    ("task", "last", "score"),
    [
        (TASK, DONE, 0.5),
        (TASK, FAIL, 0.0),
        (INFEASIBLE, FAIL, 1.0),
        (INFEASIBLE, DONE, 0.0),
        (INFEASIBLE, "x", 0.0),
    ],
)
def test_infeasible_tasks_want_fail_and_others_do_not(task, last, score):
    env = notepad()
    env.begin(task, 0)
    env.act(last)
    assert env.evaluate() == score


def test_fail_counts_only_as_the_last_action_of_this_episode():
    env = notepad()
    env.begin(INFEASIBLE, 0)
    env.act(FAIL)
    env.begin(INFEASIBLE, 0)
    assert env.evaluate() == 0.0


def test_a_turn_limit_truncates_and_scores_as_it_stands():
    env = notepad(turn_limit=2)
    env.reset()
    assert env.step("x")[1:4] == (0.0, False, False)
    assert env.step("x")[1:4] == (0.5, False, True)
    with pytest.raises(ResetNeeded):
        env.step("x")
    env.reset()
    env.step("x")
    assert env.step(DONE)[1:4] == (0.5, True, False)  # the last turn ended it by itself


def test_actions_need_a_running_episode():
    env = notepad()
    with pytest.raises(ResetNeeded):
        env.act("x")
    env.reset()
    env.step(FAIL)
    with pytest.raises(ResetNeeded):
        env.step("x")
    with pytest.raises(ResetNeeded):
        Notepad().evaluate()


@pytest.mark.parametrize("score", [-0.1, 1.01, float("nan")])
def test_a_score_outside_its_range_is_no_score(score):
    env = notepad()
    env.score = score
    env.reset()
    with pytest.raises(ScoreUnavailable, match=r"task t: the evaluator gave .*, wanted a number in \[0, 1\]"):
        env.evaluate()


def test_what_is_handed_out_may_be_changed():
    class Still(Notepad):
        frame = np.zeros((48, 64, 3), np.uint8)
        frame.setflags(write=False)

        def _observe(self):
            return Observation(self.frame, "")

    env = Still(width=64, height=48, task=TASK, render_mode="rgb_array")
    env.reset()[0]["screenshot"][:] = 9
    env.render()[:] = 9
    assert env.render().max() == 0
    assert env.observe().screenshot is Still.frame  # the plain call copies nothing


def test_render_gives_the_screen_in_its_mode_only():
    env = notepad(render_mode="rgb_array")
    env.reset()
    assert (env.render().shape, env.render().dtype) == ((48, 64, 3), np.uint8)
    quiet = notepad()
    quiet.reset()
    assert quiet.render() is None
    with pytest.raises(ValueError, match="render_mode"):
        notepad(render_mode="human")


def test_texts_may_be_any_unicode_up_to_their_length():
    space = UnicodeText(5, min_length=1, seed=1)
    assert "größe" in space
    assert "🙂" in space
    assert "" not in space
    assert "123456" not in space
    assert 5 not in space
    samples = [space.sample() for _ in range(50)]
    assert all(sample in space for sample in samples)
    assert {len(sample) for sample in samples} == {1, 2, 3, 4, 5}
    assert len(space.sample((2, None))) == 2
    assert max(len(UnicodeText(10**6, seed=0).sample()) for _ in range(3)) <= 64
    assert UnicodeText(5) == UnicodeText(5) != UnicodeText(6)
