"""Drawn outcomes: the surrogate policy."""

from __future__ import annotations

from typing import Any

from dartsim.core.registry import register
from dartsim.run.policies import Policy


@register("policy", "drawn")
class DrawnOutcomes(Policy):
    """Draws outcomes and lengths of attempts from the distributions of ``surrogate``; it ignores observations."""

    def __init__(self, parameters: Any, *, prepared: Any, rng: Any) -> None:
        super().__init__(parameters, prepared=prepared, rng=rng)
        # Imported here, because this module is loaded whenever a configuration is read.
        from dartsim.envs.base import DONE
        from dartsim.envs.simulated import SOLVE_ACTION, WORK_ACTION
        from dartsim.sim.surrogate import SurrogateActions, SurrogatePolicy

        config = prepared.config
        surrogate = SurrogatePolicy(
            prepared.difficulties,
            config=config.surrogate,
            actions=SurrogateActions(WORK_ACTION, SOLVE_ACTION, DONE),
            max_plans=2 * config.rollout.num_envs,
            outcomes=prepared.outcomes,
        )
        self.act = surrogate.act  # type: ignore[method-assign]
