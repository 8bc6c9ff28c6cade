"""``RankGroup``: a learner's processes on this machine, started by torchrun, and the connection to the first."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TextIO

import dartsim.core
from dartsim.config.sections.trainer import FsdpConfig
from dartsim.core.errors import LearnerFault
from dartsim.real.processes import end_with
from dartsim.real.scratch import scratch

_ROOT = Path(dartsim.core.__file__).resolve().parents[2]
_POLL_SECONDS = 0.2
_STOP_SECONDS = 10.0
_TAIL_LINES = 12
_ERROR = re.compile(r"^(\[rank\d+\]: )?[\w.]*(Error|Exception|Fault)\b.*: ")


class RankGroup:
    """Processes that carry out orders together. Blocking; ``kill`` may be called from any thread.

    They end with this process, however it ends: the kernel signals torchrun, and the ranks end with torchrun.

    Args:
        folder: Folder of the ranks' setup and their log.
        settings: Number of ranks, their GPUs, and the time limit of a start.
        prepare: Called with the address that the first rank must connect to, before they are started.
    """

    def __init__(self, folder: Path, *, settings: FsdpConfig, prepare: Callable[[str], None]) -> None:
        self.pids: tuple[int, ...] = ()
        self.log = folder / "ranks.log"
        self._folder = folder
        self._settings = settings
        self._prepare = prepare
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: socket.socket | None = None
        self._text: TextIO | None = None

    @property
    def running(self) -> bool:
        return self._text is not None and self._process is not None and self._process.poll() is None

    def start(self) -> None:
        self.kill()
        folder = scratch("ranks")  # paths of sockets must be short
        try:
            with socket.socket(socket.AF_UNIX) as listener:
                listener.bind(str(folder / "socket"))
                listener.listen(1)
                self._prepare(str(folder / "socket"))
                self._process = self._spawn()
                self._connection = self._accept(listener)
                self._text = self._connection.makefile("rw", encoding="utf-8")
            self.pids = tuple(self._answer(self._settings.start_seconds)["pids"])
        except BaseException:
            self.kill()
            raise
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def ask(self, order: dict[str, Any], seconds: float) -> dict[str, Any]:
        """Give an order and return the answer.

        Raises:
            LearnerFault: If they died or did not answer in time; by then all have ended.
        """
        text = self._text
        try:
            if text is None:
                raise LearnerFault("the ranks are not running; start them first")
            try:
                text.write(json.dumps(order) + "\n")
                text.flush()
            except (OSError, ValueError):
                raise LearnerFault(self._died()) from None
            return self._answer(seconds)
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """Let them end by themselves, and kill them if they do not."""
        process = self._process
        self._disconnect()
        if process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_STOP_SECONDS)
        self.kill()

    def kill(self) -> None:
        """End them at once. May be called twice, and while they compute."""
        process = self._process
        if process is not None:
            process.kill()  # the kernel ends the ranks with it, as each has requested
            process.wait()
        self._disconnect()

    def _disconnect(self) -> None:
        connection, self._connection, text, self._text = self._connection, None, self._text, None
        if connection is not None:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)  # wakes a thread that reads it
        for file in (text, connection):
            if file is not None:
                with contextlib.suppress(OSError, ValueError):
                    file.close()

    def _spawn(self) -> subprocess.Popen[bytes]:
        command = rank_command(self._settings, str(self._folder))
        path = os.pathsep.join([str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        environment = {"OMP_NUM_THREADS": "1", **os.environ, **rank_variables(self._settings), "PYTHONPATH": path}
        started: list[subprocess.Popen[bytes] | OSError] = []
        up = threading.Event()

        def run() -> None:
            # The kernel ends the child when the thread that made it ends; this one ends with the child or with us.
            try:
                with self.log.open("ab") as log:
                    process = subprocess.Popen(
                        command,
                        env=environment,
                        stdin=subprocess.DEVNULL,
                        stdout=log,
                        stderr=subprocess.STDOUT,
                        start_new_session=True,
                        preexec_fn=partial(end_with, os.getpid(), signal.SIGTERM),
                    )
            except OSError as error:
                started.append(error)
                up.set()
                return
            started.append(process)
            up.set()
            process.wait()

        threading.Thread(target=run, name="fsdp-ranks", daemon=True).start()
        up.wait()
        if isinstance(started[0], OSError):
            raise LearnerFault(f"the ranks cannot be started: {started[0]}")
        return started[0]

    def _accept(self, listener: socket.socket) -> socket.socket:
        """Wait for the first rank's connection."""
        listener.settimeout(_POLL_SECONDS)
        deadline = time.monotonic() + self._settings.start_seconds
        while time.monotonic() < deadline:
            with contextlib.suppress(TimeoutError):
                return listener.accept()[0]
            if self._process is None or self._process.poll() is not None:
                raise LearnerFault(self._died())
        seconds = self._settings.start_seconds
        raise LearnerFault(f"{self._settings.ranks} ranks were not up within {seconds:g} s; {self._tail()}")

    def _answer(self, seconds: float) -> dict[str, Any]:
        connection, text = self._connection, self._text
        if connection is None or text is None:
            raise LearnerFault(self._died())
        try:
            connection.settimeout(seconds)
            line = text.readline()
        except TimeoutError:
            raise LearnerFault(
                f"the ranks did not answer within {seconds:g} s, and were ended; {self._tail()}"
            ) from None
        except (OSError, ValueError):  # another thread closed the connection
            line = ""
        if not line.endswith("\n"):
            raise LearnerFault(self._died())
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _died(self) -> str:
        return f"a rank of the learner died; {self._tail()}"

    def _tail(self) -> str:
        """Return the log's path and its lines that name errors: the first cause is far above the end."""
        if not self.log.is_file():
            return f"there is no log at {str(self.log)!r}"
        with self.log.open(encoding="utf-8", errors="replace") as log:
            lines = [line.rstrip() for line in log][-500:]
        errors = list(dict.fromkeys(line for line in lines if _ERROR.search(line)))
        return f"log {str(self.log)!r}: " + "\n".join((errors or lines)[-_TAIL_LINES:])


def rank_command(settings: FsdpConfig, folder: str) -> list[str]:
    """Return the command line that starts the ranks."""
    forks = settings.device == "cpu"
    command = [sys.executable, "-m", "dartsim.real.learners.fsdp.forked" if forks else "torch.distributed.run"]
    command += ["--standalone", "--nnodes=1", "--local-addr=127.0.0.1"]
    command += [f"--nproc-per-node={settings.ranks}", "--max-restarts=0"]
    return [*command, folder] if forks else [*command, "-m", "dartsim.real.learners.fsdp.rank", folder]


def rank_variables(settings: FsdpConfig) -> dict[str, str]:
    """Return the environment variables that the ranks are given."""
    variables = {"CUDA_VISIBLE_DEVICES": ",".join(map(str, settings.gpus))} if settings.gpus else {}
    return {**variables, "GLOO_SOCKET_IFNAME": "lo"}
