"""Other agents' attempts in OSWorld's result directories, as successes of our model."""

import functools
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from dartsim.config import Config, load
from dartsim.core.errors import ConfigError
from dartsim.core.png import encode_png
from dartsim.curation import SuccessPool
from dartsim.real.osworld.result_import import ImportCounts, import_attempts
from dartsim.real.pool_files import read_pool
from dartsim.real.vlm.export import export
from dartsim.real.vlm.model import reply_writer
from dartsim.real.vlm.plan import vlm_config
from dartsim.run.model import trained_model
from dartsim.run.prepare import prepare

SIZE = 112
"""Side of the screen; the model sees it with 280 pixels a side."""
HEADER = "import pyautogui\nimport time\n'''\nObservation:\n\n\nThought:\nI click.\n'''\n"
"""What OSWorld's agent of UI-TARS puts before its code."""
SAID = "Thought: I click.\nAction: click(start_box='(140,70)')"
SHOWN = "Thought: I click.\nAction: click(start_box='<|box_start|>(140,70)<|box_end|>')"
CLICK = "\npyautogui.click(56.0, 28.0, button='left')"


@pytest.fixture(scope="module")
def model(qwen, tmp_path_factory) -> Path:
    from dartsim.real.vlm import PromptStyle

    return export(qwen.qwen_model(PromptStyle(), min_pixels=280 * 280), tmp_path_factory.mktemp("import") / "model")


@pytest.fixture
def config(model, tmp_path) -> Config:
    """OSWorld's preset with a tiny model, a small screen and the tasks one and two."""
    suite = tmp_path / "suite"
    (suite / "examples" / "os").mkdir(parents=True)
    (suite / "test.json").write_text(json.dumps({"os": ["one", "two"]}))
    for name in ("one", "two"):
        task = {"id": name, "instruction": f"Do {name}.", "config": [], "evaluator": {"func": "infeasible"}}
        (suite / "examples" / "os" / f"{name}.json").write_text(json.dumps(task))
    changes = [f"policy.model={model}", f"tasks.folder={suite}", "tasks.list_name=test", "backend.learner=local"]
    changes += [f"desktop.width={SIZE}", f"desktop.height={SIZE}", "rollout.max_turns=5"]
    return load("osworld-8gpu", overrides=changes)


def screen(number: int, size: int = SIZE) -> bytes:
    return encode_png(np.full((size, size, 3), number, dtype=np.uint8))


def row(number: int, action, response=None, **more) -> dict[str, Any]:
    stamp = f"20250801@12000{number}"
    return {
        "step_num": number,
        "action_timestamp": stamp,
        "action": action,
        "response": response,
        "reward": 0,
        "done": action in ("DONE", "FAIL"),
        "info": {},
        "screenshot_file": f"step_{number}_{stamp}.png",
        **more,
    }


def attempt(results: Path, *rows: dict[str, Any], task: str = "one", score: str = "1.0\n", first: bool = True) -> Path:
    """Write an attempt as OSWorld's runner does, and the screen before its first action."""
    folder = results / "pyautogui" / "screenshot" / "other-model" / "os" / task
    folder.mkdir(parents=True)
    if first:
        (folder / "step_0_20250801@115959.png").write_bytes(screen(0))
    for at, each in enumerate(rows):
        (folder / each["screenshot_file"]).write_bytes(screen(at + 1))
    (folder / "traj.jsonl").write_text("".join(json.dumps(each) + "\n" for each in rows))
    (folder / "result.txt").write_text(score)
    return folder


writer_of = functools.cache(reply_writer)
"""A vocabulary of Qwen's size takes half a second to read."""


def imported(results: Path, config: Config, min_score: float = 1.0) -> tuple[list[Any], ImportCounts]:
    counts = ImportCounts()
    writer = writer_of(vlm_config(config))
    found = import_attempts([results], config, prepare(config).tasks, writer, counts, min_score=min_score)
    return list(found), counts


def actions(trajectory) -> list[str]:
    return [turn.reply.action for turn in trajectory.turns]


