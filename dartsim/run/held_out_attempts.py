"""``HeldOutAttempts``: evaluation in a run on real desktops, among the attempts that it trains on.

    every few updates: new weights are being loaded --> free slots attempt the held-out tasks first
    all of these ended --> the success rate is a metric of the next update, which may end the run (run.target_success)

An attempt takes minutes there, so nothing waits for it. The weights may change in the meantime: ``held_out/version``
and ``held_out/newest_version`` are the range of versions measured. `dartsim eval` measures a single version.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace

from dartsim.config import Config
from dartsim.core.ports import AttemptSource, Learner
from dartsim.core.rewards import mean_over_tasks, task_means
from dartsim.core.types import Attempt, Batch, Task, Trajectory, UpdateResult
from dartsim.observe.records import HELD_OUT
from dartsim.run.prepared_run import PreparedRun

FIRST_ID = 10**12
"""First id of these attempts; those of a run are smaller."""


def held_out_attempts(prepared: PreparedRun, learner: Learner) -> HeldOutAttempts | None:
    """Return the configured evaluation of real desktops, or of modeled ones in their place; None if there is none.

    A model on mock desktops is evaluated beside the run instead (``dartsim.run.model.HeldOut``).
    """
    config = prepared.config
    among = config.backend.boots or config.policy.kind == "surrogate"
    if not among or not prepared.held_out or config.trainer.evaluation.every_updates is None:
        return None
    return HeldOutAttempts(config, prepared.held_out, learner)


class HeldOutAttempts:
    """A source that puts held-out attempts before those of ``source``, and a learner that reports their results.

    Invariant: an attempt at a held-out task never reaches ``source``, so nothing trains on it.
    """

    def __init__(self, config: Config, tasks: Sequence[Task], learner: Learner) -> None:
        self.source: AttemptSource | None = None
        self._every = config.trainer.evaluation.every_updates
        self._attempts = config.trainer.evaluation.attempts_per_task
        self._turn_limit = config.rollout.max_turns
        self._tasks = tasks
        self._learner = learner
        self._waiting: deque[Attempt] = deque()
        self._running: set[int] = set()
        self._ended: list[Trajectory] = []
        self._number = 0
        self._closed = False

    async def admit(self, slot: int) -> Attempt | None:
        assert self.source is not None, "set before the rollout begins"
        if self._waiting and not self._closed:
            attempt = self._waiting.popleft()
            self._running.add(attempt.id)
            return attempt
        return await self.source.admit(slot)

    def finish(self, trajectory: Trajectory) -> None:
        assert self.source is not None
        if trajectory.attempt.id in self._running:
            self._running.remove(trajectory.attempt.id)
            self._ended.append(trajectory)
        else:
            self.source.finish(trajectory)

    def close(self) -> None:
        """Begin no more attempts, because the run ends."""
        self._closed = True

    async def update(self, batch: Batch) -> UpdateResult:
        """Train; begin an evaluation of the previous weights when one is due, and report one that has ended."""
        ended = self._report()
        before = batch.update - 1
        if self._every is not None and before % self._every == 0 and not self._waiting and not self._running:
            self._begin(before)
        result = await self._learner.update(batch)
        return replace(result, metrics={**result.metrics, **ended, **self._report()})

    def _begin(self, version: int) -> None:
        self._ended.clear()
        for index in range(self._attempts):
            for number, task in enumerate(self._tasks):
                seed = number * self._attempts + index
                self._waiting.append(Attempt(FIRST_ID + self._number, task, -1, index, seed, self._turn_limit, version))
                self._number += 1

    def _report(self) -> dict[str, float]:
        """Return the metrics of an evaluation that ended, once."""
        if self._waiting or self._running or not self._ended:
            return {}
        ended, self._ended = self._ended, []
        mean = mean_over_tasks(task_means((each.attempt.task.id, each.reward) for each in ended))
        metrics = {"held_out/masked": float(sum(trajectory.masked for trajectory in ended))}
        if mean is not None:
            metrics[HELD_OUT] = mean
            metrics["held_out/version"] = float(min(trajectory.oldest_version for trajectory in ended))
            metrics["held_out/newest_version"] = float(max(trajectory.newest_version for trajectory in ended))
        return metrics
