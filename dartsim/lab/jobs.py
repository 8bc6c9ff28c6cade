"""One job of the laboratory: a configuration, simulated with some seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from typing_extensions import override

from dartsim.config import Config
from dartsim.core.errors import DartsimError
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
    """Prices in one currency; by default cost is counted in GPU hours.

    Attributes:
        gpu_hour: Of one GPU for an hour, rollout or trainer.
        host_hour: Of one machine for desktops for an hour.
    """

    gpu_hour: float = 1.0
    host_hour: float = 0.0

    def per_hour(self, config: Config) -> float:
        """Return what all machines of a configuration cost in an hour."""
        return self.gpu_hour * num_gpus(config) + self.host_hour * config.cluster.hosts.count

    def figures(self, config: Config, turns_per_minute: float | None) -> dict[str, Any]:
        """Return the cost an hour, and of 1,000 trained turns; None where none was trained."""
        cost = self.per_hour(config)
        per_turn = cost / (60.0 * turns_per_minute) if turns_per_minute else None
        return {"cost_per_hour": cost, "cost_per_1000_turns": None if per_turn is None else 1000.0 * per_turn}


GPU_HOURS = Prices()
"""No prices: cost is GPU hours."""


def num_gpus(config: Config) -> int:
    """Return the GPUs of workers and trainer."""
    return config.rollout.num_workers + config.cluster.learner.gpus


Figures = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Rung:
    """A look at a run on its way.

    Attributes:
        hours: When.
        least: The run is given up if its figure is below; None never.
    """

    hours: float
    least: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What to simulate. Picklable, and its outcome does not depend on where or when it runs.

    Attributes:
        name: What it is called in progress and messages.
        config: The configuration, as ``as_virtual`` returns it.
        seeds: One run for each; figures are means over them.
        prices: What machines cost.
        figure: What rungs look at, larger is better once multiplied by ``sign``.
        sign: 1, or -1 where less is better.
        rungs: Looks at the first seed's run, by rising hours.
    """

    name: str
    config: Config
    seeds: tuple[int, ...] = (0,)
    prices: Prices = GPU_HOURS
    figure: str = "trained_turns_per_minute"
    sign: int = 1
    rungs: tuple[Rung, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of a job.

    Attributes:
        figures: Means over its seeds; of the largest staleness, the largest. Empty if it was given up or failed.
        by_seed: Figures of each seed.
        seen: What the rungs saw: hours and figure.
        given_up: Whether a rung ended it.
        error: What went wrong, in words; None if nothing did.
    """

    figures: Figures = field(default_factory=dict)
    by_seed: tuple[Figures, ...] = ()
    seen: tuple[tuple[float, float], ...] = ()
    given_up: bool = False
    error: str | None = None


def outcomes(executor: Executor, jobs: Sequence[Job]) -> list[Outcome]:
    """Return the outcomes of jobs in their order.

    Raises:
        DartsimError: If a job failed.
    """
    found: dict[int, Outcome] = dict(executor.run(run_job, jobs))
    for place, job in enumerate(jobs):
        if found[place].error is not None:
            raise DartsimError(f"{job.name}: {found[place].error}")
    return [found[place] for place in range(len(jobs))]


class _GivenUp(Exception):
    """A rung ended the run."""


def run_job(job: Job, report: Report | None = None) -> Outcome:
    """Simulate a job; ``report`` is called with the share of its seeds that are done."""
    by_seed: list[Figures] = []
    look = _RungLook(job)
    try:
        for number, seed in enumerate(job.seeds):
            by_seed.append(simulated(changed(job.config, {"run.seed": seed}), job.prices, look if not number else None))
            if report is not None:
                report((number + 1) / len(job.seeds))
    except _GivenUp:
        return Outcome(seen=tuple(look.seen), given_up=True)
    except DartsimError as error:
        return Outcome(seen=tuple(look.seen), error=f"{type(error).__name__}: {error}")
    return Outcome(figures=means(by_seed), by_seed=tuple(by_seed), seen=tuple(look.seen))


class _RungLook(Instrument):
    """Looks at a run at every rung, and ends it where its figure is too small."""

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
            if value is None:  # nothing to judge it by so far
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


def simulated(config: Config, prices: Prices, look: _RungLook | None = None) -> Figures:
    """Simulate one configuration and return its figures, with bounds and cost."""
    prepared = prepare(config)
    result = run_simulation(prepared, instruments=[look] if look else ())
    plain = result.figures
    return {
        **plain,
        **bounds(prepared, plain, result.recorder.snapshots),
        **_rated(config, prices, plain, result.recorder, plain["warmup_hours"] * 3600.0),
        "event_hash": result.event_hash,
    }


def _rated(config: Config, prices: Prices, plain: Figures, recorder: Recorder, start: float) -> Figures:
    """Return the rate from update to update, and the cost at that rate; where there is none, of the whole window."""
    steady = steady_turns_per_minute(list(recorder.updates), start)
    cost = prices.figures(config, steady or plain["trained_turns_per_minute"])
    return {**cost, "steady_turns_per_minute": steady}


def steady_turns_per_minute(updates: Sequence[UpdateRecord], start: float) -> float | None:
    """Return the turns a minute from one finished update to another, so that no update is counted in part.

    Args:
        updates: Finished updates, in order.
        start: Updates that finished before are left out, seconds; the first of the others only starts the time.

    Returns:
        The rate; None with fewer than two updates.
    """
    counted = [update for update in updates if update.time >= start]
    if len(counted) < 2:
        return None
    minutes = (counted[-1].time - counted[0].time) / 60.0
    return sum(update.num_turns for update in counted[1:]) / minutes if minutes > 0.0 else None


def means(by_seed: Sequence[Mapping[str, Any]]) -> Figures:
    """Return the mean of every number over seeds, table by table; of ``staleness_max`` the largest."""
    found: Figures = {}
    for name, first in by_seed[0].items():
        values = [figures.get(name) for figures in by_seed]
        if isinstance(first, Mapping):
            found[name] = means([value or {} for value in values])
        elif name == "staleness_max":
            found[name] = max(value for value in values if value is not None)
        elif any(isinstance(value, int | float) for value in values):
            known = [value for value in values if value is not None]
            found[name] = fmean(known)
        else:
            found[name] = first
    return found
