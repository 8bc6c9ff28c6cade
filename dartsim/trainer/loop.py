"""``Trainer``: takes batches, updates the weights, publishes them.

next_batch --> update --> trained --> publish --> (wait until settled) --> published
    ^          ^  |
    |          +--+ (the outcome is unknown; wait, then repeat the request with the same batch)
    +-- release <-+ (the update failed; wait, then retry; or nothing could be trained: the batch is dropped)
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from dartsim.core.answers import check_update, describe, is_own
from dartsim.core.backoff import backoff_seconds
from dartsim.core.errors import BatchUntrainable, LearnerFault, UpdateUncertain
from dartsim.core.ports import BatchSource, Learner, Publisher
from dartsim.core.types import Batch, Drop, UpdateResult
from dartsim.observe import Recorder, TrainerState
from dartsim.observe.records import MISMATCH_ALARM, UNTRAINABLE

logger = logging.getLogger(__name__)

RETRY_SECONDS, MAX_RETRY_SECONDS = 10.0, 600.0
"""Wait after a failed update, doubled with each failure in a row, and its maximum."""


class Trainer:
    """The training loop.

    Invariant: a batch is trained at most once. If its update fails or is cancelled, the batch is released, or dropped
    if nothing in it can be trained; then there is no new version. A batch whose outcome is unknown may have been
    trained, so the update is requested again, under the same number, until the outcome is known; the batch is released
    only if the run is cancelled first.

    Args:
        learner: Turns batches into weights.
        source: Where batches come from.
        publisher: Where weights go.
        recorder: Records states and counts.
        wait_for_sync: Whether to wait after a publication until every worker has the new weights: the coupled
            baseline. DART does not wait.
        publish_every: Updates between two publications (verl's T, slime's update interval).
        before_publication: Awaited before weights are published, for schedulers whose rollouts must end first.
        wait_state: The trainer's state while it awaits that.
    """

    def __init__(
        self,
        learner: Learner,
        *,
        source: BatchSource,
        publisher: Publisher,
        recorder: Recorder,
        wait_for_sync: bool = False,
        publish_every: int = 1,
        before_publication: Callable[[], Awaitable[None]] | None = None,
        wait_state: TrainerState = TrainerState.WAIT_PUBLISH,
    ) -> None:
        self.learner = learner
        self._source = source
        self._publisher = publisher
        self._recorder = recorder
        self._wait_for_sync = wait_for_sync
        self._publish_every = publish_every
        self._before_publication = before_publication
        self._wait_state = wait_state
        self._track = recorder.trainer.tracks[0]
        self.doing = ""
        self.failures = 0

    async def run(self) -> None:
        while True:
            self._track.enter(TrainerState.WAIT_DATA)
            batch = await self._source.next_batch()
            if batch is None:
                self._track.enter(TrainerState.OFF)
                return
            try:
                await self._train(batch)
                self.failures = 0
            except BatchUntrainable as fault:
                self._recorder.counts[UNTRAINABLE] += 1
                logger.warning("a batch was dropped: %s", fault)
            except LearnerFault as fault:
                self.failures += 1
                await self._after_failure(fault, self.failures)

    async def _train(self, batch: Batch) -> None:
        self.doing = f"update {batch.update}: {len(batch.trajectories)} trajectories, {batch.num_turns} turns"
        self._track.enter(TrainerState.TRAINING)
        try:
            result = await self._update(batch)
        except BatchUntrainable:
            self._source.release(batch, drop=Drop.UNTRAINABLE)
            raise
        except BaseException:
            self._source.release(batch)
            raise
        if result.metrics.get(MISMATCH_ALARM):
            self._recorder.counts[MISMATCH_ALARM] += 1
        self._source.trained(batch, result)
        if result.weights.version % self._publish_every:
            return
        if self._before_publication is not None:
            self._track.enter(self._wait_state)
            await self._before_publication()
        self._publisher.publish(result.weights)
        if self._wait_for_sync:
            self._track.enter(TrainerState.WAIT_SYNC)
            await self._publisher.settled(result.weights.version)
        self._source.published(result.weights.version)

    async def _update(self, batch: Batch) -> UpdateResult:
        """Request an update until its outcome is known."""
        while True:
            try:
                return check_update(await self.learner.update(batch), batch.update)
            except BaseException as error:
                if is_own(error):
                    fault = UpdateUncertain(f"update {batch.update} failed: {describe(error)}")
                elif isinstance(error, UpdateUncertain):
                    fault = error
                else:
                    raise
            self.failures += 1
            await self._after_failure(fault, self.failures)
            self._track.enter(TrainerState.TRAINING)

    async def _after_failure(self, fault: LearnerFault, failures: int) -> None:
        self._recorder.counts["fault/update"] += 1
        wait_seconds = backoff_seconds(failures, first_seconds=RETRY_SECONDS, max_seconds=MAX_RETRY_SECONDS)
        logger.warning("update failed (%d in a row), next try in %.0f s: %s", failures, wait_seconds, fault)
        self._track.enter(TrainerState.DOWN)
        await asyncio.sleep(wait_seconds)
