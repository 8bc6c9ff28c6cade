"""``dartsim eval`` of an endpoint on mock desktops in real time: from the command line to OSWorld's layout."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("httpx")
pytest.importorskip("aiohttp")

from dartsim.core.png import encode_png
from dartsim.envs.mock.env import MockDesktop
from dartsim.envs.mock.oracle import oracle_text
from dartsim.envs.mock.suites import mock_tasks

FAKE = Path(__file__).parents[1] / "real" / "engines" / "openai_endpoint.py"
TASKS = 6
DOES_NOTHING = "Action: finished(content='done')"
CHECKED = "Action: wait()"
"""The reply to the question of a blank screen."""


class Oracle:
    """Solves the tasks of even numbers, which it knows by their first screenshot; gives the others up."""

    def __init__(self, picture: Callable[[dict[str, Any]], bytes], *, held_out: bool = True) -> None:
        self.picture = picture
        self.texts: dict[bytes, str] = {}
        for number, task in enumerate(mock_tasks("click_button", TASKS, 0, 1, held_out=held_out)):
            desktop = MockDesktop(width=112, height=112, grammar="ui_tars")
            desktop.begin(task)
            text = oracle_text(desktop) if number % 2 == 0 else DOES_NOTHING
            self.texts[encode_png(desktop.observe().screenshot)] = text

    def __call__(self, messages: list[dict[str, Any]]) -> str:
        return self.texts.get(self.picture(messages[-1]["content"][0]), CHECKED)


@pytest.fixture
def served(module_of: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-0123456789abcdefghij")
    fake = module_of(FAKE)
    with fake.endpoint(Oracle(fake.picture), key="sk-0123456789abcdefghij") as server:
        yield server


def command(served: Any, *more: str, model: str = "agent-1") -> list[str]:
    given = ["eval", "--endpoint", served.url, "--model", model, "--tasks", str(TASKS), "--out", "out"]
    return [*given, "--set", "rollout.num_envs=3", "--set", "rollout.lending.engines=1", "--attempts", "1", *more]


def test_an_endpoint_is_evaluated_and_its_key_is_in_no_file(served: Any, dartsim: Any, capsys: Any):
    more = ("--attempts", "2", "--steps", "1", "--steps", "2", "--temperature", "0", "--json", "figures.json")
    assert dartsim(*command(served, *more)) == 0
    figures = json.loads(Path("figures.json").read_text())
    assert (figures["model"], figures["temperature"], figures["tasks"]) == ("agent-1", 0.0, TASKS)
    for budget in figures["budgets"]:
        assert (budget["success_rate"], budget["attempts"]) == (0.5, 2 * TASKS)
        assert budget["pass_at"] == {"1": {"value": 0.5, "tasks": TASKS}, "2": {"value": 0.5, "tasks": TASKS}}
        assert budget["domains"]["click_button"]["interval"] == budget["interval"]
    printed = capsys.readouterr().out
    assert "agent-1, 2 steps, temperature 0" in printed
    assert "pass@2" in printed
    assert {body["temperature"] for body in served.bodies} == {0.0}
    assert (
        len(list(Path("out/steps-2/attempt-2/pyautogui/screenshot/agent-1/click_button").glob("*/result.txt"))) == TASKS
    )
    written = [file for file in Path().rglob("*") if file.is_file()]
    assert written
    assert not any(b"sk-0123456789" in file.read_bytes() for file in written)


def test_what_an_endpoint_solved_is_collected_for_the_pool_of_a_run(
    module_of: Any, monkeypatch: pytest.MonkeyPatch, dartsim: Any
):
    """The results of an evaluation are a directory that another one imports, in another model's words."""
    pytest.importorskip("torch", reason="needs the extra `train`")
    fake, key = module_of(FAKE), "sk-0123456789abcdefghij"
    monkeypatch.setenv("OPENAI_API_KEY", key)
    tasks = ("--set", f"tasks.count={TASKS}")
    with fake.endpoint(Oracle(fake.picture, held_out=False), key=key) as server:
        given = ["eval", "--endpoint", server.url, "--model", "agent-1", "--set", "tasks.held_out=0", "--attempts", "1"]
        assert dartsim(*given, *tasks, "--steps", "2", "--out", "out") == 0
    assert dartsim("eval", *tasks, "--results", "out", "--keep-successes", "pool", "--json", "pool.json") == 0
    found = json.loads(Path("pool.json").read_text())
    assert (found["attempts"], found["successes"], found["tasks_solved"]) == (TASKS, TASKS // 2, TASKS // 2)
    assert found["source"]["models"] == {"agent-1": TASKS // 2}
    assert found["source"]["refused"] == {"score_below_minimum": TASKS // 2}


def test_an_evaluation_goes_on_where_it_was_cut_off(served: Any, dartsim: Any, capsys: Any):
    answer, left = served.answer, [3]

    def failing(messages: list[dict[str, Any]]) -> str:
        left[0] -= 1
        if left[0] < 0:
            served.broken = 401
        return answer(messages)

    served.answer = failing
    assert dartsim(*command(served, "--steps", "1")) == 1  # the key was revoked midway
    assert "EndpointRefused" in capsys.readouterr().err
    kept = {file: file.read_bytes() for file in Path("out").rglob("result.txt")}
    assert 0 < len(kept) < TASKS
    served.answer, served.broken = answer, None
    asked = len(served.bodies)
    assert dartsim(*command(served, "--steps", "1", "--json", "figures.json")) == 0
    assert len(served.bodies) - asked <= TASKS  # the first question, what was left, and what a busy machine masked
    assert all(file.read_bytes() == content for file, content in kept.items())
    assert json.loads(Path("figures.json").read_text())["budgets"][0]["success_rate"] == 0.5


def test_masked_attempts_are_named_and_are_the_exit_code(served: Any, dartsim: Any, capsys: Any):
    answer = served.answer

    def filtered(messages: Any) -> str:
        text = answer(messages)
        served.finish_reason = "content_filter" if text == DOES_NOTHING else "stop"
        return "" if text == DOES_NOTHING else text

    served.answer = filtered
    assert dartsim(*command(served, "--steps", "1", "--json", "-", "--set", "rollout.request_tries=1")) == 1
    captured = capsys.readouterr()
    (budget,) = json.loads(captured.out)["budgets"]
    assert budget["masked"] == {"engine_bad_reply": 3}
    assert (budget["attempts"], budget["success_rate"]) == (3, 1.0)
    assert "3 attempts are masked; the same command with --out out makes them again" in captured.err


def test_an_unreachable_endpoint_and_a_folder_of_another_evaluation_are_refused(served: Any, dartsim: Any, capsys: Any):
    assert dartsim(*command(served, "--steps", "1")) == 0
    assert dartsim(*command(served, "--steps", "1", "--temperature", "0.5")) == 2
    assert "policy.temperature = 1.0, now 0.5" in " ".join(capsys.readouterr().err.split())
    url = ["--endpoint", "http://127.0.0.1:9/v1", "--out", "other"]
    assert dartsim(*command(served, *url)) == 2
    assert "nothing listens" in " ".join(capsys.readouterr().err.split())
    assert dartsim("eval") == 2
    assert "there is no model to evaluate" in " ".join(capsys.readouterr().err.split())


def test_ctrl_c_keeps_what_is_scored(served: Any):
    answer = served.answer

    def slow(messages: list[dict[str, Any]]) -> str:
        if len(served.bodies) == 4:
            process.send_signal(signal.SIGINT)
        return answer(messages)

    served.answer = slow
    arguments = command(served, "--steps", "1", "--attempts", "200")
    with subprocess.Popen([sys.executable, "-m", "dartsim", *arguments], stderr=subprocess.PIPE, text=True) as process:
        _, said = process.communicate()
    assert process.returncode == 130
    assert "the same command with --out out goes on" in said
    assert not list(Path("out").rglob("*.part"))
