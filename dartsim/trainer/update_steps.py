"""``LearnerWithSteps``: a learner whose updates are followed by steps, such as a checkpoint and an evaluation.

update --> step --> step --> answered
           ^  |
           +--+ UpdateUncertain: the same batch is requested again, and only the remaining steps are done
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple

from dartsim.core.errors import UpdateUncertain
from dartsim.core.ports import Learner
from dartsim.core.types import Batch, UpdateResult


class UpdateStep(NamedTuple):
    """A step after every ``every_updates`` updates; ``run`` gets an update's number and result."""

    name: str
    every_updates: int
    run: Callable[[int, UpdateResult], UpdateResult]


class LearnerWithSteps:
    """A learner that answers once the steps after an update are done; implements ``Learner``."""

    def __init__(self, inner: Learner, steps: Sequence[UpdateStep]) -> None:
        self._inner = inner
        self._steps = steps
        self._result: UpdateResult | None = None
        self._remaining: list[UpdateStep] = []

    async def update(self, batch: Batch) -> UpdateResult:
        """Train, unless only a step after the update has failed; then do the steps.

        Raises:
            UpdateUncertain: If a step failed: the weights have changed, so the batch must not be released.
        """
        number = batch.update
        result = self._result
        if result is None:
            result = self._result = await self._inner.update(batch)
            self._remaining = [step for step in self._steps if number % step.every_updates == 0]
        while self._remaining:
            step = self._remaining[0]
            try:
                # In a thread, so that in real time desktops and engines continue.
                result = self._result = await asyncio.to_thread(step.run, number, result)
            except Exception as exc:
                raise UpdateUncertain(f"update {number} is done, but {step.name} failed: {exc!r}") from exc
            del self._remaining[0]
        self._result = None
        return result
