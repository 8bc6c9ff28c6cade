"""``HeldOut``: evaluation of a model in training on held-out tasks, beside the run.

On real desktops, held-out attempts run among those of the run instead (``dartsim.run.held_out_attempts``).
"""

from __future__ import annotations

from collections.abc import Mapping

from dartsim.core.rewards import mean_over_tasks
from dartsim.core.types import Weights
from dartsim.real.evaluate import evaluate
from dartsim.real.vlm import Vlm, VlmPolicy
from dartsim.run.content import desktop_maker
from dartsim.run.prepared_run import PreparedRun


class HeldOut:
    """Evaluates weights on tasks that are never trained on, with its own desktops and model.

    It runs in a thread while another model serves the run. Every version plays the same attempts with the same seeds.
    """

    def __init__(self, prepared: PreparedRun, vlm: Vlm) -> None:
        config = prepared.config
        self._tasks = () if config.backend.boots else prepared.held_out
        self._attempts = config.trainer.evaluation.attempts_per_task
        self._turn_limit = config.rollout.max_turns
        self._vlm = vlm.twin() if self._tasks else vlm
        maker = desktop_maker(config)
        self._desktops = [maker() for _ in range(min(64, len(self._tasks) * self._attempts))]
        self.evaluations: list[Mapping[str, float]] = []
        """The mean reward of each task, in each evaluation."""

    def evaluate(self, weights: Weights) -> float | None:
        """Return the mean reward over tasks; None if there are none."""
        if not self._tasks:
            return None
        policy = VlmPolicy(self._vlm, keep_versions=2)
        policy.add(Weights(1, weights.source))
        means = evaluate(
            policy, self._desktops, self._tasks, version=1, turn_limit=self._turn_limit, attempts=self._attempts
        )
        self.evaluations.append(means)
        return mean_over_tasks(means)
