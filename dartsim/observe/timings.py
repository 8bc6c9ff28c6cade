"""Durations of calls in a real run, with the number of concurrent calls; latency profiles are fitted to them."""

from __future__ import annotations

import asyncio
import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from typing_extensions import override

from dartsim.core.errors import ConfigError
from dartsim.core.ports import AsyncEnv, EnvProvider, Learner, LentWorker, PolicyWorker
from dartsim.core.snapshots import Snapshots, WrappedSnapshots, snapshots_of
from dartsim.core.sync_modes import SyncMode
from dartsim.core.types import Batch, Observation, Reply, Request, StepResult, Task, Trajectory, UpdateResult, Weights
from dartsim.observe.recorder import Instrument

if TYPE_CHECKING:
    from _typeshed import SupportsWrite

Entry = Mapping[str, Any]
"""One line of the timings; see ``Timings``."""
TIMINGS, OLDER = "timings.jsonl", "timings.old.jsonl"
"""Files in the run directory: the newest lines, and the ones before."""
PART_BYTES = 32 * 2**20
"""Maximum size of each file: about twelve minutes at 4,000 turns a minute."""
CUT = "cut"
"""Kind of the newer file's first line, once lines have been deleted."""


class RotatingFile:
    """A file that keeps the newest lines without gaps, because readers need to know which calls overlapped.

    A file of ``part_bytes`` replaces ``OLDER``, and a new one is started. If that deleted lines, the new file's first
    line is a ``cut``, and every line from its ``since`` (seconds of the run) on is kept.
    """

    def __init__(self, path: Path, part_bytes: int = PART_BYTES) -> None:
        self._path = path
        self._max_bytes = part_bytes
        self._file = path.open("a", encoding="utf-8")
        self._bytes = path.stat().st_size

    def write(self, line: str) -> None:
        if self._bytes and self._bytes + len(line) > self._max_bytes:
            self._rotate(json.loads(line)["at"])
        self._file.write(line)
        self._bytes += len(line)

    def close(self) -> None:
        self._file.close()

    def _rotate(self, now: float) -> None:
        self._file.close()
        older = self._path.with_name(OLDER)
        lost = older.is_file()
        self._path.replace(older)
        self._file, self._bytes = self._path.open("w", encoding="utf-8"), 0
        if lost:
            with older.open(encoding="utf-8") as kept:
                since = json.loads(kept.readline())["at"]
            self.write(json.dumps({"at": now, "what": CUT, "seconds": 0.0, "since": since}) + "\n")


