"""How long things took in a real run, one line each, with what went on beside: what a latency profile is made from."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from dartsim.ports import Learner, PolicyWorker, SyncMode
from dartsim.types import Batch, Reply, Request, UpdateResult, Weights

TIMINGS = "timings.jsonl"
"""File of a run's folder."""


class Timings:
    """Writes one JSON object a line: ``at`` (seconds of the run), ``what``, ``seconds`` and its context.

    ``what`` is ``desktop/…`` (start, boot, setup, ready, step, act, settle, screenshot, evaluate, teardown),
    ``worker/generate``, ``worker/load`` or ``learner/update``. Every line has ``busy``: what of each kind was under way
    beside it when it ended, itself included.
    """

    def __init__(self, file: IO[str]) -> None:
        self._file = file
        self._busy: Counter[str] = Counter()

    @classmethod
    @contextmanager
    def open(cls, folder: Path) -> Iterator[Timings]:
        """Write into a run's folder."""
        with (folder / TIMINGS).open("w", encoding="utf-8") as file:
            yield cls(file)

    def desktop(self, slot: int, what: str, seconds: float) -> None:
        """Note what a desktop did."""
        self._write(f"desktop/{what}", seconds, slot=slot)

    @contextmanager
    def doing(self, what: str, **context: Any) -> Iterator[None]:
        """Note how long a block takes, also if it fails."""
        loop = asyncio.get_running_loop()
        kind = what.partition("/")[0]
        begun = loop.time()
        self._busy[kind] += 1
        failed = True
        try:
            yield
            failed = False
        finally:
            more = {"failed": True} if failed else {}
            self._write(what, loop.time() - begun, **context, **more)
            self._busy[kind] -= 1

    def _write(self, what: str, seconds: float, **context: Any) -> None:
        at = asyncio.get_running_loop().time()
        line = {"at": round(at, 6), "what": what, "seconds": round(seconds, 6), **context, "busy": dict(+self._busy)}
        self._file.write(json.dumps(line, separators=(",", ":")) + "\n")


class TimedWorker:
    """A worker whose calls are noted; implements ``dartsim.ports.PolicyWorker``."""

    def __init__(self, index: int, inner: PolicyWorker, timings: Timings) -> None:
        self._index = index
        self._inner = inner
        self._timings = timings
        self._live = 0

    async def generate(self, request: Request) -> Reply:
        """Answer one request."""
        self._live += 1
        try:
            with self._timings.doing("worker/generate", worker=self._index, live=self._live, turn=request.turn):
                return await self._inner.generate(request)
        finally:
            self._live -= 1

    async def load(self, weights: Weights, mode: SyncMode) -> None:
        """Take new weights."""
        with self._timings.doing("worker/load", worker=self._index, live=self._live, mode=str(mode)):
            await self._inner.load(weights, mode)


class TimedLearner:
    """A learner whose updates are noted; implements ``dartsim.ports.Learner``."""

    def __init__(self, inner: Learner, timings: Timings) -> None:
        self._inner = inner
        self._timings = timings

    async def update(self, batch: Batch) -> UpdateResult:
        """Train on a batch."""
        with self._timings.doing("learner/update", turns=batch.num_turns, trajectories=len(batch.trajectories)):
            return await self._inner.update(batch)
