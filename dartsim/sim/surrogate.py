"""The surrogate policy: outcomes and lengths of attempts are drawn; it sees nothing and learns nothing.

It replaces a model when only the system is studied. An attempt's success and length depend only on its seed and its
task's difficulty (``dartsim.sim.task_difficulties``), never on the weights, so all schedulers face the same attempts.

Alternatively, attempts end like those of a recorded run, the n-th group like the run's n-th group, so outcomes change
over time as the policy did. That tests how well the system is modeled, not what the policy would learn.

Compiled in wheels.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from math import exp, log, log1p, sqrt
from statistics import NormalDist
from typing import NamedTuple, Protocol

from dartsim.config.sections.policy import SurrogateConfig
from dartsim.core.errors import ConfigError
from dartsim.core.types import Attempt, Request
from dartsim.sim.task_difficulties import TaskDifficulty

_INVERSE_NORMAL = NormalDist().inv_cdf
_MASK = 2**64 - 1


class AttemptPlan(NamedTuple):
    """The plan of an attempt: its number of turns, and whether it solves the task."""

    num_turns: int
    success: bool


class SurrogateActions(NamedTuple):
    """The actions of the policy on a desktop: one without effect, the decisive one, the last one."""

    work: str
    solve: str
    done: str


class ReplyPolicy(Protocol):
    """Decides a worker's replies."""

    def act(self, request: Request) -> str: ...


def log_parameters(config: SurrogateConfig, *, success: bool) -> tuple[float, float]:
    """Return mu and sigma of the lognormal distribution of the turns of an attempt at a task with length factor 1.

    The configured standard deviations are over all attempts at all tasks, so the part explained by the tasks' length
    factors is removed.

    Source: docs/schedulers.md; the means are chosen so that the mix has the turns measured in DART's headline run.
    """
    mean, sd = config.turns(success=success)
    variance = log1p((sd / mean) ** 2) - log1p(config.task_length_sd**2)
    return log(mean) - variance / 2.0, sqrt(max(0.0, variance))


NEARBY = 16
"""Number of groups on either side to search for an outcome if the run had no such attempt."""


class RecordedAttempt(NamedTuple):
    """A recorded attempt: its group, its index in the group, its turns, and whether its reward was above 0."""

    group: int
    number: int
    num_turns: int
    success: bool


class RecordedOutcomes:
    """The outcomes of a recorded run's attempts.

    Raises:
        ConfigError: If there are none.
    """

    def __init__(self, recorded: Iterable[RecordedAttempt]) -> None:
        self._in_order = sorted(recorded)
        if not self._in_order:
            raise ConfigError("no attempt was recorded as scored: repeat the run with more --hours")
        self._exact = {(each.group, each.number): each for each in self._in_order}
        self._groups = [each.group for each in self._in_order]

    def of(self, attempt: Attempt) -> RecordedAttempt:
        """Return the outcome of the run's attempt with the same group and index, or else one from a nearby group."""
        exact = self._exact.get((attempt.group, attempt.index))
        if exact is not None:
            return exact
        middle = min(attempt.group, self._groups[-1])
        first = bisect_right(self._groups, middle - NEARBY)
        last = bisect_right(self._groups, middle + NEARBY)
        near = self._in_order[first:last] or self._in_order
        return near[attempt.seed % len(near)]


class SurrogatePolicy:
    """Draws each attempt's plan from its seed, and carries it out turn by turn."""

    def __init__(
        self,
        difficulties: Mapping[str, TaskDifficulty],
        *,
        config: SurrogateConfig,
        actions: SurrogateActions,
        max_plans: int,
        outcomes: RecordedOutcomes | None = None,
    ) -> None:
        self._difficulties = difficulties
        self._success = log_parameters(config, success=True)
        self._failure = log_parameters(config, success=False)
        self._actions = actions
        self._max_plans = max_plans
        self._outcomes = outcomes
        self._plans: dict[int, AttemptPlan] = {}

    def plan(self, attempt: Attempt) -> AttemptPlan:
        """Return the plan of an attempt; always the same."""
        if self._outcomes is not None:
            recorded = self._outcomes.of(attempt)
            return self._within(attempt, recorded.num_turns, success=recorded.success)
        difficulty = self._difficulties[attempt.task.id]
        success = _uniform(attempt.seed, 1) < difficulty.success_rate
        mu, sigma = self._success if success else self._failure
        length = exp(mu + sigma * _INVERSE_NORMAL(_uniform(attempt.seed, 2))) * difficulty.length_factor
        return self._within(attempt, max(1, round(length)), success=success)

    @staticmethod
    def _within(attempt: Attempt, num_turns: int, *, success: bool) -> AttemptPlan:
        if success:
            # The decisive action and the declaration must both fit; in a single turn, only the action.
            num_turns = min(max(2, num_turns), attempt.turn_limit)
        return AttemptPlan(num_turns, success)

    def act(self, request: Request) -> str:
        """Work until the plan's last two turns: solve the task (or work on), then declare it done.

        If attempts have only one turn, a success solves the task in it and declares nothing.
        """
        attempt = request.attempt
        plan = self._plans.get(attempt.id)
        if plan is None:
            plan = self._remember(attempt)
        left = plan.num_turns - request.turn
        if left > 2 or (left == 2 and not plan.success):
            return self._actions.work
        if left == 2 or (plan.success and plan.num_turns == 1):
            return self._actions.solve
        self._plans.pop(attempt.id, None)
        return self._actions.done

    def _remember(self, attempt: Attempt) -> AttemptPlan:
        plans = self._plans
        if len(plans) >= self._max_plans:
            del plans[next(iter(plans))]
        plan = plans[attempt.id] = self.plan(attempt)
        return plan


def _uniform(seed: int, number: int) -> float:
    """Return the ``number``-th uniform draw of a seed, in (0, 1): SplitMix64's finalizer.

    A generator object would cost ten times as much, once per attempt.
    """
    z = (seed + number * 0x9E3779B97F4A7C15) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return ((z ^ (z >> 31)) >> 11) * 2.0**-53 + 2.0**-54