class Timings(Instrument):
    """Writes one JSON object per line: ``at`` (seconds of the run), ``what``, ``seconds`` and its context.

    ``what`` is one of

    - ``env/…`` (start, reset, step, evaluate, close; save, restore, and resume, which is a reset without a set-up):
      calls of a desktop, with its ``slot``;
    - ``desktop/…`` (start, boot, setup, ready, step, act, settle, screenshot, evaluate, teardown): parts of these calls
      inside a desktop's container;
    - ``worker/generate`` (with ``live``: requests on that worker, itself included, when it began), ``worker/load``,
      and for a worker in this process ``worker/batch`` (``size`` requests computed at once) and ``worker/put`` (loading
      new weights, without waiting for a batch to end), each with ``waited``: seconds that it waited for the event loop
      before and after;
    - ``learner/update`` (with its ``turns``, ``trajectories``, and ``tokens``, those of the prompt model);
    - ``attempt``: an attempt that has ended, with its ``group``, its ``index`` in the group, its ``turns`` and its
      ``reward`` (null if it has none);
    - ``loop/busy``: seconds, of the last ``of``, in which the event loop was busy.

    Every line has ``busy``: the number of calls of each kind in progress when it ended, itself included; a call that
    raised has ``failed``, a cancelled one ``cancelled``.
    """

    def __init__(self, file: SupportsWrite[str]) -> None:
        self._file = file
        self._busy: Counter[str] = Counter()
        self.set_up_states: set[str] = set()
        """Names of states that were saved after a task's set-up."""

    @classmethod
    @contextmanager
    def open(cls, folder: Path, *, resumed: bool = False) -> Iterator[Timings]:
        """Write into a run directory; if the run is resumed, after the lines of earlier lives."""
        path = folder / TIMINGS
        if not resumed:
            for old in (path, folder / OLDER):
                old.unlink(missing_ok=True)
        elif path.is_file():
            whole = path.read_bytes().rfind(b"\n") + 1  # a crash may have truncated the last line
            os.truncate(path, whole)
        with closing(RotatingFile(path)) as file:
            yield cls(file)

    def desktop(self, slot: int, what: str, seconds: float) -> None:
        self._write(f"desktop/{what}", seconds, slot=slot)

    def worker(self, index: int, what: str, seconds: float, waited: float, size: int) -> None:
        """Record a worker's computation in a thread of this process, and how long it waited for the event loop."""
        self._write(f"worker/{what}", seconds, worker=index, waited=round(waited, 6), size=size)

    @override
    def attempt_ended(self, trajectory: Trajectory) -> None:
        which = {"group": trajectory.attempt.group, "index": trajectory.attempt.index}
        seconds = trajectory.finished - trajectory.started
        self._write("attempt", seconds, **which, turns=len(trajectory.turns), reward=trajectory.reward)

    async def watch(self, idle_seconds: Callable[[], float], every_seconds: float = 0.5) -> None:
        """Record how busy the event loop is, until cancelled; ``idle_seconds`` returns its idle time so far."""
        loop = asyncio.get_running_loop()
        while True:
            begun, idle = loop.time(), idle_seconds()
            await asyncio.sleep(every_seconds)
            passed = loop.time() - begun
            self._write("loop/busy", max(0.0, passed - (idle_seconds() - idle)), of=round(passed, 6))

    @contextmanager
    def doing(self, what: str, **context: Any) -> Iterator[None]:
        """Record how long a block takes, even if it fails."""
        loop = asyncio.get_running_loop()
        kind = what.partition("/")[0]
        begun = loop.time()
        self._busy[kind] += 1
        ending: dict[str, Any] = {}
        try:
            yield
        except Exception:
            ending = {"failed": True}
            raise
        except BaseException:
            ending = {"cancelled": True}
            raise
        finally:
            self._write(what, loop.time() - begun, **context, **ending)
            self._busy[kind] -= 1

    def _write(self, what: str, seconds: float, **context: Any) -> None:
        at = asyncio.get_running_loop().time()
        line = {"at": round(at, 6), "what": what, "seconds": round(seconds, 6), **context, "busy": dict(+self._busy)}
        self._file.write(json.dumps(line, separators=(",", ":")) + "\n")


def read_timings(folder: Path) -> list[Entry]:
    """Return a run's timings in order, without an incomplete last line.

    Raises:
        ConfigError: If there are none, or a line is invalid.
    """
    path = folder if folder.suffix == ".jsonl" else folder / TIMINGS
    older = path.with_name(OLDER)
    try:
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        if path.name == TIMINGS and older.is_file():
            lines = [*older.read_text(encoding="utf-8").splitlines(keepends=True), *lines]
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be read ({error.strerror}); only a run by the machine's clock writes it, such as "
            "`dartsim run --backend mock`"
        ) from None
    entries: list[Entry] = []
    for number, line in enumerate(lines, start=1):
        try:
            entry = json.loads(line)
            entries.append({**entry, "what": str(entry["what"]), "at": float(entry["at"])})
        except (ValueError, KeyError, TypeError):
            if number == len(lines) and not line.endswith("\n"):
                break  # the run was killed
            raise ConfigError(f"line {number} of {path} is not a timing: {line[:80]!r}; repeat the run") from None
    return entries


