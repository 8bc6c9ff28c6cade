"""A learner in an actor: ``TorchLearner``, or ``FsdpLearner`` with its ranks beside it, on some node of a cluster.

The actor writes a checkpoint after every update (or every few), so that a restarted actor resumes there. The control
plane says which update it is at. A newer checkpoint belongs to an update whose answer was lost; it is never resumed
from, because its batch was returned and would be trained twice.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol, TypeVar

from dartsim.core.errors import ConfigError, LearnerFault
from dartsim.core.types import Batch, UpdateResult, Version, Weights
from dartsim.real.ray_cluster.errors import LearnerLost, PartLost
from dartsim.real.ray_cluster.parts import Part

logger = logging.getLogger(__name__)

T = TypeVar("T")

_NAME = "update-{:06d}"
_CHECKPOINTS = 2


class Checkpointed(Protocol):
    """A learner whose state can be saved and loaded, such as ``TorchLearner`` and ``FsdpLearner``."""

    @property
    def updates(self) -> int:
        """Finished updates."""

    def train(self, batch: Batch) -> UpdateResult:
        """Train on a batch and return the new weights."""

    def weights(self) -> Weights:
        """Return the present weights."""

    def save_model(self, folder: Path) -> None:
        """Write the model for transformers."""

    def save(self, folder: Path) -> None:
        """Write the whole state."""

    def load(self, folder: Path) -> None:
        """Resume from a state."""


class LearnerHost:
    """In the actor: a learner and its checkpoints. Its methods block, and run one after the other."""

    def __init__(self, make: Callable[[], Checkpointed], folder: str, every: int) -> None:
        self._make = make
        self._folder = Path(folder)
        self._every = every
        self._learner: Checkpointed | None = None
        self._lock = threading.Lock()  # a canceled call may still compute

    async def update(self, batch: Batch, base: Version) -> UpdateResult:
        return await asyncio.to_thread(self._update, batch, base)

    async def do(self, what: str, base: Version, *args: Any) -> Any:
        """Call ``weights``, ``load``, ``save`` or ``save_model``."""
        return await asyncio.to_thread(self._do, what, base, *args)

    def _update(self, batch: Batch, base: Version) -> UpdateResult:
        with self._lock:
            learner = self._at(base)
            result = learner.train(batch)
            if batch.update % self._every == 0:
                self._checkpoint(learner)
            return result

    def _do(self, what: str, base: Version, *args: Any) -> Any:
        with self._lock:
            learner = self._at(base)
            result = getattr(learner, what)(*args)
            if what == "load":
                for later in self.checkpoints():  # of updates that are undone
                    if _number(later) > learner.updates:
                        shutil.rmtree(later)
                self._checkpoint(learner)
                return learner.weights()
            return result

    def _at(self, base: Version) -> Checkpointed:
        """Return the learner as it was after update ``base``, or after the last checkpoint before."""
        if self._learner is not None and self._learner.updates == base:
            return self._learner
        earlier = [path for path in self.checkpoints() if _number(path) <= base]
        if not earlier and base >= self._every:
            raise LearnerFault(
                f"there is no checkpoint of update {base} or before in {self._folder}, and one was written every "
                f"{self._every}: the folder was changed, or is not of a disk that all nodes share (ray.folder)"
            )
        if self._learner is None or not earlier:
            self._learner = self._make()
        if earlier:
            self._learner.load(earlier[-1])
        if self._learner.updates != base:
            logger.warning("the learner resumes at update %d of %d", self._learner.updates, base)
        return self._learner

    def _checkpoint(self, learner: Checkpointed) -> None:
        learner.save(self._folder / _NAME.format(learner.updates))
        for old in self.checkpoints()[:-_CHECKPOINTS]:
            shutil.rmtree(old, ignore_errors=True)

    def checkpoints(self) -> list[Path]:
        """Return the complete checkpoints, oldest first."""
        return sorted((p for p in self._folder.glob("update-*") if p.suffix != ".partial"), key=_number)


def _number(path: Path) -> int:
    return int(path.name.partition("-")[2])


class RayLearner:
    """A learner on some node; implements ``core.ports.Learner``, and what checkpoints need."""

    def __init__(
        self, part: Part, *, first: Weights, ready_seconds: float = 120.0, call_seconds: float = 3600.0
    ) -> None:
        self.part = part
        self.updates = first.version
        self.losses = 0
        self._weights = first
        self._call_seconds = call_seconds
        self._closed = False
        self._under_way: tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]] | None = None
        try:
            _blocking(part.placed(ready_seconds))
        except BaseException:
            part.kill()
            raise

    async def update(self, batch: Batch) -> UpdateResult:
        if self._closed:
            raise LearnerFault(f"update {batch.update} came after the learner was closed")
        task, own = asyncio.current_task(), asyncio.create_task(self._train(batch), name=f"update {batch.update}")
        assert task is not None
        # Its own task, so that closing cannot cancel a caller that has the answer already.
        self._under_way = asyncio.get_running_loop(), own
        try:
            result = await own
        except asyncio.CancelledError:
            if not task.cancelling():  # closing canceled the update, not the caller
                raise LearnerFault(f"update {batch.update} was given up: the learner was closed") from None
            raise
        finally:
            self._under_way = None
        self.updates, self._weights = result.weights.version, result.weights
        return result

    async def _train(self, batch: Batch) -> UpdateResult:
        try:
            result: UpdateResult = await self.part.call("update", batch, self.updates)
        except PartLost as lost:
            self.losses += 1
            await self.part.until_up()
            raise LearnerLost(f"update {batch.update}: {lost}") from lost
        return result

    def weights(self) -> Weights:
        return self._weights

    def save_model(self, folder: Path) -> None:
        self._write("save_model", folder)

    def save(self, folder: Path) -> None:
        self._write("save", folder)

    def load(self, folder: Path) -> None:
        self._received(self._do("load", folder.resolve()))

    def close(self) -> None:
        """Refuse further updates and cancel the one under way. The state can still be saved."""
        self._closed = True
        under_way = self._under_way
        if under_way is not None:
            loop, task = under_way
            with suppress(RuntimeError):  # it ended this moment with its loop
                loop.call_soon_threadsafe(task.cancel)

    def end(self) -> None:
        self._closed = True
        self.part.kill()

    def _write(self, what: str, folder: Path) -> None:
        folder = folder.resolve()
        self._do(what, folder)
        if not folder.is_dir():
            raise ConfigError(
                f"{str(folder)!r} was written on the node of the learner, and is not there on this one; give the run a "
                "folder (--out) on a disk that both share, or keep the learner here by ray.learner.resources"
            )

    def _received(self, weights: Weights) -> None:
        self.updates, self._weights = weights.version, weights

    def _do(self, what: str, *args: Any) -> Any:
        """Call the learner; if its actor ends under the call, once more from the newest checkpoint."""
        return _blocking(self._call_twice(what, *args))

    async def _call_twice(self, what: str, *args: Any) -> Any:
        for last in (False, True):
            try:
                async with asyncio.timeout(self._call_seconds):
                    return await self.part.call("do", what, self.updates, *args)
            except TimeoutError:
                raise LearnerFault(f"the learner did not {what} within {self._call_seconds:g} s") from None
            except PartLost as lost:
                self.losses += 1
                logger.warning("%s", lost)
                await self.part.until_up()
                if last:
                    raise LearnerLost(f"{what} failed twice: {lost}") from lost
        raise AssertionError("unreachable: the last try returns or raises")


def _blocking(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on its own loop in a thread, and block until it has ended."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()
