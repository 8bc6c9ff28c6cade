"""``SimLearner``: the modeled time of an update, around a learner that learns, or around nothing."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace

from dartsim.core.ports import Learner
from dartsim.core.types import Batch, UpdateResult, Weights
from dartsim.sim.control_loop import ControlLoop


class VersionCounter:
    """A learner that only counts versions, for surrogate policies."""

    async def update(self, batch: Batch) -> UpdateResult:
        return UpdateResult(Weights(batch.update))


@dataclass(slots=True, eq=False)
class SimLearner:
    """A trainer's speed behind the port ``Learner``: a fixed time and a time per turn, then the update.

    Source: 21.2 min between the versions of DART's headline run, saving included (docs/schedulers.md).
    """

    inner: Learner
    fixed_seconds: float
    turn_seconds: float
    control: ControlLoop | None = None

    def seconds(self, batch: Batch) -> float:
        """Return how long the update with a batch takes without faults."""
        return self.fixed_seconds + self.turn_seconds * batch.num_turns

    async def update(self, batch: Batch) -> UpdateResult:
        seconds = self.seconds(batch)
        await asyncio.sleep(seconds)
        result = await self.inner.update(batch)
        if self.control is not None:
            await self.control.turn()
        return replace(result, metrics={"update_seconds": seconds, **result.metrics})
