"""The surrogate policy: outcomes and lengths of attempts are drawn, nothing is seen and nothing is learned.

It stands in for a model where only the system is studied. Whether an attempt succeeds and how many turns it
takes depend on the attempt's seed and its task's difficulty alone, never on the weights, so that two
schedulers meet the same attempts.

Or attempts end as those of a recorded run did. That tests how well the run's system is modelled, not what its policy
would learn another time: the attempts of the n-th group end as those of the run's n-th group, and change over time as
the policy did.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import exp, log, log1p, sqrt
from statistics import NormalDist
from typing import NamedTuple, Protocol

from dartsim.core.errors import ConfigError
from dartsim.core.types import Attempt, Request
from dartsim.sim.difficulty import TaskDifficulty

_INVERSE_NORMAL = NormalDist().inv_cdf
_MASK = 2**64 - 1


class AttemptPlan(NamedTuple):
    """What the surrogate will do in an attempt: how many turns, and whether it solves the task."""

    num_turns: int
    success: bool


class SurrogateActions(NamedTuple):
    """The actions of a desktop that it uses: one without effect, the decisive one, the last one."""

    work: str
    solve: str
    done: str


class ReplyPolicy(Protocol):
    """What decides a worker's replies, apart from the time they take."""

    def act(self, request: Request) -> str:
        """Return the action of a reply."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptLengths:
    """Turns of an attempt: lognormal about its task's mean, which differs for success and failure.

    The standard deviations are over all attempts at all tasks; the part that the tasks' length factors
    explain is taken out of what one attempt draws.

    Source: docs/cluster-model.md; the means are chosen so that the mix has the turns measured in DART's
    headline run.

    Attributes:
        success_mean: Turns.
        success_sd: Turns.
        failure_mean: Turns, before the turn limit.
        failure_sd: Turns, before the turn limit.
        task_sd: Standard deviation of the tasks' length factors, whose mean is 1.
    """

    success_mean: float = 11.3
    success_sd: float = 6.0
    failure_mean: float = 19.3
    failure_sd: float = 9.0
    task_sd: float = 0.35

    def __post_init__(self) -> None:
        for mean, sd in ((self.success_mean, self.success_sd), (self.failure_mean, self.failure_sd)):
            if sd / mean < self.task_sd:
                raise ConfigError(
                    f"attempts of sd {sd:g} about a mean of {mean:g} turns vary less than their tasks alone, "
                    f"whose length factors have sd {self.task_sd:g}; raise the sd, or lower "
                    "surrogate.task_length_sd"
                )

    def log_parameters(self, *, success: bool) -> tuple[float, float]:
        """Return mu and sigma of the lognormal that an attempt at a task of factor 1 draws from."""
        mean, sd = (self.success_mean, self.success_sd) if success else (self.failure_mean, self.failure_sd)
        variance = log1p((sd / mean) ** 2) - log1p(self.task_sd**2)
        return log(mean) - variance / 2.0, sqrt(max(0.0, variance))


NEARBY = 16
"""Groups among which one looks for an attempt that the run did not have."""


class RecordedAttempt(NamedTuple):
    """How an attempt ended: number of its group, its number in that, turns, and whether it had a reward above 0."""

    group: int
    number: int
    num_turns: int
    success: bool


class RecordedOutcomes:
    """What attempts of a run came to.

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
        """Return the outcome of the run's attempt of the same group and number, else one of a group nearby."""
        found = self._exact.get((attempt.group, attempt.index))
        if found is not None:
            return found
        middle = min(attempt.group, self._groups[-1])
        first = bisect_right(self._groups, middle - NEARBY)
        last = bisect_right(self._groups, middle + NEARBY)
        near = self._in_order[first:last] or self._in_order
        return near[attempt.seed % len(near)]


class SurrogatePolicy:
    """Draws each attempt's plan from its seed, and carries it out turn by turn.

    Args:
        difficulties: Each task's difficulty, by id.
        lengths: How many turns attempts take.
        actions: How it acts.
        max_plans: Plans remembered; one that was forgotten is drawn again, to the same result.
        outcomes: What attempts of a run came to, in place of what would be drawn.
    """

    def __init__(
        self,
        difficulties: Mapping[str, TaskDifficulty],
        *,
        lengths: AttemptLengths,
        actions: SurrogateActions,
        max_plans: int,
        outcomes: RecordedOutcomes | None = None,
    ) -> None:
        self._difficulties = difficulties
        self._success = lengths.log_parameters(success=True)
        self._failure = lengths.log_parameters(success=False)
        self._actions = actions
        self._max_plans = max_plans
        self._outcomes = outcomes
        self._plans: dict[int, AttemptPlan] = {}

    def plan(self, attempt: Attempt) -> AttemptPlan:
        """Return what happens in an attempt; the same whenever it is asked."""
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
            # The decisive action and the declaration both have to fit; of one turn alone, the action.
            num_turns = min(max(2, num_turns), attempt.turn_limit)
        return AttemptPlan(num_turns, success)

    def act(self, request: Request) -> str:
        """Work until the plan's last two turns: solve the task (or work on), then declare it done.

        Where attempts have one turn only, a success solves the task with it and declares nothing.
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
    """Return the ``number``-th uniform draw of a seed, in (0, 1): SplitMix64's finaliser.

    A generator object would cost ten times as much, once an attempt.
    """
    z = (seed + number * 0x9E3779B97F4A7C15) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return ((z ^ (z >> 31)) >> 11) * 2.0**-53 + 2.0**-54
