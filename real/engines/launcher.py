"""Engines as processes: start, watch, stop, restart; or attach to a server that runs already."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import signal
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Protocol

from dartsim.core.secrets import redact
from dartsim.real.engines.client import EngineClient
from dartsim.real.engines.errors import EngineBadReply, EngineStartFailed, WeightsRefused
from dartsim.real.engines.options import EngineOptions
from dartsim.real.engines.weights import link_files
from dartsim.real.processes import end_with, free_port

logger = logging.getLogger(__name__)

_TAIL_LINES = 20
_START_LINE = "---- start "
_ERROR = re.compile(r"\b[A-Z]\w*(Error|Exception): ")
_HEALTH_SECONDS = 0.1

Progress = Callable[[float, str], None]
"""Called every few seconds of a start with the seconds since it began and the log's last line."""


class Engine(Protocol):
    """One vLLM server, wherever it runs."""

    @property
    def name(self) -> str:
        """A name for messages."""

    @property
    def url(self) -> str:
        """Its address; a restart may change it."""

    @property
    def can_restart(self) -> bool:
        """Whether ``start`` and ``stop`` have an effect."""

    @property
    def running(self) -> bool:
        """Whether its process runs, as far as we know."""

    async def start(self, model: Path | None = None) -> None:
        """Start it, unless it runs, and return when it is healthy.

        Raises:
            EngineStartFailed: If it did not become healthy.
        """

    async def stop(self) -> None:
        """End it. Never raises."""

    async def ended(self) -> int | None:
        """Wait until its process has ended by itself and return the exit status; None: its server did not answer."""

    async def place_adapter(self, folder: Path) -> None:
        """Replace the adapter that the server was started with; the server reads it when needed."""

    def mark_unreachable(self) -> None:
        """Record that the server did not answer. No effect if we watch its process."""


class AttachedEngine:
    """A server that was started outside of this run, such as ``http://node7:8000``."""

    can_restart = False
    running = True

    def __init__(self, url: str, *, start_seconds: float = 60.0) -> None:
        self.url = url.rstrip("/")
        self.name = self.url.partition("//")[2]
        self._start_seconds = start_seconds
        self._unreachable = asyncio.Event()

    async def start(self, model: Path | None = None) -> None:
        """Wait until it is healthy; its own weights stay."""
        problem = f"{self.url} did not answer"
        try:
            async with (
                asyncio.timeout(self._start_seconds),
                EngineClient(self.url) as client,
            ):
                while found := await client.health_problem():
                    if found != problem:
                        logger.warning("waiting %g s for an engine: %s", self._start_seconds, found)
                    problem = found
                    await asyncio.sleep(_HEALTH_SECONDS)
                await client.paused()
        except EngineBadReply as fault:
            raise EngineStartFailed(
                f"what answers at {self.url} is no vLLM server with the routes of VLLM_SERVER_DEV_MODE=1; `dartsim "
                f"check` prints how to start one: {fault}"
            ) from fault
        except TimeoutError:
            raise EngineStartFailed(
                f"no healthy engine within {self._start_seconds:g} s (vllm.start_seconds): {problem}"
            ) from None

    async def stop(self) -> None:
        """Leave it alone."""

    async def ended(self) -> None:
        await self._unreachable.wait()
        self._unreachable.clear()

    async def place_adapter(self, folder: Path) -> None:
        raise WeightsRefused(f"{self.name} was started by somebody else, and is given adapters merged into weights")

    def mark_unreachable(self) -> None:
        self._unreachable.set()