class TimedDesktop:
    """A desktop whose calls are timed; implements ``dartsim.core.ports.AsyncEnv``."""

    def __init__(self, slot: int, inner: AsyncEnv, timings: Timings) -> None:
        self._slot = slot
        self._inner = inner
        self._timings = timings
        snapshots = snapshots_of(inner)
        self.snapshots = None if snapshots is None else TimedSnapshots(snapshots, slot, timings)

    async def reset(self, task: Task, *, seed: int) -> Observation:
        resumed = self.snapshots is not None and self.snapshots.begin()
        with self._timings.doing("env/resume" if resumed else "env/reset", slot=self._slot):
            return await self._inner.reset(task, seed=seed)

    async def step(self, action: str) -> StepResult:
        with self._timings.doing("env/step", slot=self._slot):
            return await self._inner.step(action)

    async def evaluate(self) -> float:
        with self._timings.doing("env/evaluate", slot=self._slot):
            return await self._inner.evaluate()

    async def close(self) -> None:
        with self._timings.doing("env/close", slot=self._slot):
            await self._inner.close()


class TimedSnapshots(WrappedSnapshots):
    """Saved states whose calls are timed."""

    def __init__(self, inner: Snapshots, slot: int, timings: Timings) -> None:
        super().__init__(inner)
        self._slot = slot
        self._timings = timings
        self._begun = self._set_up = False

    def begin(self) -> bool:
        """Note a reset, and return whether it starts in a task's saved state, without a set-up."""
        resumed, self._set_up, self._begun = self._set_up, False, True
        return resumed

    @override
    async def save(self, key: str) -> int:
        with self._timings.doing("env/save", slot=self._slot):
            num_bytes = await self._inner.save(key)
        if self._begun:
            self._timings.set_up_states.add(key)
        return num_bytes

    @override
    async def restore(self, key: str) -> None:
        with self._timings.doing("env/restore", slot=self._slot):
            await self._inner.restore(key)
        self._set_up, self._begun = key in self._timings.set_up_states, False


class TimedDesktops:
    """A provider of desktops whose calls are timed; implements ``dartsim.core.ports.EnvProvider``."""

    def __init__(self, inner: EnvProvider, timings: Timings) -> None:
        self._inner = inner
        self._timings = timings

    async def start(self, slot: int) -> TimedDesktop:
        with self._timings.doing("env/start", slot=slot):
            return TimedDesktop(slot, await self._inner.start(slot), self._timings)


class TimedWorker:
    """A worker whose calls are timed; implements ``dartsim.core.ports.PolicyWorker``."""

    def __init__(self, index: int, inner: PolicyWorker, timings: Timings) -> None:
        self._index = index
        self._inner = inner
        self._timings = timings
        self._live = 0

    async def generate(self, request: Request) -> Reply:
        self._live += 1
        try:
            with self._timings.doing("worker/generate", worker=self._index, live=self._live, turn=request.turn):
                return await self._inner.generate(request)
        finally:
            self._live -= 1

    async def load(self, weights: Weights, mode: SyncMode) -> None:
        with self._timings.doing("worker/load", worker=self._index, live=self._live, mode=str(mode)):
            await self._inner.load(weights, mode)

    async def release(self) -> None:
        with self._timings.doing("worker/release", worker=self._index, live=self._live):
            await cast(LentWorker, self._inner).release()


class TimedLearner:
    """A learner whose updates are timed; implements ``dartsim.core.ports.Learner``.

    ``tokens`` returns the tokens that a modeled trainer would compute for a batch.
    """

    def __init__(self, inner: Learner, timings: Timings, tokens: Callable[[Batch], int]) -> None:
        self._inner = inner
        self._timings = timings
        self._tokens = tokens

    async def update(self, batch: Batch) -> UpdateResult:
        sizes = {"turns": batch.num_turns, "trajectories": len(batch.trajectories), "tokens": self._tokens(batch)}
        with self._timings.doing("learner/update", **sizes):
            return await self._inner.update(batch)
