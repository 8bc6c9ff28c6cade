"""``Job``: a configuration, simulated with several seeds; its figures, with bounds and cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any

from typing_extensions import override

from dartsim.config import Config
from dartsim.core.errors import DartsimError
from dartsim.core.plugin_errors import plugin_errors
from dartsim.lab.bounds import bounds
from dartsim.lab.sweep import Executor, Report
from dartsim.lab.virtual import changed
from dartsim.observe import Instrument, Recorder
from dartsim.observe.figures import after_warmup, figures
from dartsim.observe.records import UpdateRecord
from dartsim.run.prepare import prepare
from dartsim.run.simulation import run_simulation


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices of an hour of a GPU and of a desktop host, in any currency; by default cost is counted in GPU hours."""

    gpu_hour: float = 1.0
    host_hour: float = 0.0

    def per_hour(self, config: Config) -> float:
        num_gpus = config.rollout.num_workers + config.cluster.learner.gpus
        return self.gpu_hour * num_gpus + self.host_hour * config.cluster.hosts.count

    def figures(self, config: Config, turns_per_minute: float | None) -> dict[str, Any]:
        """Return the cost per hour, and per 1,000 trained turns; None where none was trained."""
        cost = self.per_hour(config)
        per_turn = cost / (60.0 * turns_per_minute) if turns_per_minute else None
        return {"cost_per_hour": cost, "cost_per_1000_turns": None if per_turn is None else 1000.0 * per_turn}


GPU_HOURS = Prices()

Figures = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Rung:
    """A check of a run after some hours, which stops it if its figure is below ``least`` (None: never)."""

    hours: float
    least: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A configuration to simulate. Picklable; its outcome does not depend on where or when it runs."""

    name: str
    config: Config
    seeds: tuple[int, ...] = (0,)
    prices: Prices = GPU_HOURS
    figure: str = "trained_turns_per_minute"
    sign: int = 1
    rungs: tuple[Rung, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Result of a job."""

    figures: Figures = field(default_factory=dict)
    by_seed: tuple[Figures, ...] = ()
    seen: tuple[tuple[float, float], ...] = ()
    given_up: bool = False
    error: str | None = None


def outcomes(executor: Executor, jobs: Sequence[Job]) -> list[Outcome]:
    """Run jobs without rungs, every seed by itself so that all cores are used; return outcomes in the order of jobs.

    Raises:
        DartsimError: If a job failed.
    """
    runs = [(number, replace(job, seeds=(seed,))) for number, job in enumerate(jobs) for seed in job.seeds]
    ended: dict[int, Outcome] = dict(executor.run(run_job, [run for _, run in runs]))
    by_seed: list[list[Figures]] = [[] for _ in jobs]
    for place, (number, run) in enumerate(runs):
        if (error := ended[place].error) is not None:
            raise DartsimError(f"{run.name}: {error}")
        by_seed[number] += ended[place].by_seed
    return [Outcome(figures=means(figures), by_seed=tuple(figures)) for figures in by_seed]


class _GivenUp(Exception):
    """A rung stopped the run."""


def run_job(job: Job, report: Report | None = None) -> Outcome:
    """Simulate a job; ``report`` receives the share of its seeds that are done."""
    by_seed: list[Figures] = []
    rungs = _RungChecks(job)
    try:
        for number, seed in enumerate(job.seeds):
            with plugin_errors():
                config = changed(job.config, {"run.seed": seed})
                by_seed.append(simulated(config, job.prices, None if number else rungs))
            if report is not None:
                report((number + 1) / len(job.seeds))
    except _GivenUp:
        return Outcome(seen=tuple(rungs.seen), given_up=True)
    except DartsimError as error:
        return Outcome(seen=tuple(rungs.seen), error=f"{type(error).__name__}: {error}")
    return Outcome(figures=means(by_seed), by_seed=tuple(by_seed), seen=tuple(rungs.seen))


class _RungChecks(Instrument):
    """Stops a run at a rung where its figure is too small."""

    period_seconds = 30.0

    def __init__(self, job: Job) -> None:
        self._job = job
        self._left = list(job.rungs)
        self._recorder: Recorder | None = None
        self.seen: list[tuple[float, float]] = []

    @override
    def run_started(self, recorder: Recorder) -> None:
        self._recorder = recorder

    @override
    def time_advanced(self, now: float) -> None:
        while self._left and now >= self._left[0].hours * 3600.0:
            rung = self._left.pop(0)
            value = self._value()
            if value is None:  # nothing was trained yet
                continue
            self.seen.append((rung.hours, value))
            if rung.least is not None and value < rung.least:
                raise _GivenUp

    def _value(self) -> float | None:
        recorder, job = self._recorder, self._job
        assert recorder is not None, "a run starts before its time advances"
        snapshots = [*recorder.snapshots, recorder.measure()]
        first = after_warmup(snapshots, job.config.run.warmup_share)
        so_far = figures(first, snapshots[-1])
        value = {**so_far, **_rated(job.config, job.prices, so_far, recorder, first.time)}.get(job.figure)
        return None if value is None else job.sign * float(value)


def simulated(config: Config, prices: Prices, rungs: _RungChecks | None = None) -> Figures:
    """Return the figures of one simulation, with bounds and cost."""
    prepared = prepare(config)
    result = run_simulation(prepared, instruments=[rungs] if rungs else ())
    plain = result.figures
    return {
        **plain,
        **bounds(prepared, plain, result.recorder.snapshots),
        **_rated(config, prices, plain, result.recorder, plain["warmup_hours"] * 3600.0),
        "event_hash": result.event_hash,
    }


def _rated(config: Config, prices: Prices, plain: Figures, recorder: Recorder, start: float) -> Figures:
    """Return the steady rate, and the cost at it; without a steady rate, at that of the whole window."""
    steady = steady_turns_per_minute(list(recorder.updates), start)
    cost = prices.figures(config, steady or plain["trained_turns_per_minute"])
    return {**cost, "steady_turns_per_minute": steady}


def steady_turns_per_minute(updates: Sequence[UpdateRecord], start: float) -> float | None:
    """Return the trained turns per minute between two finished updates, so that every update counts whole.

    Args:
        updates: Finished updates, in order.
        start: Updates that finished earlier do not count, seconds; the first of the others only starts the clock.

    Returns:
        The rate; None with fewer than two updates.
    """
    counted = [update for update in updates if update.time >= start]
    if len(counted) < 2:
        return None
    minutes = (counted[-1].time - counted[0].time) / 60.0
    return sum(update.num_turns for update in counted[1:]) / minutes if minutes > 0.0 else None


def means(by_seed: Sequence[Mapping[str, Any]]) -> Figures:
    """Return the mean of every number over seeds, also in nested tables, and the maximum of ``staleness_max``."""
    result: Figures = {}
    for name, first in by_seed[0].items():
        values = [figures.get(name) for figures in by_seed]
        if isinstance(first, Mapping):
            result[name] = means([value or {} for value in values])
        elif name == "failure":  # a run that trained nothing is no part of a mean
            result[name] = next((value for value in values if value), None)
        elif name == "staleness_max":
            result[name] = max(value for value in values if value is not None)
        elif any(isinstance(value, int | float) for value in values):
            result[name] = fmean(value for value in values if value is not None)
        else:
            result[name] = first
    return result
