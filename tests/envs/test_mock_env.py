import copy
import subprocess
import sys
import tracemalloc
import warnings
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium.error import ResetNeeded
from gymnasium.utils.env_checker import check_env
from hypothesis import example, given
from hypothesis import strategies as st

from dartsim.core.errors import ScoreUnavailable, TaskFileError
from dartsim.core.types import Task
from dartsim.envs.actions import GRAMMARS
from dartsim.envs.actions.model import CallUser
from dartsim.envs.mock.env import MockDesktop
from dartsim.envs.mock.suites import mock_suite, mock_tasks

ROOT = Path(__file__).resolve().parents[2]
DONE_WORDS = {
    "pyautogui": ("DONE", "FAIL"),
    "ui_tars": ("Thought: so.\nAction: finished(content='x')", "Action: call_user()"),
    "ui_tars_absolute": ("Action: finished()", "Action: call_user()"),
    "compact": ("done", "fail"),
}


@pytest.mark.parametrize("accessibility", [False, True])
def test_gymnasiums_checker_finds_nothing(accessibility):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env = gymnasium.make(
            "dartsim/MockDesktop-v0",
            width=112,
            height=112,
            accessibility=accessibility,
            render_mode="rgb_array",
        )
        check_env(env.unwrapped)
        env.reset()
        frame = env.render()
    assert frame.shape == (112, 112, 3)
    assert frame.dtype == np.uint8
    env.close()


@pytest.mark.parametrize("size", [(95, 112), (112, 95), (1921, 1080), (1920, 1081)])
def test_screens_beyond_the_bounds_are_refused(size):
    with pytest.raises(ValueError, match="96 × 96 to 1920 × 1080"):
        MockDesktop(width=size[0], height=size[1])


def test_a_malformed_action_is_counted_and_changes_nothing():
    env = MockDesktop(width=112, height=112)
    (task,) = mock_tasks("errands", 1)
    env.reset(options={"task": task})
    before = env.observe()
    for count, text in enumerate(["nonsense", "pyautogui.click(1)", "\0", "{}", "", "(" * 300], start=1):
        info = env.step(text)[4]
        assert info == {"turn": count, "malformed": count}
        assert env.last_actions == ()
    assert env.observe() is before
    env.step("pyautogui.click(50, 50)")
    assert env.malformed == 6
    env.reset()
    assert env.malformed == 0


@pytest.mark.parametrize("grammar", GRAMMARS)
def test_each_grammars_own_words_end_the_episode(grammar):
    env = MockDesktop(width=112, height=112, grammar=grammar)
    (impossible,) = mock_tasks("missing_jobs", 1)
    for word, score in zip(DONE_WORDS[grammar], (0.0, 1.0), strict=True):
        for text in (word, "DONE" if score == 0.0 else "FAIL"):
            env.begin(impossible)
            assert env.act(text)
            assert env.evaluate() == score
            with pytest.raises(ResetNeeded):
                env.act("WAIT")


def state_of(env):
    desktop = env.desktop
    return [(window.id, window.page, window.box) for window in desktop.windows], desktop.pressed


def test_calls_of_the_user_wait_as_often_as_allowed():
    env = MockDesktop(width=112, height=112, grammar="ui_tars", grammar_options={"call_user_waits": 3})
    for _ in range(2):  # they are counted in each attempt
        env.begin(mock_tasks("plain_jobs", 1, 0, 3)[0])
        assert [env.act("Action: call_user()") for _ in range(4)] == [False, False, False, True]
        assert env.last_action == "FAIL"
    assert env.grammar.format([CallUser()]) == "Action: call_user()"


@pytest.mark.parametrize("grammar", GRAMMARS)
@example(["DONE", ""])
@given(st.lists(st.one_of(st.text(max_size=40), st.none(), st.integers(), st.dictionaries(st.text(), st.text()))))
def test_nothing_that_is_sent_breaks_the_desktop(grammar, sent):
    env = MockDesktop(width=112, height=112, grammar=grammar)
    env.begin(mock_tasks("plain_jobs", 1, 0, 3)[0])
    before, malformed, acted = copy.deepcopy(state_of(env)), 0, 0
    for action in sent:
        over = env.act(action)
        acted += 1
        malformed += not env.last_actions and env.read(action) is None
        if over:  # one of the texts was the word for done, or for fail
            break
    assert env.malformed == malformed
    if malformed == acted:
        assert state_of(env) == before


def test_one_click_decides_where_the_task_says_so():
    (task,) = mock_tasks("click_button", 1)
    (other,) = mock_tasks("errands", 1)
    env = MockDesktop(width=112, height=112)
    env.begin(task)
    assert not env.act("pyautogui.press('tab')")
    assert env.act("pyautogui.click(0, 0)")
    assert env.evaluate() == 0.0
    env.begin(other)
    assert not env.act("pyautogui.click(0, 0)")
    patient = MockDesktop(width=112, height=112, auto_done=False)
    patient.begin(task)
    assert not patient.act("pyautogui.click(0, 0)")


