"""The surrogate policy: outcomes and lengths of attempts are drawn; it sees nothing and learns nothing.

It replaces a model where only the system is studied. Whether an attempt succeeds and how many turns it takes depend
only on the attempt's seed and its task's difficulty, never on the weights, so that all schedulers meet the same
attempts.

Alternatively, attempts end as those of a recorded run did: those of the n-th group as those of the run's n-th group,
changing over time as the policy did. That tests how well the system is modeled, not what its policy would learn.

Success rates of tasks follow what was measured: DART's difficulty deciles for generated tasks, the published results by
domain for OSWorld's. Attempts at one task are alike in length (a factor per task), which no result reports.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import exp, log, log1p, sqrt
from statistics import NormalDist
from types import MappingProxyType
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from dartsim.config.sections.policy import SurrogateConfig
from dartsim.core.errors import ConfigError
from dartsim.core.types import Attempt, Request, Task

_INVERSE_NORMAL = NormalDist().inv_cdf
_MASK = 2**64 - 1


DECILES = (33, 15, 13, 8, 6, 10, 11, 17, 15, 53)
"""Tasks of DART's 181-task run by success rate 0-0.1, …, 0.9-1 (its released run data, measured)."""
NEVER_SOLVED = 17
"""Tasks of the first decile at exactly 0 in that run."""
ALWAYS_SOLVED = 21
"""Tasks of the last decile at exactly 1 in that run."""
MEAN_SUCCESS = 0.559
"""Mean success rate of these tasks."""

DOMAINS = (
    "chrome",
    "gimp",
    "libreoffice_calc",
    "libreoffice_impress",
    "libreoffice_writer",
    "multi_apps",
    "os",
    "thunderbird",
    "vlc",
    "vs_code",
)
"""OSWorld's domains, in the order of the rows below."""

PUBLISHED: Mapping[str, tuple[float, ...]] = MappingProxyType(
    {
        "DART-GUI-7B": (52.09, 76.92, 19.15, 48.80, 60.86, 16.69, 62.50, 60.00, 39.30, 69.57),
        "UI-TARS-1.5-7B": (38.34, 51.92, 9.57, 38.21, 39.13, 8.94, 31.25, 40.00, 22.44, 47.83),
    }
)
"""OSWorld-Verified success rates by domain, per cent, at most 30 and 100 turns (DART's project page)."""

CONCENTRATION = 0.8
"""Of the Beta inside a domain: the one that has mean and variance (.560, .137) of the measured deciles."""

Rates = NDArray[np.float64]

LENGTH_SD = 0.35
"""Standard deviation of a task's length factor, mean 1: assumed, range 0.2-0.5 (no figure is published)."""


@dataclass(frozen=True, slots=True)
class TaskDifficulty:
    """What the surrogate policy knows about a task.

    Attributes:
        success_rate: Chance that an attempt solves it, in [0, 1].
        length_factor: Its attempts are this much longer than the average task's, > 0.
    """

    success_rate: float
    length_factor: float = 1.0


def deciles(num_tasks: int, rng: np.random.Generator, mean: float | None = None) -> list[float]:
    """Return success rates with the measured distribution, in random order.

    The rates are the quantiles at (i + 1/2) / ``num_tasks`` of the measured deciles (uniform inside a decile,
    with the measured shares at exactly 0 and 1), so that only the order is left to chance. Their mean: .560.

    Raises:
        ConfigError: If that mean cannot be reached without touching tasks at 0 or 1.
    """
    if num_tasks < 1:
        raise ConfigError(f"num_tasks must be at least 1, got {num_tasks}")
    first, last = DECILES[0] - NEVER_SOLVED, DECILES[-1] - ALWAYS_SOLVED
    counts = [NEVER_SOLVED, first, *DECILES[1:-1], last, ALWAYS_SOLVED]
    edges = [0.0, 0.0, *(i / 10 for i in range(1, 11)), 1.0]
    shares = np.concatenate([[0], np.cumsum(counts)]) / sum(counts)
    rates = np.interp((np.arange(num_tasks) + 0.5) / num_tasks, shares, edges)
    if mean is not None:
        rates = _with_mean(rates, mean)
    rng.shuffle(rates)
    return [float(rate) for rate in rates]


