"""``SupervisedSandbox``: runs one metric or getter at a time, out of reach of everything else.

It is the driver's side: it sends a supervisor in a container files and options, and takes its replies, which are
limited in size. Nothing that an agent has written is parsed here.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import shutil
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dartsim.core.errors import ScoreUnavailable
from dartsim.envs.tasks import FORGEABLE_METRICS
from dartsim.real.containers.host import Container
from dartsim.real.scoring.sandboxed import wire
from dartsim.real.scratch import scratch

CHUNK_BYTES = 2**20
"""Bytes that are read or written at once, so that the event loop is never busy for long."""
REPLY_HEADER_BYTES = 2**18
MAX_DEPTH = 200
"""Levels of an argument: lists and objects in one another."""
LONG_TEXT = 2**16
"""Characters of a text from which on it is not sent as JSON, but in chunks."""
CONNECT_SECONDS = 30.0
"""Longest time until a supervisor that was started connects."""
START_SECONDS = 120.0
"""Longest time until the functions are loaded."""
MAX_INPUT_MIB, MAX_REPLY_MIB = 256, 64
"""Files and values of one call, MiB, and those that a getter returns; more is a fault."""
INSIDE = "/driver"
"""Folder in the container where the driver's sockets are."""
CODE = Path(wire.__file__).parent
"""The package that runs inside, by an interpreter that knows nothing of ours."""


def encoded_parts(data: bytes | str) -> Iterator[bytes]:
    """Yield a value's bytes in chunks, because encoding a long text in one call would hold the GIL."""
    for start in range(0, len(data), CHUNK_BYTES):
        part = data[start : start + CHUNK_BYTES]
        yield part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreLimits:
    """What one metric, or one of desktop-env's getters, may use.

    Attributes:
        metric_seconds: Time of a metric.
        getter_seconds: Time of a getter.
        cpu_seconds: CPU time.
        memory_mib: Memory beside what is loaded, MiB.
        scratch_mib: Disk, including unpacked files, MiB.
    """

    metric_seconds: float = 60.0
    getter_seconds: float = 300.0
    cpu_seconds: int = 30
    memory_mib: int = 1024
    scratch_mib: int = 512


class ScoreFault(ScoreUnavailable):
    """A metric or getter gave no result.

    Attributes:
        cause: ``metric_failed``, ``getter_failed`` (or ``_unavailable``), ``result_missing``, ``vm_unreachable``,
            ``gold_download_failed``, ``score_out_of_range``, or what broke: ``score_cpu``, ``score_memory``,
            ``score_disk``, ``score_timeout``, ``score_killed``, ``score_crashed``, ``score_reply``, ``sandbox_died``,
            ``sandbox_start_failed``.
        of_task: Whether the task is to blame, or something else that an agent cannot cause.
    """

    def __init__(self, message: str, *, cause: str, of_task: bool = False) -> None:
        super().__init__(message)
        self.cause = cause
        self.of_task = of_task

    @property
    def may_pass(self) -> bool:
        """Whether the same call may succeed in another sandbox, because it failed with its own."""
        return self.cause in ("sandbox_died", "sandbox_start_failed")


@dataclass(frozen=True, slots=True)
class ScorerFacts:
    """What a sandbox can do."""

    scorer: str
    python: str = ""
    metrics: Mapping[str, Sequence[str]] = field(default_factory=dict)
    getters: Mapping[str, Sequence[str]] = field(default_factory=dict)
    options: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def why_no_getter(self, name: str) -> str:
        """Say why a getter cannot be used; nothing if it can."""
        return self._lacking(self.getters, name)

    def why_no_metric(self, name: str, options: Iterable[str] = ()) -> str:
        """Say why a metric cannot be used with these options; nothing if it can."""
        lacking = self._lacking(self.metrics, name)
        # Tasks write remarks as options that begin with "_".
        unknown = [option for option in options if option not in self.options.get(name, ()) and option[:1] != "_"]
        if lacking or not unknown:
            return lacking
        return f"{self.scorer} does not know its option {', '.join(unknown)}"

    def _lacking(self, functions: Mapping[str, Sequence[str]], name: str) -> str:
        if name not in functions:
            return f"{self.scorer} does not have it"
        lacks = functions[name]
        # Without --ocr the environment lacks easyocr; its weights may be missing too.
        ocr = any(each == "easyocr" or each.endswith(".pth") for each in lacks)
        hint = " (`dartsim desktop evaluator --ocr`)" if ocr else ""
        return f"{', '.join(lacks)} is not installed{hint}" if lacks else ""


