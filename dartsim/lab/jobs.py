"""``Job``: the simulations of one trial of a study, with their figures and costs.

Optuna's median pruner may stop them early.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import optuna
from optuna.trial import FrozenTrial
from typing_extensions import override

from dartsim.config import Config
from dartsim.core.errors import ConfigError, DartsimError, no_such
from dartsim.core.plugin_errors import plugin_errors
from dartsim.lab.bounds import bounds
from dartsim.lab.comparison import FIGURES, comparison_figures, over_seeds
from dartsim.lab.sweep import Executor, Report, Results, result_key
from dartsim.lab.virtual import with_settings
from dartsim.observe import Instrument, Recorder
from dartsim.observe.figures import after_warmup, figures, steady_turns_per_minute
from dartsim.run.execute import run_summary
from dartsim.run.prepare import prepare
from dartsim.run.run_prepared import run_prepared

FEWEST = 8
"""Finished trials required before any is stopped early, or importances are estimated."""
LOOKS = 10
"""Number of times during a run at which it may be stopped early."""

COSTS = ("cost_per_hour", "cost_per_1000_turns")
LESS = (*COSTS, "staleness_mean", "staleness_max", "wasted_share", "minutes_per_version", "hours_to_updates")
"""Figures of which less is better."""

Figures = dict[str, Any]

optuna.logging.set_verbosity(optuna.logging.WARNING)


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
        objective: The figure that the pruner compares.
        earlier: The trials that it compares with; None: no pruning.
    """

    name: str
    config: Config
    seeds: Sequence[int]
    prices: Prices
    objective: StudyObjective
    earlier: Sequence[FrozenTrial] | None = None

    @property
    def key(self) -> str:
        """What its outcome depends on; trials that it is compared with only decide whether it has one."""
        return result_key(self.config, [*self.seeds], self.prices, self.objective if self.earlier is not None else None)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The figures of a job by seed, and the pruner's intermediate values by step; no figures if it stopped the job."""

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
    by_seed = []
    try:
        for number, seed in enumerate(job.seeds):
            with plugin_errors():
                watched = [early] if number == 0 and job.earlier is not None else []
                by_seed.append(simulate_figures(with_settings(job.config, {"run.seed": seed}), job.prices, watched))
            if report is not None:
                report((number + 1) / len(job.seeds))
    except optuna.TrialPruned:
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


class EarlyStop(Instrument):
    """Asks Optuna's median pruner after every tenth of a run whether to stop it."""

    period_seconds = 30.0

    def __init__(self, job: Job) -> None:
        self._job = job
        self._recorder: Recorder | None = None
        self._next = 1
        self.seen: dict[int, float] = {}

    @override
    def run_started(self, recorder: Recorder) -> None:
        self._recorder = recorder
        study = optuna.create_study(
            direction=self._job.objective.direction, pruner=optuna.pruners.MedianPruner(n_startup_trials=FEWEST)
        )
        study.add_trials(self._job.earlier or ())
        self._trial = study.ask()

    @override
    def time_advanced(self, now: float) -> None:
        if now < self._next * self._job.config.run.hours * 3600.0 / LOOKS:
            return
        value, step, self._next = self._value(), self._next, self._next + 1
        if value is not None:  # something was trained
            self.seen[step] = value
            self._trial.report(value, step)
            if self._trial.should_prune():
                raise optuna.TrialPruned

    def _value(self) -> float | None:
        recorder, config = self._recorder, self._job.config
        assert recorder is not None, "a run starts before its time advances"
        last = recorder.measure()
        first = after_warmup([*recorder.snapshots, last], config.run.warmup_share)
        so_far = {
            **figures(first, last),
            "steady_turns_per_minute": steady_turns_per_minute(recorder.updates, first.time),
            "config": {"rollout": config.rollout.model_dump()},
        }
        return _with_cost(config, self._job.prices, so_far).get(self._job.objective.figure)
