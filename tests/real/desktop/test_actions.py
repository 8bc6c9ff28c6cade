"""The warm interpreters, with stand-ins for pyautogui and Xlib."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dartsim.real.desktop.server.actions import WarmPythons
from dartsim.real.desktop.server.commands import CommandResult
from dartsim.real.desktop.server.warm import MAX_CODE_BYTES

HOUSE = Path(__file__).resolve().parents[3]


@pytest.fixture
def warm(tmp_path, monkeypatch) -> Iterator[WarmPythons]:
    (tmp_path / "Xlib").mkdir()
    (tmp_path / "Xlib" / "__init__.py").touch()
    (tmp_path / "Xlib" / "display.py").write_text("Display = str\n")
    fake = "import types\nPAUSE = 0.1\n_pyautogui_x11 = types.SimpleNamespace(_display=open('/dev/null'))\n"
    (tmp_path / "pyautogui.py").write_text(fake)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{HOUSE}")
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)  # no desktop has it
    monkeypatch.setenv("DISPLAY", ":7")
    warm = WarmPythons(tmp_path / "socket")
    warm.start()
    yield warm
    parent = warm.parent
    assert parent is not None
    parent.communicate()  # closes its standard input, as the end of the server does
    assert parent.returncode == 0


def ran(warm: WarmPythons, code: str, seconds: float = 20.0) -> CommandResult:
    """Run an action as soon as the parent is up."""
    end = time.monotonic() + 30
    while time.monotonic() < end:
        done = warm.run(code, seconds)
        if done is not None:
            return done
        time.sleep(0.02)
    raise AssertionError("no warm interpreter came up")


def test_each_action_has_a_process_of_its_own_with_the_modules_loaded(warm):
    code = "import os, sys, pyautogui; print(os.getpid(), pyautogui.PAUSE, pyautogui._pyautogui_x11._display)"
    first, second = (ran(warm, code).output.split() for _ in range(2))
    assert first[0] != second[0]
    assert first[1:] == second[1:] == ["0.02", ":7"]


def test_an_error_and_an_exit_code_are_told(warm):
    assert ran(warm, "import sys; print('a'); sys.exit(7)") == CommandResult("a\n", "", 7)
    failed = ran(warm, "1/0")
    assert failed.returncode == 1
    assert failed.error.startswith('Traceback (most recent call last):\n  File "<string>", line 1, in <module>\n')
    assert ran(warm, "import os, signal; os.kill(os.getpid(), signal.SIGKILL)").returncode == -9


def test_the_limit_kills_the_action_and_what_it_started(warm, tmp_path):
    note = tmp_path / "pids"
    code = "import os, subprocess, time; child = subprocess.Popen(['sleep', '60']);"
    code += f"open({str(note)!r}, 'w').write(f'{{os.getpid()}} {{child.pid}}'); time.sleep(60)"
    ran(warm, "pass")
    with pytest.raises(subprocess.TimeoutExpired):
        warm.run(code, 1.5)
    for pid in note.read_text().split():
        assert gone(int(pid))
    assert ran(warm, "print('next')").output == "next\n"


def gone(pid: int) -> bool:
    for _ in range(200):
        try:
            if Path(f"/proc/{pid}/stat").read_text().split()[2] in "ZX":
                return True
        except OSError:
            return True
        time.sleep(0.02)
    return False


def test_an_action_whose_parent_died_is_not_run_again(warm):
    parent = int(ran(warm, "import os; print(os.getppid())").output)
    with pytest.raises(ConnectionError, match="during the action"):
        warm.run(f"import os; os.kill({parent}, {int(signal.SIGKILL)}); import time; time.sleep(0.3)", 20.0)
    assert warm.parent is not None
    warm.parent.wait(10)
    assert ran(warm, "print('again')").output == "again\n"


def test_too_long_a_code_is_left_to_a_new_interpreter(warm):
    long = f"print(len('{'x' * (MAX_CODE_BYTES - 13)}'))"
    assert warm.run(long + " ", 1.0) is None
    assert warm.run("", 1.0) is None
    assert ran(warm, long[: -3 - 100] + "'))").returncode == 0


def test_code_is_run_as_the_main_program():
    code = "print(__name__); import sys; sys.exit('why')"
    script = f"from dartsim.real.desktop.server.warm import run_as_main; print(run_as_main({code!r}))"
    environment = {**os.environ, "PYTHONPATH": str(HOUSE)}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment, check=True)
    assert (done.stdout, done.stderr) == ("__main__\n1\n", "why\n")