@dataclass(frozen=True, slots=True)
class FileInput:
    """A file as an argument."""

    path: Path
    name: str
    beside: tuple[FileInput, ...] = ()


@dataclass(frozen=True, slots=True)
class GetterValue:
    """What a getter of ``desktop-env`` returned, as bytes that only a sandbox reads.

    Attributes:
        data: The value.
        files: The files that it names.
        missing: Whether it is None.
        some_missing: Whether it is a list that holds None.
    """

    data: bytes
    files: Mapping[str, bytes] = field(default_factory=dict)
    missing: bool = False
    some_missing: bool = False


class SupervisedSandbox:
    """A container with our supervisor in it.

    A call that fails may leave it ``broken``: it takes no more then. ``ScoreFault`` says why a call gave no result.
    """

    def __init__(self, limits: ScoreLimits) -> None:
        self.facts = ScorerFacts("")
        self.broken = False
        self._limits = limits
        self._folder = scratch("scorer")
        (self._folder / "link").mkdir(mode=0o755)  # the folder above it is ours alone
        self._link_descriptor = os.open(self._folder / "link", os.O_PATH | os.O_DIRECTORY)
        self.link = Path(f"/proc/self/fd/{self._link_descriptor}")  # a socket's path has 107 characters at most
        self._container: Container | None = None
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._number = 0
        self._closed = False

    async def start(self, launch: Callable[[Path], Awaitable[Container]]) -> None:
        """Start the container, to which ``launch`` gives a folder as ``INSIDE``, and load the functions.

        Raises:
            ScoreFault: If it does not start.
        """
        connected: asyncio.Future[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = asyncio.Future()

        def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            if connected.done():
                writer.close()
            else:
                connected.set_result((reader, writer))

        control = self.link / "control"
        server = await asyncio.start_unix_server(connect, control)
        try:
            control.chmod(0o666)
            self._container = await launch(self._folder / "link")
            async with asyncio.timeout(CONNECT_SECONDS):
                self._streams = await connected
            async with asyncio.timeout(START_SECONDS):
                header = await self._read_header()
            self.facts = ScorerFacts(**header["ready"])
        except (TimeoutError, OSError, EOFError, ValueError, KeyError, TypeError) as error:
            console = b"" if self._container is None else await self._container.logs(tail=20)
            words = console.decode(errors="replace")[-500:].strip()
            raise ScoreFault(
                f"the sandbox did not start ({error!r}); it said last: {words or 'nothing'}",
                cause="sandbox_start_failed",
            ) from error
        finally:
            server.close()  # one connection, made before any call: nothing inside can make another
            control.unlink(missing_ok=True)

    async def metric(self, name: str, arguments: Sequence[Any], options: Mapping[str, Any]) -> float:
        payload = _Payload(one_folder=name in FORGEABLE_METRICS)
        described = [payload.argument(argument) for argument in arguments]
        described_options = payload.argument(dict(options))
        size = await asyncio.to_thread(payload.measure)
        if size > MAX_INPUT_MIB * 2**20:
            raise ScoreFault(
                f"the files of metric {name} have {size:,} bytes, wanted at most {MAX_INPUT_MIB} MiB",
                cause="input_too_large",
            )
        request = {"call": "metric", "name": name, "arguments": described, "options": described_options}
        reply, _ = await self._call(request, payload, self._limits.metric_seconds)
        score = reply.get("score")
        if isinstance(score, bool) or not isinstance(score, float):
            raise self._break(f"metric {name}: found the score {score!r}, wanted a number", "score_reply")
        return score

    async def getter(self, name: str, config: Mapping[str, Any], sockets: Mapping[str, str], token: str) -> GetterValue:
        desktop = {"sockets": dict(sockets), "token": token}
        request = {"call": "getter", "name": name, "config": dict(config), "desktop": desktop}
        reply, blobs = await self._call(request, _Payload(), self._limits.getter_seconds)
        try:
            files = dict(zip(map(wire.check_file_name, reply["files"]), blobs, strict=False))
            return GetterValue(blobs[-1], files, bool(reply["missing"]), bool(reply["some_missing"]))
        except (ValueError, LookupError) as error:
            raise self._break(f"getter {name}: {error}", "score_reply") from error

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = self.broken = True
        os.close(self._link_descriptor)
        if self._streams is not None:
            self._streams[1].close()
        container, self._container = self._container, None
        if container is not None:
            await container.remove()
        await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)

    async def _call(
        self, request: dict[str, Any], payload: _Payload, seconds: float
    ) -> tuple[dict[str, Any], list[bytes]]:
        """Send a request and return its reply and the reply's blobs."""
        if self.broken or self._streams is None:
            raise ScoreFault("the sandbox is not running", cause="sandbox_died")
        limits = self._limits
        self._number += 1
        what = f"{request['call']} {request['name']}"
        request |= {
            "id": self._number,
            "files": payload.names,
            "limits": {
                "seconds": seconds,
                "cpu_seconds": limits.cpu_seconds,
                "memory_mib": limits.memory_mib,
                "scratch_mib": limits.scratch_mib,
                "reply_bytes": MAX_REPLY_MIB * 2**20 if request["call"] == "getter" else 2**16,
            },
        }
        whole = False
        try:
            # The supervisor's own limit is the one that should end a call.
            async with asyncio.timeout(seconds + 30.0):
                await self._send(request, payload)
                reply = await self._read_header()
                if reply.get("id") != self._number:
                    raise ValueError(f"found a reply to call {reply.get('id')}, wanted one to {self._number}")
                blobs = [await self._read_blob(size) for size in reply["blobs"]]
            whole = True
        except TimeoutError:
            raise ScoreFault(f"{what}: the sandbox gave no answer", cause="sandbox_died") from None
        except (OSError, EOFError, ValueError, KeyError, TypeError) as error:
            raise ScoreFault(f"{what}: the sandbox ended: {error!r}", cause="sandbox_died") from error
        finally:
            self.broken = not whole
        self.broken = bool(reply.get("recycle"))
        message = str(reply.get("message", ""))
        if "fault" in reply:
            raise ScoreFault(f"{what}: {reply['fault']} limit, {message}", cause=f"score_{reply['fault']}")
        if "error" in reply:
            kind = str(reply["error"])
            raise ScoreFault(f"{what}: {message}", cause=_cause(kind, request["call"]), of_task=kind == "task")
        return reply, blobs

    async def _send(self, request: dict[str, Any], payload: _Payload) -> None:
        assert self._streams is not None
        writer = self._streams[1]
        writer.write(wire.pack(request, payload.sizes))
        for blob, size in zip(payload.blobs, payload.sizes, strict=True):
            if isinstance(blob, Path):
                await self._send_file(blob, size)
                continue
            for part in encoded_parts(blob):
                writer.write(part)
                await writer.drain()

    async def _send_file(self, path: Path, size: int) -> None:
        assert self._streams is not None
        writer = self._streams[1]
        with await asyncio.to_thread(path.open, "rb") as file:
            while size:
                chunk = await asyncio.to_thread(file.read, min(size, CHUNK_BYTES))
                if not chunk:
                    raise ValueError(f"{path.name} became shorter while it was read")
                size -= len(chunk)
                writer.write(chunk)
                await writer.drain()

    async def _read_header(self) -> dict[str, Any]:
        assert self._streams is not None
        reader = self._streams[0]
        size = int.from_bytes(await reader.readexactly(4), "big")
        if size > REPLY_HEADER_BYTES:
            raise ValueError(f"found a reply of {size:,} bytes, wanted at most {REPLY_HEADER_BYTES:,}")
        header = json.loads(await reader.readexactly(size))
        if not isinstance(header, dict):
            raise TypeError("a reply is no object")
        return header

    async def _read_blob(self, size: int) -> bytes:
        assert self._streams is not None
        if not 0 <= size <= MAX_REPLY_MIB * 2**20:
            raise ValueError(f"found a blob of {size} bytes, wanted at most {MAX_REPLY_MIB} MiB")
        parts = []
        while size:
            parts.append(await self._streams[0].readexactly(min(size, CHUNK_BYTES)))
            size -= len(parts[-1])
        return await asyncio.to_thread(b"".join, parts)

    def _break(self, message: str, cause: str) -> ScoreFault:
        self.broken = True
        return ScoreFault(message, cause=cause)


