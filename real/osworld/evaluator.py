"""``EvaluatorProcess``: metrics and getters of ``desktop-env``, run in its own environment, one call at a time.

The process is started when first needed. One that dies, or does not answer in time, is ended with all it started,
and the next call starts another. It gets no environment variables beyond those named here, and a folder of its own
to work in, because some metrics run what an agent has written.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from dartsim.real.osworld.errors import Unscored
from dartsim.real.osworld.evaluator_main import WORK
from dartsim.real.osworld.fetch import TaskFolder
from dartsim.real.scoring.evaluator_venv import python_of
from dartsim.real.scratch import scratch

MAIN = Path(__file__).with_name("evaluator_main.py")
START_SECONDS = 120.0
"""Longest time until the process has imported everything; the full environment takes 10 s on a quiet machine."""
CALL_SECONDS = 300.0
LINE_BYTES = 256 * 2**20
"""Longest reply: an accessibility tree, a page's text."""
PASSED_ON = ("PATH", "LANG", "LC_ALL", "SSL_CERT_FILE", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "DISPLAY")
"""Environment variables the process gets."""


@dataclass(frozen=True, slots=True)
class EvaluatorFacts:
    """What an evaluator process can do.

    Attributes:
        desktop_env: Version of the package.
        python: Version of its interpreter.
        metrics: Each metric with the modules that it lacks; it can be used if it lacks none.
        getters: The same of getters.
        options: The options that each metric may know.
    """

    desktop_env: str
    python: str
    metrics: Mapping[str, Sequence[str]] = field(default_factory=dict)
    getters: Mapping[str, Sequence[str]] = field(default_factory=dict)
    options: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def no_getter(self, name: str) -> str:
        """Say why a getter cannot be used; nothing if it can."""
        return self._lacking(self.getters, name)

    def no_metric(self, name: str, options: Iterable[str] = ()) -> str:
        """Say why a metric cannot be used with these options; nothing if it can."""
        lacking = self._lacking(self.metrics, name)
        # Tasks write remarks as options that begin with "_".
        unknown = [each for each in options if each not in self.options.get(name, ()) and not each.startswith("_")]
        if lacking or not unknown:
            return lacking
        return f"desktop-env {self.desktop_env} does not know its option {', '.join(unknown)}"

    def _lacking(self, functions: Mapping[str, Sequence[str]], name: str) -> str:
        if name not in functions:
            return f"desktop-env {self.desktop_env} does not have it"
        return f"{', '.join(functions[name])} is not installed" if functions[name] else ""


class ResultFileMissing(Exception):
    """A getter of ``desktop-env`` did not find a file, which OSWorld scores 0."""


