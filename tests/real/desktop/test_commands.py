import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from dartsim.real.desktop.server import commands
from dartsim.real.desktop.server.app import make_app
from dartsim.real.desktop.server.commands import CommandResult, CommandRoutes, run


def ask(route, data) -> tuple[int, Any]:
    reply = make_app({("POST", "/"): route}).test_client().post("/", json=data)
    return reply.status_code, reply.get_json() if reply.is_json else reply.get_data(as_text=True)


@pytest.fixture
def server() -> CommandRoutes:
    return CommandRoutes(lambda: ["Untitled 1 - Mousepad"])


def success(output: str = "", error: str = "", returncode: int = 0) -> tuple[int, dict[str, Any]]:
    return 200, {"status": "success", "output": output, "error": error, "returncode": returncode}


def test_a_command_answers_with_output_error_and_code(server):
    assert ask(server.execute, {"command": ["echo", "a b"]}) == success("a b\n")
    assert ask(server.execute, {"command": "echo 'a b'"}) == success("a b\n")
    assert ask(server.execute, {"command": "echo a >&2; exit 3", "shell": True}) == success("", "a\n", 3)
    assert ask(server.execute, {"command": "kill -9 $$", "shell": True}) == success("", "", -9)


def test_a_command_that_cannot_run_is_an_error(server):
    status, told = ask(server.execute, {"command": ["no-such-program"]})
    assert (status, told["status"]) == (500, "error")
    assert "no-such-program" in told["message"]
    assert ask(server.execute, {}) == (500, {"status": "error", "message": "list index out of range"})
    assert ask(server.execute, {"command": [1]})[0] == 400


def test_the_home_folder_is_put_into_words(server, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert ask(server.execute, {"command": ["echo", "~/a", "b~/"]}) == success(f"{tmp_path}/a b~/\n")


def test_what_runs_on_in_the_background_holds_no_reply_back(server):
    told = ask(server.execute, {"command": "sleep 60 & echo $!", "shell": True})
    assert told[0] == 200
    os.kill(int(told[1]["output"]), signal.SIGKILL)


def test_the_limit_kills_the_whole_group(tmp_path):
    note = tmp_path / "pid"
    with pytest.raises(subprocess.TimeoutExpired):
        run(f"sleep 60 & echo $! > {note}; wait", shell=True, seconds=0.3)
    deadline = time.monotonic() + 30.0
    while _lives(note.read_text().strip()):  # a kill is carried out when the process runs next
        assert time.monotonic() < deadline
        time.sleep(0.01)


def _lives(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_limit_is_an_error_of_the_route(server, monkeypatch):
    def slow(*_, **__) -> CommandResult:
        raise subprocess.TimeoutExpired(["x"], 120)

    monkeypatch.setattr(commands, "run", slow)
    assert ask(server.execute, {"command": ["x"]}) == (
        500,
        {"status": "error", "message": "Command '['x']' timed out after 120 seconds"},
    )


class Warm:
    def __init__(self, done: CommandResult | None):
        self.done, self.codes = done, list[str]()

    def run(self, code: str, seconds: float) -> CommandResult | None:
        self.codes.append(code)
        return self.done


def test_only_actions_go_to_the_warm_interpreter():
    warm = Warm(CommandResult("warm", "", 0))
    server = CommandRoutes(list, warm)
    assert ask(server.execute, {"command": ["python", "-c", "import pyautogui"]}) == success("warm")
    assert ask(server.execute, {"command": ["echo", "-c", "import pyautogui"]})[1]["output"] != "warm"
    assert ask(server.execute, {"command": [sys.executable, "-c", "print(1)"]}) == success("1\n")
    assert warm.codes == ["import pyautogui"]


def test_an_action_that_no_warm_interpreter_took_starts_a_new_one(monkeypatch):
    ran: list[Any] = []
    monkeypatch.setattr(commands, "run", lambda command, **_: ran.append(command) or CommandResult("new", "", 0))
    command = ["python", "-c", "import pyautogui"]
    assert ask(CommandRoutes(list, Warm(None)).execute, {"command": command}) == success("new")
    assert ran == [command]


def test_verification_waits_for_a_window_and_a_command(server, tmp_path):
    data = {"command": ["touch", str(tmp_path / "x")], "check_interval": 0.01}
    wanted = {"window_exists": "mousepad", "command_success": f"test -e {tmp_path}/x"}
    status, told = ask(server.execute_with_verification, data | {"verification": wanted})
    assert (status, told["status"], told["verification"]) == (200, "success", "passed")
    assert told["wait_time"] >= 0
    failing = {"verification": {"window_exists": "gimp"}, "max_wait_time": 0.05}
    status, told = ask(server.execute_with_verification, data | failing)
    assert (status, told["status"], told["verification"]) == (500, "verification_failed", "failed")
    assert told["wait_time"] == 0.05
    assert ask(server.execute_with_verification, data) == success()


def test_launch_does_not_wait(server, tmp_path):
    assert ask(server.launch, {"command": ["sleep", "0.01"]}) == (200, "sleep 0.01 launched successfully")
    assert ask(server.launch, {"command": "sleep 0.01", "shell": True}) == (200, "sleep 0.01 launched successfully")
    status, told = ask(server.launch, {"command": ["no-such-program"]})
    assert (status, told["status"]) == (500, "error")


def test_a_launched_program_that_crashes_is_written_down(server, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    for command in ("kill -SEGV $$", "sh -c 'kill -ABRT $$'; exit $?", "kill -TERM $$", "exit 1"):
        assert ask(server.launch, {"command": command, "shell": True})[0] == 200
    deadline, lines = time.monotonic() + 30.0, []
    while len(lines) < 2 and time.monotonic() < deadline:
        time.sleep(0.02)
        lines = (tmp_path / "crashes").read_text().splitlines() if (tmp_path / "crashes").exists() else []
    assert sorted(line.rpartition(" ")[2] for line in lines) == ["SIGABRT", "SIGSEGV"]