class _Payload:
    """The files and values of one request.

    Each argument's files are in a separate folder with an unguessable name, because an agent's archive, link or file
    name that led to the expected file would score 1.
    """

    def __init__(self, *, one_folder: bool = False) -> None:
        self._one_folder = one_folder
        self._folder = secrets.token_hex(8)
        self._files: dict[str, Path | bytes] = {}
        self._values: list[bytes | str] = []
        self.sizes: list[int] = []

    @property
    def names(self) -> list[str]:
        """Names of the files, which come before the values."""
        return list(self._files)

    @property
    def blobs(self) -> list[Path | bytes | str]:
        return [*self._files.values(), *self._values]

    def argument(self, value: Any) -> Any:
        """Return an argument as the request says it, and keep what is sent beside it.

        Raises:
            ScoreFault: If it is nested too deeply.
        """
        if not self._one_folder:
            self._folder = secrets.token_hex(8)
        return self._describe(value, MAX_DEPTH)

    def _describe(self, value: Any, depth: int) -> Any:
        if depth == 0:
            raise ScoreFault(f"an argument has more than {MAX_DEPTH} levels", cause="input_too_deep")
        if isinstance(value, FileInput):
            for file in value.beside:
                self._describe(file, depth - 1)
            name = self._name(value.name)
            if self._files.get(name) != value.path:
                name = wire.free_name(name, self._files)
            self._files[name] = value.path
            return {"$file": name}
        if isinstance(value, GetterValue):
            if self._one_folder and not self._files.keys().isdisjoint(map(self._name, value.files)):
                self._folder = secrets.token_hex(8)
            self._files.update({self._name(name): data for name, data in value.files.items()})
            return {"$blob": [self._add(value.data), self._folder]}
        if isinstance(value, str) and len(value) > LONG_TEXT:
            return {"$text": self._add(value)}
        if isinstance(value, (list, tuple)):
            return [self._describe(item, depth - 1) for item in value]
        if isinstance(value, Mapping):
            described = {key: self._describe(item, depth - 1) for key, item in value.items()}
            # A value of the task that looks like one of our special objects is escaped.
            special = len(described) == 1 and next(iter(described)).startswith("$")
            return {"$dict": [[key, item] for key, item in described.items()]} if special else described
        return value

    def measure(self) -> int:
        """Find the sizes out, and return their sum."""
        self.sizes = [
            blob.stat().st_size if isinstance(blob, Path) else sum(map(len, encoded_parts(blob))) for blob in self.blobs
        ]
        return sum(self.sizes)

    def _name(self, name: str) -> str:
        return f"{self._folder}/{wire.check_file_name(name)}"

    def _add(self, data: bytes | str) -> int:
        self._values.append(data)
        return len(self._values) - 1


def _cause(error: str, call: str) -> str:
    if error == "file_not_found" and call == "getter":
        return "result_missing"
    if error in ("file_not_found", "task"):
        return f"{call}_failed"
    causes = {"desktop": "vm_unreachable", "memory": "score_memory", "disk": "score_disk"}
    return causes.get(error, f"{call}_{error}")
