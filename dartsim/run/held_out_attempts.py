"""``HeldOutAttempts``: evaluation in a run on real desktops, among the attempts that it trains on.

    every few updates: new weights are being loaded --> free slots attempt the held-out tasks first
    all of these ended --> the success rate is a metric of the next update, which may end the run (run.target_success)

An attempt takes minutes there, so nothing waits for it. The weights may change in the meantime: ``held_out/version``
and ``held_out/newest_version`` are the range of versions measured. `dartsim eval` measures one version, by the same
attempts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace

from dartsim.config import Config
from dartsim.core.ports import AttemptSource, Learner
from dartsim.core.rewards import mean_over_tasks, task_means
from dartsim.core.types import Attempt, Batch, Task, Trajectory, UpdateResult, Version
from dartsim.observe.records import HELD_OUT
from dartsim.run.evaluation_results import EvaluationPlan
from dartsim.run.prepared_run import PreparedRun

FIRST_ID = 10**12
"""First id of these attempts; those of a run are smaller."""


def held_out_attempts(prepared: PreparedRun, learner: Learner) -> HeldOutAttempts | None:
    """Return the configured evaluation of real desktops, or of modeled ones in their place; None if there is none.

    A model on mock desktops is evaluated beside the run instead (``dartsim.run.model.HeldOut``).
    """
    config = prepared.config
    every_updates = config.trainer.evaluation.every_updates
    among = config.backend.boots or config.policy.kind == "surrogate"
    if not among or not prepared.held_out or every_updates is None:
        return None
    return HeldOutAttempts(config, prepared.held_out, learner, every_updates=every_updates)


class HeldOutAttempts:
    """A source that puts held-out attempts before those of ``source``, and a learner that reports their results.

    Invariant: an attempt at a held-out task never reaches ``source``, so nothing trains on it.
    """

    def __init__(self, config: Config, tasks: Sequence[Task], learner: Learner, *, every_updates: int) -> None:
        self.source: AttemptSource | None = None
        self._every_updates = every_updates
        self._plan = EvaluationPlan(
            tasks=tasks, steps=(config.rollout.max_turns,), attempts=config.trainer.evaluation.attempts_per_task
        )
        self._learner = learner
        self._waiting: deque[Attempt] = deque()
        self._running: set[int] = set()
        self._ended: list[Trajectory] = []
        self._metrics: dict[str, float] = {}
        """Of an evaluation that ended, until an update succeeds."""
        self._number = 0
        self._begun: Version | None = None
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
        self._measure()
        self._begin_if_due(batch.update - 1)
        result = await self._learner.update(batch)
        self._measure()
        metrics, self._metrics = self._metrics, {}
        return replace(result, metrics={**result.metrics, **metrics})

    def _begin_if_due(self, version: Version) -> None:
        if version % self._every_updates or version == self._begun or self._waiting or self._running:
            return
        self._begun = version
        for key, task, seed in self._plan.planned():
            id = FIRST_ID + self._number
            self._waiting.append(Attempt(id, task, -1, key.attempt - 1, seed, key.steps, version))
            self._number += 1

    def _measure(self) -> None:
        """Compute the metrics of an evaluation that has ended."""
        if self._waiting or self._running or not self._ended:
            return
        ended, self._ended = self._ended, []
        mean = mean_over_tasks(task_means((each.attempt.task.id, each.reward) for each in ended))
        self._metrics = {"held_out/masked": float(sum(trajectory.masked for trajectory in ended))}
        if mean is not None:
            self._metrics[HELD_OUT] = mean
            self._metrics["held_out/version"] = float(min(trajectory.oldest_version for trajectory in ended))
            self._metrics["held_out/newest_version"] = float(max(trajectory.newest_version for trajectory in ended))
