"""``RankGroup``: a learner's processes on this machine, and the connections to them."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, NamedTuple

from dartsim.config.sections.trainer import FsdpConfig
from dartsim.core.errors import LearnerFault
from dartsim.real.learners.fsdp import rank
from dartsim.real.processes import free_port

HOST = "127.0.0.1"


class _Process(NamedTuple):
    process: Any
    connection: Connection


class RankGroup:
    """Processes that carry out orders together. Blocking; ``kill`` may be called from any thread.

    They are forks of one process, which imports torch once for all of them. They end with this process, however it
    ends.

    Args:
        folder: Folder of the ranks' setup and their log.
        settings: Number of ranks, their GPUs, and the time limit of a start.
        prepare: Called before they are started.
    """

    def __init__(self, folder: Path, *, settings: FsdpConfig, prepare: Callable[[], None]) -> None:
        self.log = folder / "ranks.log"
        self._folder = folder
        self._settings = settings
        self._prepare = prepare
        self._processes: list[_Process] = []

    @property
    def pids(self) -> tuple[int, ...]:
        return tuple(process.pid for process, _ in self._processes)

    @property
    def running(self) -> bool:
        processes = list(self._processes)
        return bool(processes) and all(process.is_alive() for process, _ in processes)

    def start(self) -> None:
        """Start them.

        Raises:
            LearnerFault: If one of them ended or was not up in time; all have ended then.
        """
        self.kill()
        self._prepare()
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([rank.__name__])
        settings = self._settings
        meeting = f"tcp://{HOST}:{free_port(HOST)}"
        serve = partial(rank.serve, self._folder, self.log, meeting, settings.ranks, settings.gpus)
        for number in range(settings.ranks):
            here, there = context.Pipe()
            process = context.Process(target=serve, args=(number, there), name=f"rank-{number}", daemon=True)
            process.start()
            there.close()
            self._processes.append(_Process(process, here))
        self._answers(settings.start_seconds)

    def ask(self, order: dict[str, Any], seconds: float) -> dict[str, Any]:
        """Give an order and return the first rank's answer.

        Raises:
            LearnerFault: If one of them ended or did not answer in time; all have ended then.
        """
        try:
            for _, connection in list(self._processes):
                connection.send(order)
        except OSError:
            self.kill()
            raise self._died() from None
        return self._answers(seconds)

    def kill(self) -> None:
        """End them at once. May be called twice, and while they compute."""
        while self._processes:
            process, _ = self._processes.pop()
            process.kill()
            process.join()

    def _answers(self, seconds: float) -> dict[str, Any]:
        deadline = time.monotonic() + seconds
        connections = [connection for _, connection in self._processes]
        answers: dict[Any, dict[str, Any]] = {}
        try:
            if len(connections) < self._settings.ranks:
                raise LearnerFault("the ranks are not running; start them first")
            while pending := [each for each in connections if each not in answers]:
                ready = wait(pending, max(0.0, deadline - time.monotonic()))
                if not ready:
                    raise LearnerFault(
                        f"{len(pending)} of {len(connections)} ranks did not answer within {seconds:g} s, and were "
                        f"ended; log {str(self.log)!r}"
                    )
                for connection in connections:
                    if connection in ready:
                        answers[connection] = self._answer(connection)
        except BaseException:
            self.kill()
            raise
        return answers[connections[0]]

    def _answer(self, connection: Connection) -> dict[str, Any]:
        try:
            answer: dict[str, Any] = connection.recv()
        except (EOFError, OSError):
            raise self._died() from None
        if "error" in answer:
            raise LearnerFault(f"a rank of the learner failed: {answer['error']}; log {str(self.log)!r}")
        return answer

    def _died(self) -> LearnerFault:
        return LearnerFault(f"a rank of the learner died; log {str(self.log)!r}")
