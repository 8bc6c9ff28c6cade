"""``Job``: the simulations of one trial of a study, with their figures and costs.

It is stopped once it is worse than the best finished trial, by a sequential test of ``dartsim.lab.gate``: the same
seeds, and the same periods of simulated time.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, Literal

import numpy as np
from typing_extensions import override

from dartsim.config import Config
from dartsim.core.errors import ConfigError, DartsimError, no_such
from dartsim.core.plugin_errors import plugin_errors
from dartsim.lab.bounds import bounds
from dartsim.lab.comparison import FIGURES, comparison_figures, over_seeds
from dartsim.lab.gate import is_worse
from dartsim.lab.sweep import Executor, Report, Results, result_key
from dartsim.lab.virtual import with_settings
from dartsim.observe import Instrument, Recorder
from dartsim.observe.figures import figures
from dartsim.observe.records import Snapshot
from dartsim.run.execute import run_summary
from dartsim.run.prepare import prepare
from dartsim.run.run_prepared import run_prepared

PERIODS = 20
"""Periods of a run, after its warm-up, by which trials are compared; their rates are nearly independent."""
TRAINED = ("steady_turns_per_minute", "trained_turns_per_minute", "cost_per_1000_turns")
"""Figures that follow from the rate of trained turns."""

COSTS = ("cost_per_hour", "cost_per_1000_turns")
LESS = (*COSTS, "staleness_mean", "staleness_max", "wasted_share", "minutes_per_version", "hours_to_updates")
"""Figures of which less is better."""
UNCOMPARED = frozenset(
    (
        *("staleness_max", "minutes_per_version", "hours_to_updates", "bound_trained_turns_per_minute"),
        *("desktop_hours_per_1000_turns", "gpu_hours_per_1000_turns"),
    )
)
"""Figures whose value is not a mean over periods: as objectives, they stop no trial."""

Figures = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices per hour of a GPU and of a desktop host, in any currency; by default cost is in GPU hours."""

    gpu_hour: float = 1.0
    host_hour: float = 0.0

    def per_hour(self, config: Config) -> float:
        num_gpus = config.rollout.num_workers + config.cluster.learner.gpus
        return self.gpu_hour * num_gpus + self.host_hour * config.cluster.hosts.count

    def figures(self, config: Config, turns_per_minute: float | None) -> Figures:
        """Return the cost per hour, and per 1,000 trained turns; None where none was trained."""
        cost = self.per_hour(config)
        return {
            "cost_per_hour": cost,
            "cost_per_1000_turns": 1000.0 * cost / (60.0 * turns_per_minute) if turns_per_minute else None,
        }


@dataclass(frozen=True, slots=True)
class StudyObjective:
    """A figure, and its sign: 1 if more is better, -1 if less is."""

    figure: str
    sign: int

    @property
    def direction(self) -> Literal["maximize", "minimize"]:
        """The word that Optuna uses."""
        return "maximize" if self.sign > 0 else "minimize"

    @property
    def label(self) -> str:
        return self.figure.replace("_", " ")


def read_objective(text: str) -> StudyObjective:
    """Parse an objective: a figure's name, optionally followed by ``:max`` or ``:min``.

    Raises:
        ConfigError: If the figure is unknown; names the nearest one.
    """
    name, _, direction = text.partition(":")
    known = (*FIGURES, "steady_turns_per_minute", *COSTS)
    if name not in known:
        raise no_such("figure", name, known)
    if direction not in ("", "max", "min"):
        raise ConfigError(f"an objective is written FIGURE, FIGURE:max or FIGURE:min, got {text!r}")
    more = name not in LESS if not direction else direction == "max"
    return StudyObjective(name, 1 if more else -1)


@dataclass(frozen=True, kw_only=True)
class Job:
    """The simulations of a trial. Picklable.

    Attributes:
        name: Its name in a progress bar.
        config: The configuration.
        seeds: One simulation for each.
        prices: Prices of the machines.
        objective: The figure that is compared.
        best: Values of the best finished trial, as ``Outcome.seen``; None: it is not compared.
        error: Largest probability of stopping it although it is not worse.
    """

    name: str
    config: Config
    seeds: Sequence[int]
    prices: Prices
    objective: StudyObjective
    best: Mapping[int, float] | None = None
    error: float = 0.0

    @property
    def key(self) -> str:
        """What its outcome depends on; trials that it is compared with only decide whether it has one."""
        return result_key(self.config, [*self.seeds], self.prices, self.objective if self.best is not None else None)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The figures of a job by seed; none if it was stopped.

    ``seen`` has the objective in each period, by number, those of the first seed first. More is better: it is negated
    if less is, and costs are turns per cost.
    """

    by_seed: Sequence[Figures] = ()
    seen: Mapping[int, float]

    @property
    def figures(self) -> Figures:
        """Means over seeds; the maximum of ``staleness_max``; the first seed's value of figures without a mean."""
        numbers = [name for name, value in self.by_seed[0].items() if isinstance(value, int | float)]
        means = {name: mean["mean"] for name, mean in over_seeds(self.by_seed, numbers).items()}
        failure = next((row["failure"] for row in self.by_seed if row["failure"]), None)
        return {**self.by_seed[0], **means, "failure": failure}