def test_an_attempt_of_ui_tars_keeps_its_words_and_its_screens(tmp_path, config):
    finished = "Thought: Saved.\nAction: finished(content='it's')"
    attempt(tmp_path / "r", row(1, HEADER + CLICK, SAID), row(2, "DONE", finished))
    (success,), counts = imported(tmp_path / "r", config)
    assert actions(success) == [SHOWN, finished]
    assert [int(np.asarray(turn.observation.screenshot)[0, 0, 0]) for turn in success.turns] == [0, 1]
    assert (success.reward, success.ending.value, success.attempt.turn_limit) == (1.0, "done", 2)
    assert all(turn.reply.logprobs is None for turn in success.turns)
    origin = counts.origins[success.attempt.id]
    assert (origin["model"], len(origin["sha256"])) == ("other-model", 64)
    assert origin["directory"].endswith("pyautogui/screenshot/other-model/os/one")


@pytest.mark.parametrize(
    ("action", "said", "written"),
    [
        ("pyautogui.click(56, 28)", None, "Action: click(start_box='<|box_start|>(141,71)<|box_end|>')"),
        ("pyautogui.click(56, 28)", "click(start_box='(500,250)')", "(141,71)"),  # thousandths: not what was executed
        ({"action_type": "CLICK", "x": 56, "y": 28}, None, "(141,71)"),
        ({"action_type": "tool_use", "command": "pyautogui.press('enter')"}, None, "Action: hotkey(key='enter')"),
        ({"action_space": "pyautogui", "action": "pyautogui.click(56, 28)", "call_id": "c"}, None, "(141,71)"),
        ("import pyperclip\npyperclip.copy('a\\'b')\npyautogui.hotkey('ctrl', 'v')\ntime.sleep(0.5)\n", None, '"a\'b"'),
        ("pyautogui.write('hi'); time.sleep(0.5); pyautogui.press('enter')", None, r"type(content='hi\n')"),
        ("pyautogui.scroll(-10, x=9, y=9)", None, "direction='down')\n\nscroll(direction='down')"),
        ("pyautogui.keyDown('esc'); pyautogui.keyUp('esc')", None, "hotkey(key='esc')"),
        ("WAIT", "Thought: Not yet.\nAction: wait()", "Thought: Not yet.\nAction: wait()"),
    ],
)
def test_what_was_executed_is_written_in_our_words(tmp_path, config, action, said, written):
    attempt(tmp_path / "r", row(1, action, said))
    (success,), counts = imported(tmp_path / "r", config)
    assert written in actions(success)[0], counts.examples
    assert success.ending.value == "turn_limit"


def test_a_reply_of_several_actions_is_one_turn_and_the_last_attempt_in_a_file_counts(tmp_path, config):
    both = "Thought: Two.\nAction: click(start_box='(140,70)')\n\nhotkey(key='ctrl s')"
    rows = [
        row(1, "WAIT"),
        row(1, CLICK, both, screenshot_file="step_1_a.png"),
        row(1, "pyautogui.hotkey('ctrl', 's')", both, screenshot_file="step_1_b.png"),
        row(2, "DONE"),
    ]
    attempt(tmp_path / "r", row(1, "WAIT"), row(2, "WAIT"), *rows[1:])
    (success,), _ = imported(tmp_path / "r", config)
    assert [text.count("\n\n") for text in actions(success)] == [1, 0]
    assert int(np.asarray(success.turns[1].observation.screenshot)[0, 0, 0]) == 4  # after the second action


def refusal(results: Path, config: Config) -> str:
    found, counts = imported(results, config)
    assert found == []
    ((reason, count),) = counts.refused.items()
    assert count == 1
    return reason


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ([row(1, "x = 1; open('/etc/passwd')")], "unreadable_action"),
        ([row(1, "pyautogui.click(" * 5_000)], "unreadable_action"),
        ([row(1, ["pyautogui.click(1, 2)"])], "unreadable_action"),
        ([row(1, "pyautogui.tripleClick(3, 4)")], "not_expressible"),
        ([row(1, "WAIT", f"Thought: {'a' * 600}\nAction: wait()")], "reply_too_long"),
        ([row(1, "WAIT"), row(3, "WAIT")], "bad_trajectory"),
        ([{**row(1, "WAIT"), "step_num": "1"}], "bad_trajectory"),
        ([row(at, "WAIT") for at in range(1, 7)], "too_long"),
        ([], "bad_trajectory"),
    ],
)
def test_what_cannot_be_used_is_left_out_with_its_reason(tmp_path, config, rows, reason):
    attempt(tmp_path / "r", *rows)
    assert refusal(tmp_path / "r", config) == reason