def by_domain(
    tasks: Sequence[Task],
    rng: np.random.Generator,
    results: str = "DART-GUI-7B",
) -> list[float]:
    """Return success rates of OSWorld tasks whose mean in each domain is the published one.

    Inside a domain the rates are drawn from a Beta of the published mean and a small
    ``CONCENTRATION`` (most tasks are nearly always or nearly never solved), then the odds of all are multiplied by one
    number that makes their mean exact. They do not depend on the order of ``tasks``.

    Raises:
        ConfigError: If the results or a task's domain are unknown.
    """
    if results not in PUBLISHED:
        raise ConfigError(f"published results {results!r} are unknown; known: {', '.join(PUBLISHED)}")
    means = dict(zip(DOMAINS, PUBLISHED[results], strict=True))
    rates: dict[str, float] = {}
    for domain in sorted({task.domain for task in tasks}):
        if domain not in means:
            raise ConfigError(f"no published result for domain {domain!r}; known: {', '.join(DOMAINS)}")
        mean = means[domain] / 100
        ids = sorted(task.id for task in tasks if task.domain == domain)
        drawn = rng.beta(mean * CONCENTRATION, (1 - mean) * CONCENTRATION, len(ids))
        rates.update(zip(ids, _with_mean(np.clip(drawn, 1e-6, 1 - 1e-6), mean).tolist(), strict=True))
    return [rates[task.id] for task in tasks]


def difficulties(
    tasks: Sequence[Task],
    rng: np.random.Generator,
    *,
    source: str = "deciles",
    mean: float | None = None,
    length_sd: float = LENGTH_SD,
) -> dict[str, TaskDifficulty]:
    """Return every task's difficulty by its id.

    Args:
        tasks: With unique ids.
        rng: Its chance.
        source: ``deciles``, or the model in ``PUBLISHED`` whose results by domain to take.
        mean: With ``deciles``, the mean success rate wanted.
        length_sd: Standard deviation of the length factors, which are lognormal with mean 1.

    Raises:
        ConfigError: If these do not go together.
    """
    if mean is not None and source != "deciles":
        raise ConfigError(f"a mean success rate goes with source 'deciles' only, found {source!r}")
    rate_rng, length_rng = rng.spawn(2)
    rates = deciles(len(tasks), rate_rng, mean) if source == "deciles" else by_domain(tasks, rate_rng, source)
    sigma = sqrt(log1p(length_sd**2))
    factors = length_rng.lognormal(-(sigma**2) / 2, sigma, len(tasks)).tolist()
    return {task.id: TaskDifficulty(*pair) for task, *pair in zip(tasks, rates, factors, strict=True)}


def _with_mean(rates: Rates, mean: float) -> Rates:
    """Multiply the odds of all rates by one number so that their mean is ``mean``; 0 and 1 stay."""
    lowest, highest = float((rates == 1).mean()), float((rates > 0).mean())
    if not lowest <= mean <= highest or (mean in (lowest, highest) and rates.mean() != mean):
        raise ConfigError(
            f"a mean success rate of {mean} cannot be reached: {lowest:.3g} of the tasks are always and "
            f"{1 - highest:.3g} never solved, so it lies between {lowest:.3g} and {highest:.3g}"
        )
    low, high = -60.0, 60.0  # logarithm of the factor on the odds
    for _ in range(100):
        middle = (low + high) / 2
        if _shifted(rates, middle).mean() < mean:
            low = middle
        else:
            high = middle
    return _shifted(rates, (low + high) / 2)


def _shifted(rates: Rates, log_factor: float) -> Rates:
    factor = exp(log_factor)
    return rates * factor / (1 - rates + rates * factor)


class AttemptPlan(NamedTuple):
    """The plan of an attempt: how many turns it takes, and whether it solves the task."""

    num_turns: int
    success: bool


class SurrogateActions(NamedTuple):
    """The actions it uses on a desktop: one without effect, the decisive one, the last one."""

    work: str
    solve: str
    done: str


class ReplyPolicy(Protocol):
    """Decides a worker's replies."""

    def act(self, request: Request) -> str: ...


def log_parameters(config: SurrogateConfig, *, success: bool) -> tuple[float, float]:
    """Return mu and sigma of the lognormal that the turns of an attempt at a task of length factor 1 are drawn from.

    The configured standard deviations are over all attempts at all tasks; the part that the tasks' length factors
    explain is taken out of what one attempt draws.

    Source: docs/schedulers.md; the means are chosen so that the mix has the turns measured in DART's headline run.
    """
    mean, sd = config.turns(success=success)
    variance = log1p((sd / mean) ** 2) - log1p(config.task_length_sd**2)
    return log(mean) - variance / 2.0, sqrt(max(0.0, variance))


NEARBY = 16
"""Groups on either side in which to look for an outcome if the run had no such attempt."""


class RecordedAttempt(NamedTuple):
    """How an attempt ended: its group, its number in the group, turns, and whether its reward was above 0."""

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
        """Return the outcome of the run's attempt of the same group and number, else one of a group nearby."""
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
            # The decisive action and the declaration both have to fit; in a single turn, only the action.
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
    """Return the ``number``-th uniform draw of a seed, in (0, 1): SplitMix64's finalizer.

    A generator object would cost ten times as much, once an attempt.
    """
    z = (seed + number * 0x9E3779B97F4A7C15) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return ((z ^ (z >> 31)) >> 11) * 2.0**-53 + 2.0**-54
