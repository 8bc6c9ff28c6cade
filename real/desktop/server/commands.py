"""Programs: run to their end, launched, and checked afterwards."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from flask import abort

from dartsim.real.desktop.server.app import json_body

if TYPE_CHECKING:
    from flask.typing import ResponseReturnValue

EXECUTE_SECONDS = 120.0
CHECK_SECONDS = 5.0
_KILL_WAIT_SECONDS = 5.0
CRASHES = {signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGSEGV, signal.SIGTRAP}
"""Signals by which a program ends that has an error, not one that was told to end."""


@dataclass(frozen=True, slots=True)
class CommandResult:
    """A program's output, errors and return code (negative: the signal that ended it)."""

    output: str
    error: str
    returncode: int


class WarmPython(Protocol):
    """Runs ``python -c code`` without starting Python; ``actions.WarmPythons`` does."""

    def run(self, code: str, seconds: float) -> CommandResult | None:
        """Return the code's result, or None if it was not run; raises ``subprocess.TimeoutExpired``."""
        ...


def run(
    command: str | Sequence[str],
    *,
    shell: bool = False,
    seconds: float = EXECUTE_SECONDS,
) -> CommandResult:
    """Run a program to its end.

    Its output goes into memory files, not pipes, so that background processes cannot delay the reply.

    Raises:
        OSError: If it could not be started.
        subprocess.TimeoutExpired: At the limit.
    """
    with memory_file("stdout") as output, memory_file("stderr") as errors:
        process = subprocess.Popen(
            command,
            shell=shell,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
            start_new_session=True,
        )
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(_KILL_WAIT_SECONDS)
            raise
        return CommandResult(read_back(output), read_back(errors), process.returncode)


def memory_file(name: str) -> Any:
    """Open a file in memory without a path; a program can write to it like to any file."""
    return os.fdopen(os.memfd_create(name), "w+b", buffering=0)


def read_back(file: Any) -> str:
    """Return the contents of a memory file as text."""
    file.seek(0)
    text: str = file.read().decode(errors="replace")
    return text.replace("\r\n", "\n")  # as Python's text mode reads


def words_of(data: Mapping[str, Any]) -> tuple[str | list[str], bool]:
    """Return the command of a request and whether a shell reads it; ``~/`` at the start of a word is the home folder.

    A command that is neither text nor a list of words ends the request with 400.
    """
    shell = bool(data.get("shell", False))
    command = data.get("command", "" if shell else [])
    if isinstance(command, str) and not shell:
        command = shlex.split(command)
    if isinstance(command, str):
        return command, shell
    if not isinstance(command, list) or not all(isinstance(word, str) for word in command):
        abort(400, "The command is neither text nor a list of words.")
    return [str(Path(word).expanduser()) if word.startswith("~/") else word for word in command], shell


def python_code(command: str | list[str], shell: bool) -> str | None:
    """Return the code of ``python -c "…pyautogui…"``, OSWorld's form of an action, or None for another command."""
    if shell or isinstance(command, str) or len(command) != 3:
        return None
    program, flag, code = command
    return code if program in {"python", "python3"} and flag == "-c" and "pyautogui" in code else None


def failed(message: object, status: int = 500) -> ResponseReturnValue:
    """Return the JSON error that most routes share."""
    return {"status": "error", "message": str(message)}, status


@dataclass(slots=True)
class CommandRoutes:
    """The routes that run programs."""

    titles: Callable[[], list[str]]
    warm: WarmPython | None = None
    _launched: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def execute(self) -> ResponseReturnValue:
        """``/execute``: run a command to its end; a failing one is a success with its return code."""
        try:
            return _success(self._run(json_body()))
        except (OSError, ValueError, IndexError, subprocess.SubprocessError) as exc:
            return failed(exc)

    def execute_with_verification(self) -> ResponseReturnValue:
        """``/execute_with_verification``: run a command, then wait until a window or a second command confirms it."""
        data = json_body()
        try:
            done = self._run(data)
            conditions = data.get("verification") or {}
            if not conditions:
                return _success(done)
            limit, interval = float(data.get("max_wait_time", 10)), float(data.get("check_interval", 1))
            waited = self._confirm(conditions, limit, interval)
        except (OSError, TypeError, ValueError, IndexError, subprocess.SubprocessError) as exc:
            return failed(exc)
        if waited is not None:
            return _success(done) | {"verification": "passed", "wait_time": waited}
        result = {"status": "verification_failed", "verification": "failed", "wait_time": data.get("max_wait_time", 10)}
        return _success(done) | result, 500

    def launch(self) -> ResponseReturnValue:
        """``/setup/launch``: start a program and leave it running."""
        try:
            command, shell = words_of(json_body())
            self.start(command, shell=shell)
        except (OSError, ValueError, IndexError) as exc:
            return failed(exc)
        return f"{command if isinstance(command, str) else ' '.join(command)} launched successfully"

    def start(self, command: str | Sequence[str], *, shell: bool = False) -> None:
        """Start a program in a session of its own, so that it outlives this server."""
        if not command:
            raise IndexError("list index out of range")  # what the original answers to an empty command
        process = subprocess.Popen(command, shell=shell, stdin=subprocess.DEVNULL, start_new_session=True)
        self._launched = [child for child in self._launched if child.poll() is None] + [process]
        # Otherwise it would stay a zombie until the next launch.
        threading.Thread(target=_wait, args=(process, command), daemon=True).start()

    def _run(self, data: Mapping[str, Any]) -> CommandResult:
        command, shell = words_of(data)
        if not command:
            raise IndexError("list index out of range")  # what the original answers to an empty command
        code = python_code(command, shell)
        if code is not None and self.warm is not None:
            done = self.warm.run(code, EXECUTE_SECONDS)
            if done is not None:
                return done
        return run(command, shell=shell)

    def _confirm(self, conditions: Mapping[str, Any], limit: float, interval: float) -> float | None:
        """Return after how many seconds all conditions held, or None if they never did."""
        begun = time.monotonic()
        while (waited := time.monotonic() - begun) < limit:
            if self._holds(conditions):
                return waited
            time.sleep(interval)
        return None

    def _holds(self, conditions: Mapping[str, Any]) -> bool:
        window, command = conditions.get("window_exists"), conditions.get("command_success")
        if window is not None and not any(str(window).lower() in title.lower() for title in self.titles()):
            return False
        if command is None:
            return True
        try:
            return run(command, shell=True, seconds=CHECK_SECONDS).returncode == 0
        except (OSError, subprocess.SubprocessError) as exc:
            print(f"check {command!r} failed: {exc}", file=sys.stderr)  # noqa: T201  the container's log
            return False


def _wait(process: subprocess.Popen[bytes], command: str | Sequence[str]) -> None:
    """Wait for a program's end; a crash is written down for the client, which asks for it before it trusts a score."""
    status = process.wait()
    number = -status if status < 0 else status - 128  # a shell reports its program's signal so
    if number in CRASHES:
        name = command if isinstance(command, str) else " ".join(command)
        with Path(os.environ.get("XDG_RUNTIME_DIR", "/tmp"), "crashes").open("a") as file:
            file.write(f"crashed: {name.splitlines()[0]} by {signal.Signals(number).name}\n")


def _success(done: CommandResult) -> dict[str, Any]:
    return {"status": "success", "output": done.output, "error": done.error, "returncode": done.returncode}