class EvaluatorProcess:
    """One evaluator process.

    Args:
        home: Its virtual environment.
        start_seconds: Longest time until it is ready.
        call_seconds: Longest time of a call.
        command: What to run instead of the environment's interpreter with ``evaluator_main``.

    Attributes:
        starts: How often it was started.

    Raises:
        ConfigError: If there is no environment.
    """

    def __init__(
        self,
        home: Path,
        *,
        start_seconds: float = START_SECONDS,
        call_seconds: float = CALL_SECONDS,
        command: Sequence[str] | None = None,
    ) -> None:
        self.starts = 0
        self._command = tuple(command) if command else (str(python_of(home)), "-I", str(MAIN))
        self._start_seconds = start_seconds
        self._call_seconds = call_seconds
        self._lock = asyncio.Lock()
        self._process: asyncio.subprocess.Process | None = None
        self._folder: Path | None = None
        self._facts: EvaluatorFacts | None = None
        self._count = 0

    async def facts(self) -> EvaluatorFacts:
        """Return what the process can do, starting it if need be.

        Raises:
            Unscored: If it cannot be started.
        """
        async with self._lock:
            return await self._ready()

    async def metric(self, name: str, args: Sequence[Any], options: Mapping[str, Any]) -> float:
        """Return the score that a metric gives.

        Raises:
            Unscored: If it gave none.
        """
        return float(await self._call(call="metric", name=name, args=list(args), options=dict(options)))

    async def getter(self, name: str, config: Mapping[str, Any], where: TaskFolder) -> Any:
        """Return what a getter finds on the desktop; it stays valid for ``metric`` until the process ends.

        Raises:
            Unscored: If it failed.
            ResultFileMissing: If it did not find a file.
        """
        return await self._call(call="getter", name=name, config=dict(config), desk=_desk(where))

    async def aclose(self) -> None:
        """End the process."""
        async with self._lock:
            await self._end()

    async def _call(self, **request: Any) -> Any:
        async with self._lock:
            await self._ready()
            reply = await self._ask(request, self._call_seconds)
        if "error" not in reply:
            return reply["value"]
        cause, message = reply["error"]["cause"], reply["error"]["message"]
        what = f"{request['call']} {request['name']} of desktop-env: {message}"
        if cause == "file_not_found" and request["call"] == "getter":
            raise ResultFileMissing(what)
        known = {"vm_unreachable": "vm_unreachable", "unavailable": f"{request['call']}_unavailable"}
        raise Unscored(what, cause=known.get(cause, f"{request['call']}_failed"))

    async def _ready(self) -> EvaluatorFacts:
        if self._process is not None and self._process.returncode is None and self._facts is not None:
            return self._facts
        await self._end()
        self._folder = await asyncio.to_thread(scratch, "evaluator")
        kept = {name: value for name, value in os.environ.items() if name.upper() in PASSED_ON}
        home = str(self._folder)
        try:
            self._process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                limit=LINE_BYTES,
                cwd=home,
                env={**kept, "HOME": home, "TMPDIR": home, WORK: home, "OMP_NUM_THREADS": "1"},
                start_new_session=True,
            )
        except OSError as exc:
            raise Unscored(f"the evaluator process could not be started: {exc}", cause="evaluator_died") from exc
        self.starts += 1
        found = (await self._ask({"call": "hello"}, self._start_seconds))["value"]
        self._facts = EvaluatorFacts(**found)
        return self._facts

    async def _ask(self, request: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        """Send a request and return its reply. However this ends but well, the process ends too."""
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        self._count += 1
        whole = False
        try:
            async with asyncio.timeout(seconds):
                process.stdin.write(json.dumps({"id": self._count, **request}).encode() + b"\n")
                await process.stdin.drain()
                reply = json.loads(await process.stdout.readuntil(b"\n"))
            if reply["id"] != self._count:
                raise ValueError(f"found the reply to {reply['id']}, wanted that to {self._count}")
            whole = True
            return dict(reply)
        except TimeoutError:
            raise Unscored(
                f"the evaluator process gave no answer to {request['call']} {request.get('name', '')} in {seconds:g} s",
                cause="evaluator_timeout",
            ) from None
        except (OSError, EOFError, ValueError, KeyError, asyncio.LimitOverrunError) as exc:
            raise Unscored(
                f"the evaluator process died in {request['call']} {request.get('name', '')}: {exc}",
                cause="evaluator_died",
            ) from exc
        finally:
            # A cancelled call's reply must not be taken for the next one's.
            if not whole:
                self._kill()

    async def _end(self) -> None:
        self._kill()
        if self._process is not None:
            process, self._process = self._process, None
            if process.stdin is not None:
                process.stdin.close()
            await process.wait()
        if self._folder is not None:
            folder, self._folder = self._folder, None
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)

    def _kill(self) -> None:
        self._facts = None
        if self._process is not None:
            # What it has started as well: it is the first of its session.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)


def _desk(where: TaskFolder) -> dict[str, Any]:
    server = urlsplit(where.desk.server_url)
    return {
        "host": server.hostname,
        "server_port": server.port,
        "chromium_port": where.desk.chromium_url and urlsplit(where.desk.chromium_url).port,
        "vlc_port": where.desk.vlc_url and urlsplit(where.desk.vlc_url).port,
        "cache_dir": str(where.path.resolve()),
        "token": where.desk.token,
    }