def damage(folder: Path, what: str):
    trajectory, after = folder / "traj.jsonl", folder / row(1, "WAIT")["screenshot_file"]
    if what == "cut":
        trajectory.write_bytes(trajectory.read_bytes()[:-20])
    elif what == "nested":
        trajectory.write_text("[" * 100_000)
    elif what == "link":
        after.unlink()
        after.symlink_to("/etc/hostname")
    elif what == "path":
        (folder.parent / "away.png").write_bytes(screen(1))
        trajectory.write_text(trajectory.read_text().replace(after.name, "../away.png"))
    elif what == "half":
        after.write_bytes(screen(1)[:60])
    elif what == "size":
        after.write_bytes(screen(1, 96))
    elif what == "bomb":
        after.write_bytes(screen(1)[:16] + (2**30).to_bytes(4, "big") * 2 + screen(1)[24:])
    elif what == "large":
        os.truncate(trajectory, 2**30)
    elif what == "score":
        (folder / "result.txt").write_text('{"completed": true}')
    elif what == "nan":
        (folder / "result.txt").write_text("nan")


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ("cut", "bad_trajectory"),
        ("nested", "bad_trajectory"),
        ("link", "missing_screenshot"),
        ("path", "missing_screenshot"),
        ("half", "bad_screenshot"),
        ("size", "screen_size"),
        ("bomb", "bad_screenshot"),
        ("large", "bad_trajectory"),
        ("score", "no_score"),
        ("nan", "no_score"),
    ],
)
def test_damaged_and_hostile_files_are_refused(tmp_path, config, what, reason):
    damage(attempt(tmp_path / "r", row(1, "WAIT"), row(2, "WAIT")), what)
    assert refusal(tmp_path / "r", config) == reason


def test_failures_unknown_tasks_and_copies_are_counted(tmp_path, config):
    attempt(tmp_path / "r", row(1, "WAIT"), score="0.5")
    attempt(tmp_path / "r", row(1, "WAIT"), task="strange")
    attempt(tmp_path / "r", row(1, "WAIT"), task="two", first=False)
    found, counts = imported(tmp_path / "r", config)
    assert (found, counts.found) == ([], 3)
    assert counts.refused == {"score_below_minimum": 1, "unknown_task": 1, "no_first_screenshot": 1}
    assert list(counts.unknown) == ["strange"]
    kept, _ = imported(tmp_path / "r", config, min_score=0.5)
    assert [success.reward for success in kept] == [0.5]
    (tmp_path / "r" / "loop").symlink_to(tmp_path / "r")
    assert imported(tmp_path / "r", config)[1].found == 3


def test_a_folder_without_results_is_refused(tmp_path, config):
    for folder in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(ConfigError):
            imported(folder, config)


def test_importing_is_whole_and_may_be_repeated(dartsim, tmp_path, config):
    """The pool starts a run, with log-probabilities of the run's first weights; a failed import changes nothing."""
    from dartsim.config import to_toml

    (tmp_path / "my.toml").write_text(to_toml(config))
    attempt(tmp_path / "r", row(1, CLICK, SAID), row(2, "DONE"))
    attempt(tmp_path / "r", row(1, "print(1)"), task="two")
    pool, out = tmp_path / "pool", tmp_path / "figures.json"
    words = ("eval", str(tmp_path / "my.toml"), "--keep-successes", str(pool), "--json", str(out), "--results")
    assert dartsim(*words, str(tmp_path / "r")) == 0
    figures = json.loads(out.read_text())
    assert (figures["successes"], figures["turns"], figures["source"]["models"]) == (1, 2, {"other-model": 1})
    before = {file.name: file.read_bytes() for file in pool.iterdir() if file.is_file()}
    assert json.loads(before["rows.jsonl"])["origin"]["model"] == "other-model"
    assert dartsim(*words, str(tmp_path / "r")) == 0
    bad = tmp_path / "bad"
    attempt(bad, row(1, "print(1)"))
    assert dartsim(*words, str(bad)) == 1
    assert {file.name: file.read_bytes() for file in pool.iterdir() if file.is_file()} == before
    assert not pool.with_name("pool.partial").exists()

    prepared = prepare(load(tmp_path / "my.toml", overrides=[f"curation.pool.file={pool}"]))
    (read,) = read_pool(pool, prepared.tasks).successes
    successes = SuccessPool()
    trained_model(prepared).fill(successes)
    (stored,) = successes.stored("one")
    for turn, imported_turn in zip(stored.trajectory.turns, read.turns, strict=True):
        assert list(turn.reply.tokens) == list(imported_turn.reply.tokens)
        assert np.isfinite(turn.reply.logprobs).all()
        assert (turn.reply.logprobs < 0.0).any()