@pytest.mark.parametrize(
    ("evaluator", "message"),
    [
        ({"func": "compare_table"}, "metric 'compare_table'"),
        ({"func": "exact_match", "result": {"type": "vm_file"}}, "getter 'vm_file'"),
        ({"func": "exact_match", "result": {"type": "mock_pressed", "window": "w"}}, "expectation None"),
        (
            {
                "func": "exact_match",
                "result": {"type": "mock_pages"},
                "expected": {"type": "rule", "rules": {"expected": []}},
            },
            "failed: KeyError",
        ),
    ],
)
def test_what_cannot_be_scored_is_unavailable_and_never_zero(evaluator, message):
    env = MockDesktop(width=112, height=112)
    env.begin(Task("t", "x", spec={"evaluator": evaluator}))
    with pytest.raises(ScoreUnavailable, match=message):
        env.evaluate()


def test_several_metrics_are_joined_by_and_or():
    def evaluator(conj, *wanted):
        return {
            "func": ["exact_match"] * len(wanted),
            "result": [{"type": "mock_pressed", "window": "w"}] * len(wanted),
            "expected": [{"type": "rule", "rules": {"expected": each}} for each in wanted],
            "conj": conj,
        }

    env = MockDesktop(width=112, height=112)
    for conj, wanted, score in [("and", ([], ["x"]), 0.0), ("and", ([], []), 1.0), ("or", ([], ["x"]), 1.0)]:
        env.begin(Task("t", "x", spec={"evaluator": evaluator(conj, *wanted)}))
        assert env.evaluate() == score


@pytest.mark.parametrize(
    "step",
    [
        {"type": "download", "parameters": {}},
        {"type": "mock_window", "parameters": {"id": "w", "pages": [[[{"kind": "dial", "id": "d"}]]]}},
        {"type": "mock_window", "parameters": {"id": "w", "opacity": 0.5}},
        {"type": "mock_window", "parameters": {"id": "w", "color": "mauve"}},
        {"type": "mock_window", "parameters": {"id": "w", "pages": [[[{"kind": "label", "id": "d", "color": "?"}]]]}},
        {"type": "mock_window", "parameters": {"id": "w", "pages": [[[{"kind": "button", "id": "d"}] * 2]]}},
        {"type": "mock_window", "parameters": {"id": "w", "pages": [[[{"kind": "button", "id": "d", "txt": ""}]]]}},
        {"type": "mock_interrupt", "parameters": {}},
        {"type": "mock_background", "parameters": {"color": [1, 2]}},
    ],
)  # fmt: skip
def test_a_bad_step_is_refused_at_the_beginning(step):
    env = MockDesktop(width=112, height=112)
    with pytest.raises(TaskFileError):
        env.begin(Task("t", "x", spec={"config": [step]}))


def test_a_frame_that_was_shown_is_never_written_to_again():
    env = MockDesktop(width=112, height=112)
    env.begin(mock_tasks("errands", 1)[0])
    shown = env.observe().screenshot
    kept = shown.copy()
    env.act("pyautogui.click(40, 40)")
    after = env.observe().screenshot
    assert after is not shown
    assert (shown == kept).all()
    assert not (after == shown).all()
    with pytest.raises(ValueError, match="read-only"):
        after[0, 0] = 0


PLAY = """
import hashlib, json, sys
import numpy as np
from dartsim.envs.mock.env import MockDesktop
from dartsim.envs.mock.oracle import oracle_text
from dartsim.envs.mock.suites import mock_suite

def digest():
    env = MockDesktop(width=200, height=150, accessibility=True)
    total = hashlib.sha256()
    rng = np.random.default_rng(5)
    for task in [*mock_suite("long", 12, 1), *mock_suite("locks", 12, 1)]:
        env.begin(task, 1)
        for turn in range(8):
            text = oracle_text(env) if turn % 2 else f"pyautogui.click({rng.integers(200)}, {rng.integers(150)})"
            over = env.act(text)
            shown = env.observe()
            total.update(shown.screenshot.tobytes() + shown.accessibility_tree.encode() + text.encode())
            if over:
                break
        total.update(repr(env.evaluate()).encode())
    return total.hexdigest()
"""


def test_the_same_seed_and_actions_give_the_same_pixels_in_two_processes():
    digests = []
    for seed in ("1", "2"):
        ran = subprocess.run(
            [sys.executable, "-c", PLAY + "print(digest())"],
            cwd=ROOT,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=True,
        )
        digests.append(ran.stdout)
    assert digests[0] == digests[1]
    assert len(digests[0].strip()) == 64


def test_a_thousand_desktops_fit_into_one_process():
    tasks = mock_suite("long", 50)
    MockDesktop(width=112, height=112).begin(tasks[0])
    tracemalloc.start()
    try:
        desktops = [MockDesktop(width=112, height=112) for _ in range(1000)]
        for i, env in enumerate(desktops):
            env.begin(tasks[i % len(tasks)])
            env.observe()
        size = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert size < 1000 * 80_000  # bytes; a frame of 112 × 112 alone is 37,632