class RememberedJobs:
    """An executor that takes outcomes of jobs from earlier studies; a job that was stopped early is run again."""

    def __init__(self, inner: Executor, results: Results) -> None:
        self._inner, self._results = inner, results

    def run(
        self,
        function: Callable[[Any, Report], Any],
        items: Sequence[Any],
        on_progress: Callable[[int, float], None] | None = None,
    ) -> Iterator[tuple[int, Any]]:
        keys, left = [job.key for job in items], []
        for number, key in enumerate(keys):
            if (found := self._results.get(key)) is None:
                left.append(number)
            else:
                yield number, Outcome(by_seed=found["by_seed"], seen={int(x): y for x, y in found["seen"].items()})

        def moved(place: int, share: float) -> None:
            if on_progress is not None:
                on_progress(left[place], share)

        for place, outcome in self._inner.run(function, [items[number] for number in left], moved):
            if outcome.by_seed:
                self._results.add(keys[left[place]], {"by_seed": outcome.by_seed, "seen": outcome.seen})
            yield left[place], outcome


def run_job(job: Job, report: Report | None = None) -> Outcome:
    """Simulate a job; ``report`` receives the share of its seeds that are done.

    Raises:
        DartsimError: If a simulation failed; names the job.
    """
    early = EarlyStop(job)
    watched = [] if job.best is None or job.objective.figure in UNCOMPARED else [early]
    by_seed = []
    try:
        for number, seed in enumerate(job.seeds):
            with plugin_errors():
                by_seed.append(simulate_figures(with_settings(job.config, {"run.seed": seed}), job.prices, watched))
            if report is not None:
                report((number + 1) / len(job.seeds))
    except TrialStopped:
        return Outcome(seen=early.seen)
    except DartsimError as error:
        raise DartsimError(f"{job.name}: {type(error).__name__}: {error}") from None
    return Outcome(by_seed=by_seed, seen=early.seen)


def simulate_figures(config: Config, prices: Prices, instruments: Sequence[Instrument] = ()) -> Figures:
    """Simulate a configuration once, and return its figures with cost and verdict."""
    prepared = prepare(config)
    summary = run_summary(prepared, run_prepared(prepared, instruments=instruments), bounds)
    return {**_with_cost(config, prices, summary), "verdict": summary["verdict"]}


def _with_cost(config: Config, prices: Prices, summary: Mapping[str, Any]) -> Figures:
    steady = None if summary.get("failure") else summary["steady_turns_per_minute"]
    cost = prices.figures(config, steady or summary["trained_turns_per_minute"])
    return {**comparison_figures(summary), "steady_turns_per_minute": steady, **cost}


class TrialStopped(Exception):
    """Ends a run whose trial is worse than the best one."""


class EarlyStop(Instrument):
    """Compares each period of a job's runs with the best finished trial's."""

    period_seconds = 30.0

    def __init__(self, job: Job) -> None:
        self._job = job
        self._best = job.best or {}
        self._differences: list[float] = []
        self._runs = 0
        self._period = -1
        self._recorder: Recorder | None = None
        self._last: Snapshot | None = None
        self.seen: dict[int, float] = {}

    @override
    def run_started(self, recorder: Recorder) -> None:
        self._recorder, self._last, self._period = recorder, None, -1
        self._runs += 1

    @override
    def time_advanced(self, now: float) -> None:
        run, recorder = self._job.config.run, self._recorder
        assert recorder is not None, "a run starts before its time advances"
        start = 3600.0 * run.hours * run.warmup_share
        length = (3600.0 * run.hours - start) / PERIODS
        period, before = int((now - start) // length), self._period
        if period == before or now < start:
            return
        self._period, first = period, PERIODS * (self._runs - 1)
        if self._job.objective.figure in TRAINED:
            rates = _trained_per_minute(recorder, [start + number * length for number in range(period + 1)])
            for number, rate in rates.items():
                self.compare(first + number, self._value({"trained_turns_per_minute": rate}))
            return
        last, self._last = self._last, recorder.measure()
        if last is not None:
            self.compare(first + before, self._value(figures(last, self._last)))

    def compare(self, period: int, value: float | None) -> None:
        """Note the value of a period.

        Raises:
            TrialStopped: If the trial is worse than the best one.
        """
        if value is None or period in self.seen:
            return
        self.seen[period] = value
        if period in self._best:
            self._differences.append(value - self._best[period])
            if is_worse(self._differences, PERIODS * len(self._job.seeds), self._job.error):
                raise TrialStopped

    def _value(self, found: Figures) -> float | None:
        config, figure, sign = self._job.config, self._job.objective.figure, self._job.objective.sign
        cost, rate = self._job.prices.per_hour(config), found["trained_turns_per_minute"]
        if figure == "cost_per_1000_turns":
            return -sign * rate / cost if cost else None
        if figure in TRAINED:
            return float(sign * rate)
        known = comparison_figures({**found, "config": {"rollout": config.rollout.model_dump()}})
        value = {**known, "cost_per_hour": cost}[figure]
        return None if value is None else float(sign * value)


def _trained_per_minute(recorder: Recorder, bounds: Sequence[float]) -> dict[int, float]:
    """Return the trained turns per minute of each period in which an update ended, and after which one did.

    An update's turns are spread over the time since the update before it, so no period has a part of them by chance.

    Args:
        recorder: Has the updates.
        bounds: Beginning of each period, then the end of the last, seconds.
    """
    times = [update.time for update in recorder.updates]
    totals = list(accumulate(update.num_turns for update in recorder.updates))
    found = {}
    for number, (begin, end) in enumerate(pairwise(bounds)):
        inside = bisect_right(times, end) > bisect_right(times, begin)
        if inside and times[0] <= begin and end <= times[-1]:
            low, high = np.interp([begin, end], times, totals)
            found[number] = 60.0 * float(high - low) / (end - begin)
    return found
