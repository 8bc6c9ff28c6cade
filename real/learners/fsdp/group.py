"""``RankGroup``: the processes of a learner, started by torchrun, and the line to the first of them."""

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

import dartsim
from dartsim.config.sections.trainer import FsdpConfig
from dartsim.core.errors import LearnerFault
from dartsim.real.processes import end_with
from dartsim.real.scratch import scratch

_ROOT = Path(dartsim.__file__).resolve().parents[1]
_LOOK_SECONDS = 0.2
_STOP_SECONDS = 10.0
_TAIL_LINES = 12
_NAMED = re.compile(r"^(\[rank\d+\]: )?[\w.]*(Error|Exception|Fault)\b.*: ")


class RankGroup:
    """Processes that do what they are told, all together. Blocking; ``kill`` may be called from any thread.

    They end with this process, however it ends: the kernel then tells torchrun, and torchrun's end is theirs.

    Attributes:
        pids: Of the ranks, first one first; empty before the first start.
        log: Where they write.

    Args:
        folder: Holds what the ranks read at their start, and the log; on a disk of all machines, if there are several.
        settings: How many, where, on which GPUs, and within which time they must be up. Those on other machines are
            started there, by ``node_command``: nothing here reaches another machine.
        prepare: Told the address at which the first rank has to call, before they are started.
    """

    def __init__(
        self,
        folder: Path,
        *,
        settings: FsdpConfig,
        prepare: Callable[[str], None],
    ) -> None:
        self.pids: tuple[int, ...] = ()
        self.log = folder / "ranks.log"
        self._folder = folder
        self._settings = settings
        self._start_seconds = settings.start_seconds
        self._prepare = prepare
        self._process: subprocess.Popen[bytes] | None = None
        self._line: socket.socket | None = None
        self._text: TextIO | None = None

    @property
    def running(self) -> bool:
        """Whether they are up, as far as is known."""
        return self._text is not None and self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start them, and return when all are up.

        Raises:
            LearnerFault: If they did not come up.
        """
        self.kill()
        meeting = scratch("ranks")  # paths of sockets must be short
        try:
            with socket.socket(socket.AF_UNIX) as door:
                door.bind(str(meeting / "door"))
                door.listen(1)
                self._prepare(str(meeting / "door"))
                self._process = self._spawn()
                self._line = self._called(door)
                self._text = self._line.makefile("rw", encoding="utf-8")
            self.pids = tuple(self._answer(self._start_seconds)["pids"])
        except BaseException:
            self.kill()
            raise
        finally:
            shutil.rmtree(meeting, ignore_errors=True)

    def ask(self, order: dict[str, Any], seconds: float) -> dict[str, Any]:
        """Give an order and return the answer.

        Raises:
            LearnerFault: If they died of it, or did not answer in time; they are gone then.
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
        self._hang_up()
        if process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_STOP_SECONDS)
        self.kill()

    def kill(self) -> None:
        """End them at once. May be called twice, and while they compute."""
        process = self._process
        if process is not None:
            process.kill()  # the ranks go with it: each has asked the kernel for that
            process.wait()
        self._hang_up()

    # ---- inside

    def _hang_up(self) -> None:
        line, self._line, text, self._text = self._line, None, self._text, None
        if line is not None:
            with contextlib.suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)  # whoever reads it now is told
        for end in (text, line):
            if end is not None:
                with contextlib.suppress(OSError, ValueError):
                    end.close()

    def _spawn(self) -> subprocess.Popen[bytes]:
        command = rank_command(self._settings, str(self._folder))
        path = os.pathsep.join([str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        environment = {"OMP_NUM_THREADS": "1", **os.environ, **rank_variables(self._settings), "PYTHONPATH": path}
        started: list[subprocess.Popen[bytes] | OSError] = []
        up = threading.Event()

        def keep() -> None:
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

        threading.Thread(target=keep, name="fsdp-ranks", daemon=True).start()
        up.wait()
        if isinstance(started[0], OSError):
            raise LearnerFault(f"the ranks cannot be started: {started[0]}")
        return started[0]

    def _called(self, door: socket.socket) -> socket.socket:
        """Wait for the first rank's call."""
        door.settimeout(_LOOK_SECONDS)
        until = time.monotonic() + self._start_seconds
        while time.monotonic() < until:
            with contextlib.suppress(TimeoutError):
                return door.accept()[0]
            if self._process is None or self._process.poll() is not None:
                raise LearnerFault(self._died())
        others = self._settings.nodes - 1
        hint = f" Were those of {others} other machines started there (`dartsim run --dry-run`)?" if others else ""
        raise LearnerFault(
            f"{self._settings.ranks} ranks were not up within {self._start_seconds:g} s;{hint} {self._tail()}"
        )

    def _answer(self, seconds: float) -> dict[str, Any]:
        line, text = self._line, self._text
        if line is None or text is None:
            raise LearnerFault(self._died())
        try:
            line.settimeout(seconds)
            found = text.readline()
        except TimeoutError:
            raise LearnerFault(
                f"the ranks did not answer within {seconds:g} s, and were ended; {self._tail()}"
            ) from None
        except (OSError, ValueError):  # hung up by another thread
            found = ""
        if not found.endswith("\n"):
            raise LearnerFault(self._died())
        answer: dict[str, Any] = json.loads(found)
        return answer

    def _died(self) -> str:
        return f"a rank of the learner died; {self._tail()}"

    def _tail(self) -> str:
        """Return where the log is and what in it names an error; the first cause is far above the end."""
        if not self.log.is_file():
            return f"there is no log at {str(self.log)!r}"
        with self.log.open(encoding="utf-8", errors="replace") as log:
            lines = [line.rstrip() for line in log][-500:]
        named = list(dict.fromkeys(line for line in lines if _NAMED.search(line)))
        return f"log {str(self.log)!r}: " + "\n".join((named or lines)[-_TAIL_LINES:])


def rank_command(settings: FsdpConfig, folder: str, node: int = 0) -> list[str]:
    """Return the command line that starts the ranks of a machine; those of all machines wait for one another."""
    forks = settings.device == "cpu"
    command = [sys.executable, "-m", "dartsim.real.learners.fsdp.forked" if forks else "torch.distributed.run"]
    if settings.nodes == 1:
        command += ["--standalone", "--nnodes=1", "--local-addr=127.0.0.1"]
    else:
        host, _, port = (settings.address or "").rpartition(":")
        # Ranks by the number of their machine: the first of all must sit where the driver is.
        command += [f"--nnodes={settings.nodes}", f"--node-rank={node}"]
        command += [f"--master-addr={host}", f"--master-port={port}", f"--rdzv-conf=timeout={settings.start_seconds:g}"]
    command += [f"--nproc-per-node={settings.ranks_per_node}", "--max-restarts=0"]
    return [*command, folder] if forks else [*command, "-m", "dartsim.real.learners.fsdp.rank", folder]


def node_command(settings: FsdpConfig, folder: str, node: int) -> list[str]:
    """Return what has to be started on another machine than the first: again after every death, until the run ends."""
    again = 'until "$@"; do sleep 5; done'
    return ["sh", "-c", again, "sh", *rank_command(settings, folder, node)]


def rank_variables(settings: FsdpConfig) -> dict[str, str]:
    """Return what their environment is given."""
    seen = {"CUDA_VISIBLE_DEVICES": ",".join(map(str, settings.gpus))} if settings.gpus else {}
    if settings.nodes == 1:
        return {**seen, "GLOO_SOCKET_IFNAME": "lo"}
    if settings.interface:
        seen |= {"GLOO_SOCKET_IFNAME": settings.interface, "NCCL_SOCKET_IFNAME": settings.interface}
    return seen
