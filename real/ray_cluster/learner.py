"""A learner in an actor: ``TorchLearner``, or ``FsdpLearner`` with its ranks beside it, on some node of a cluster.

The actor writes a checkpoint after every update (or every few), so that the one that takes its place goes on where this
one was. The control plane says which update it is at; a checkpoint that is newer belongs to an update whose answer got
lost, and is never gone on from: its batch goes back, and would be trained twice.
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

_KEPT = "kept"
_NAME = "update-{:06d}"
_CHECKPOINTS = 2


class Checkpointed(Protocol):
    """A learner whose state can be written and taken up, such as ``TorchLearner`` and ``FsdpLearner``."""

    @property
    def updates(self) -> int:
        """Finished updates."""

    def train(self, batch: Batch) -> UpdateResult:
        """Train on a batch and return the new weights."""

    def weights(self) -> Weights:
        """Return the present weights."""

    def keep(self) -> None:
        """Remember the present state."""

    def go_back(self, version: Version) -> Weights:
        """Return to what was remembered."""

    def save_model(self, folder: Path) -> None:
        """Write the model."""

    def save(self, folder: Path) -> None:
        """Write the whole state."""

    def load(self, folder: Path) -> None:
        """Take a state up."""


class LearnerHost:
    """In the actor: a learner and its checkpoints. Its methods block, and run one after the other.

    Args:
        make: Makes the learner as it is at the very beginning.
        folder: Of checkpoints; the actor that takes this one's place must find it too.
        every: Updates between checkpoints.
    """

    def __init__(self, make: Callable[[], Checkpointed], folder: str, every: int) -> None:
        self._make = make
        self._folder = Path(folder)
        self._every = every
        self._learner: Checkpointed | None = None
        self._remembers = False
        self._one = threading.Lock()  # a call that was cancelled may still compute

    async def update(self, batch: Batch, base: Version) -> UpdateResult:
        """Train on a batch, from the state that the control plane knows."""
        return await asyncio.to_thread(self._update, batch, base)

    async def do(self, what: str, base: Version, *args: Any) -> Any:
        """Call ``weights``, ``keep``, ``go_back``, ``load``, ``save`` or ``save_model``."""
        return await asyncio.to_thread(self._do, what, base, *args)

    def _update(self, batch: Batch, base: Version) -> UpdateResult:
        with self._one:
            learner = self._at(base)
            result = learner.train(batch)
            if batch.update % self._every == 0:
                self._checkpoint(learner)
            return result

    def _do(self, what: str, base: Version, *args: Any) -> Any:
        with self._one:
            learner = self._at(base)
            if what == "keep":
                learner.keep()
                learner.save(self._folder / _KEPT)
                self._remembers = True
                return None
            if what == "go_back":
                return self._go_back(learner, args[0])
            found = getattr(learner, what)(*args)
            if what == "load":
                for later in self._checkpoints():  # of updates that are undone
                    if _number(later) > learner.updates:
                        shutil.rmtree(later)
                self._checkpoint(learner)
                return learner.weights()
            return found

    def _go_back(self, learner: Checkpointed, version: Version) -> Weights:
        if not self._remembers:  # it was another actor that did
            learner.load(self._folder / _KEPT)
            learner.keep()
            self._remembers = True
        weights = learner.go_back(version)
        self._checkpoint(learner)
        return weights

    def _at(self, base: Version) -> Checkpointed:
        """Return the learner as it was after update ``base``, or after the last one before it that was written."""
        if self._learner is not None and self._learner.updates == base:
            return self._learner
        found = [path for path in self._checkpoints() if _number(path) <= base]
        if not found and base >= self._every:
            raise LearnerFault(
                f"there is no checkpoint of update {base} or before in {self._folder}, and one was written every "
                f"{self._every}: the folder was changed, or is not of a disk that all nodes share (ray.folder)"
            )
        if self._learner is None or not found:
            self._learner, self._remembers = self._make(), False
        if found:
            self._learner.load(found[-1])
        if self._learner.updates != base:
            logger.warning("the learner goes on from update %d of %d", self._learner.updates, base)
        return self._learner

    def _checkpoint(self, learner: Checkpointed) -> None:
        learner.save(self._folder / _NAME.format(learner.updates))
        for old in self._checkpoints()[:-_CHECKPOINTS]:
            shutil.rmtree(old, ignore_errors=True)

    def _checkpoints(self) -> list[Path]:
        """Return the whole ones, oldest first."""
        found = [path for path in self._folder.glob("update-*") if path.suffix != ".partial"]
        return sorted(found, key=_number)


def _number(path: Path) -> int:
    return int(path.name.partition("-")[2])


class RayLearner:
    """A learner on some node; implements ``core.ports.Learner``, and what promotion and checkpoints want of one.

    Attributes:
        updates: Finished updates, as far as the control plane was told.
        losses: How often its actor ended.

    Args:
        part: An actor of ``LearnerHost``.
        first: The weights it begins with.
        ready_seconds: It is placed within this time, first.
        call_seconds: Longest time of any call but an update.
    """

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
        """Train on a batch. If cancelled, the answer is not waited for, and the update counts as not done.

        Raises:
            LearnerFault: If the update did not happen.
            PartGone: If the actor ended and is not started again.
        """
        if self._closed:
            raise LearnerFault(f"update {batch.update} came after the learner was closed")
        task, own = asyncio.current_task(), asyncio.create_task(self._train(batch), name=f"update {batch.update}")
        assert task is not None
        # Its own task, so that closing can never cancel whoever has its answer already.
        self._under_way = asyncio.get_running_loop(), own
        try:
            result = await own
        except asyncio.CancelledError:
            if not task.cancelling():  # then it was not this call that was cancelled, but closing did it
                raise LearnerFault(f"update {batch.update} was given up: the learner was closed") from None
            raise
        finally:
            self._under_way = None
        self.updates, self._weights = result.weights.version, result.weights
        return result

    async def _train(self, batch: Batch) -> UpdateResult:
        try:
            found: UpdateResult = await self.part.call("update", batch, self.updates)
        except PartLost as lost:
            self.losses += 1
            await self.part.until_up()
            raise LearnerLost(f"update {batch.update}: {lost}") from lost
        return found

    def weights(self) -> Weights:
        """Return the newest weights that came back."""
        return self._weights

    def keep(self) -> None:
        """Remember weights and optimizer as they are, for ``go_back``."""
        self._do("keep")

    def go_back(self, version: Version) -> Weights:
        """Return to what was remembered, and return it as a new version."""
        self._took(self._do("go_back", version))
        return self._weights

    def save_model(self, folder: Path) -> None:
        """Write the model.

        Raises:
            ConfigError: If the actor's node does not share the disk.
        """
        self._write("save_model", folder)

    def save(self, folder: Path) -> None:
        """Write the learner's whole state.

        Raises:
            ConfigError: If the actor's node does not share the disk.
        """
        self._write("save", folder)

    def load(self, folder: Path) -> None:
        """Go on from a checkpoint, on a disk that the actor's node shares."""
        self._took(self._do("load", folder.resolve()))

    def close(self) -> None:
        """Take no more updates, and give the one under way up. What was learned can be saved all the same."""
        self._closed = True
        under_way = self._under_way
        if under_way is not None:
            loop, task = under_way
            with suppress(RuntimeError):  # it ended this moment, and its loop with it
                loop.call_soon_threadsafe(task.cancel)

    def end(self) -> None:
        """End the actor. May be called twice."""
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

    def _took(self, weights: Weights) -> None:
        self.updates, self._weights = weights.version, weights

    def _do(self, what: str, *args: Any) -> Any:
        """Call the learner; once more if its actor ends under it, from the newest checkpoint."""
        return _blocking(self._again(what, *args))

    async def _again(self, what: str, *args: Any) -> Any:
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
    """Run a coroutine on a loop of its own, whether or not this thread has one, and block until it has ended."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()