class LocalEngine:
    """A server that is a process of this machine, in its own process group.

    It ends with this process, however that ends: the kernel then sends it SIGTERM, and it ends its own children. Each
    engine has one log; a restart appends to it.
    """

    can_restart = True

    def __init__(
        self, options: EngineOptions, folder: Path, *, name: str = "engine", progress: Progress | None = None
    ) -> None:
        self.options = options
        self.name = name
        self.log = folder / f"{name}.log"
        self.starts = 0
        self._folder = folder
        self._adapter = folder / f"{name}-adapter"
        self._progress = progress
        self._process: asyncio.subprocess.Process | None = None
        self._port = 0

    @property
    def url(self) -> str:
        return f"http://{self.options.host}:{self._port}"

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    async def start(self, model: Path | None = None) -> None:
        """Start the process, unless it runs, and return when it is healthy.

        Raises:
            EngineStartFailed: If it ended or was not healthy in time; the message has the end of its log.
        """
        if self.running:
            return
        await self._spawn(model)
        try:
            await self._until_healthy()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Ask the process to end, and kill the whole group after ``stop_seconds``."""
        process, self._process = self._process, None
        if process is None:
            return
        if process.returncode is None:
            _signal(process.pid, signal.SIGTERM)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.options.stop_seconds):
                    await process.wait()
        # Also the rest of the group of a process that has ended by itself.
        _signal(process.pid, signal.SIGKILL)
        await process.wait()

    async def ended(self) -> int:
        while True:
            process = self._process
            if process is not None:
                status = await process.wait()
                if process is self._process:
                    return status
            await asyncio.sleep(_HEALTH_SECONDS)

    async def place_adapter(self, folder: Path) -> None:
        try:
            await asyncio.to_thread(link_files, folder, self._adapter)
        except OSError as error:  # replaced by newer weights, or the disk is full
            raise WeightsRefused(f"{self.name}: {str(folder)!r} is not available: {error}") from error

    def mark_unreachable(self) -> None:
        """Its process is watched."""

    async def _spawn(self, model: Path | None) -> None:
        options = self.options
        self._folder.mkdir(parents=True, exist_ok=True)
        if options.adapter is not None:
            if not self._adapter.is_dir():
                await self.place_adapter(Path(options.adapter))
            options = replace(options, adapter=str(self._adapter))
        self._port = free_port(options.host)
        command = options.command(self._port, None if model is None else str(model))
        self.starts += 1
        with self.log.open("ab") as log:
            log.write(f"{_START_LINE}{self.starts}: {redact(' '.join(command))}\n".encode())
            log.flush()
            try:
                self._process = await asyncio.create_subprocess_exec(
                    *command,
                    env=os.environ | options.variables(),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=log,
                    stderr=asyncio.subprocess.STDOUT,
                    start_new_session=True,
                    preexec_fn=partial(end_with, os.getpid(), signal.SIGTERM),
                )
            except OSError as error:
                raise EngineStartFailed(
                    f"{self.name}: {command[0]!r} cannot be run ({error}); wanted the interpreter of an environment "
                    "with vllm"
                ) from error
        logger.info("%s: process %d at %s, log %s", self.name, self._process.pid, self.url, self.log)

    async def _until_healthy(self) -> None:
        loop = asyncio.get_running_loop()
        started, reported = loop.time(), 0.0
        assert self._process is not None
        async with EngineClient(self.url, control_seconds=5.0) as client:
            while await client.health_problem():
                seconds = loop.time() - started
                problem = None
                if self._process.returncode is not None:
                    problem = f"ended with status {self._process.returncode} after {seconds:.0f} s"
                elif seconds > self.options.vllm.start_seconds:
                    problem = f"was not healthy within {self.options.vllm.start_seconds:g} s"
                if problem is not None:
                    raise EngineStartFailed(f"{self.name} {problem}; its log, {str(self.log)!r}, ends:\n{self._tail()}")
                if self._progress is not None and seconds - reported >= 5.0:
                    reported = seconds
                    self._progress(seconds, self._tail().rpartition("\n")[2])
                await asyncio.sleep(_HEALTH_SECONDS)

    def _tail(self) -> str:
        """Return the end of the log, after the lines that name errors: the first cause is far above the end."""
        with self.log.open(encoding="utf-8", errors="replace") as log:
            lines = [line.rstrip() for line in log]
        last = max(i for i, line in enumerate(lines) if line.startswith(_START_LINE))
        errors = dict.fromkeys(line for line in lines[last:-_TAIL_LINES] if _ERROR.search(line))
        return "\n".join([*errors, *lines[last:][-_TAIL_LINES:]])


def _signal(group: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)
