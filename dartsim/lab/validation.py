"""Validation of a study: its best settings beside the unmodified configuration, with fresh seeds.

The best of many trials is partly the luckiest. Seeds that no trial used show the real effect, and whether the bounds
still hold. Each knob is also moved alone, away from the best settings, with such seeds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from dartsim.config import Config
from dartsim.core.errors import ConfigError
from dartsim.lab.comparison import half_width
from dartsim.lab.jobs import Job, Outcome, outcomes
from dartsim.lab.space import Dimension, Range, Space, Value
from dartsim.lab.study_spec import StudyObjective, StudySpec
from dartsim.lab.sweep import Executor
from dartsim.lab.virtual import as_virtual, changed
from dartsim.run.prepare import prepare

SHARE = 0.15
"""How far a number is moved, as a share of its range."""

KNOB_SEEDS = 3
"""Largest number of fresh seeds for each move of a knob."""


class Change(NamedTuple):
    """Relative change of a figure; None if unknown. ``half_width``: half of its 95 % interval over shared seeds."""

    share: float | None
    half_width: float | None

    @property
    def certain(self) -> bool:
        """Whether the interval excludes no change."""
        return self.share is not None and self.half_width is not None and abs(self.share) > self.half_width


def change(objective: StudyObjective, base: Outcome, other: Outcome) -> Change:
    """Return the change of the mean from ``base`` to ``other``, over their shared first seeds, seed by seed."""
    if any(outcome.figures.get("failure") for outcome in (base, other)):
        return Change(None, None)
    values = [(objective.of(old), objective.of(new)) for old, new in zip(base.by_seed, other.by_seed, strict=False)]
    known = [(old, new) for old, new in values if old is not None and new is not None]
    reference = sum(old for old, _ in known)
    if not reference:
        return Change(None, None)
    width = half_width([new / old - 1.0 for old, new in known if old])
    return Change(sum(new for _, new in known) / reference - 1.0, width)


@dataclass(frozen=True, slots=True)
class KnobMove:
    """One knob at another value, and the job that simulates it with all other settings at their best."""

    key: str
    value: Value
    job: Job


@dataclass(frozen=True, slots=True)
class Moved:
    """Result of moving one knob."""

    value: Value
    figure: float | None
    change: float | None
    half_width: float | None = None


@dataclass(frozen=True, slots=True)
class Knob:
    """Effect of one knob around the best settings: its key, its best value, and the result of other values."""

    key: str
    best: Value
    moved: tuple[Moved, ...]

    @property
    def worth(self) -> float:
        return max((abs(moved.change) for moved in self.moved if moved.change is not None), default=0.0)


@dataclass(frozen=True, slots=True)
class ObjectiveEffect:
    """Effect on one objective with fresh seeds."""

    figure: str
    first: float | None
    first_half_width: float | None
    best: float | None
    best_half_width: float | None
    change: float | None
    half_width: float | None
    better: bool


@dataclass(frozen=True, slots=True)
class Validation:
    """Effect of a study's best settings with fresh seeds."""

    seeds: tuple[int, ...]
    effects: tuple[ObjectiveEffect, ...]
    broken: tuple[str, ...]
    knobs: tuple[Knob, ...]


def validate(spec: StudySpec, settings: Mapping[str, Any], number: int, executor: Executor) -> Validation:
    """Simulate the best settings, the unmodified configuration, and each knob moved alone, with fresh seeds.

    Raises:
        DartsimError: If a simulation failed.
    """
    start = max(spec.seeds) + 1
    seeds = tuple(range(start, start + number))
    base = as_virtual(spec.base)
    best_job = Job(name="the best", config=changed(base, settings), seeds=seeds, prices=spec.prices)
    moves = knob_moves(replace(best_job, seeds=seeds[:KNOB_SEEDS]), settings, spec.space)
    first_jobs = [replace(best_job, name="as it is", config=base)] if _is_valid(base) else []
    best, *results = outcomes(executor, [best_job, *first_jobs, *(move.job for move in moves)])
    first = results.pop(0) if first_jobs else Outcome()
    return Validation(
        seeds=seeds,
        effects=tuple(_effect(objective, first, best) for objective in spec.objectives),
        broken=_broken(spec, best),
        knobs=tuple(knobs(settings, spec.space, spec.objectives[0], best, list(zip(moves, results, strict=True)))),
    )


def knob_moves(best: Job, settings: Mapping[str, Any], space: Space) -> list[KnobMove]:
    """Return each knob moved alone from the best settings, invalid configurations left out."""
    moves: list[KnobMove] = []
    for dimension in space:
        for value in neighbors(dimension, settings[dimension.key]):
            try:
                config = changed(best.config, {dimension.key: value})
            except ConfigError:
                continue
            if _is_valid(config):
                job = replace(best, name=f"{dimension.key} = {value}", config=config)
                moves.append(KnobMove(dimension.key, value, job))
    return moves


def knobs(
    settings: Mapping[str, Any],
    space: Space,
    objective: StudyObjective,
    best: Outcome,
    results: Sequence[tuple[KnobMove, Outcome]],
) -> list[Knob]:
    """Return the effect of each knob, the largest first."""
    moved: dict[str, list[Moved]] = {dimension.key: [] for dimension in space}
    for move, outcome in results:
        share, width = change(objective, best, outcome)
        moved[move.key].append(Moved(move.value, objective.of(outcome.figures), share, width))
    all_knobs = [Knob(key, settings[key], tuple(values)) for key, values in moved.items()]
    return sorted(all_knobs, key=lambda knob: -knob.worth)


def neighbors(dimension: Dimension, value: Any) -> list[Value]:
    """Return values on both sides of a number, within its range, or all other choices."""
    if not isinstance(dimension, Range):
        return [choice for choice in dimension.values if choice != value]
    low, high = dimension.low, dimension.high
    if dimension.log:
        factor = (high / low) ** SHARE
        candidates = [value / factor, value * factor]
    else:
        step = max(SHARE * (high - low), dimension.step or 0.0, 1.0 if dimension.whole else 0.0)
        if dimension.step:
            step = round(step / dimension.step) * dimension.step
        candidates = [value - step, value + step]
    inside = [min(max(candidate, low), high) for candidate in candidates]
    rounded: list[Value] = [round(number) if dimension.whole else float(number) for number in inside]
    return list(dict.fromkeys(number for number in rounded if number != value))


def _is_valid(config: Config) -> bool:
    try:
        prepare(config)
    except ConfigError:
        return False
    return True


def _effect(objective: StudyObjective, first: Outcome, best: Outcome) -> ObjectiveEffect:
    difference = change(objective, first, best)
    return ObjectiveEffect(
        objective.figure,
        *_mean(objective, first),
        *_mean(objective, best),
        difference.share,
        difference.half_width,
        difference.certain and objective.sign * (difference.share or 0.0) > 0.0,
    )


def _mean(objective: StudyObjective, outcome: Outcome) -> tuple[float | None, float | None]:
    """Return a figure's mean over seeds, and half of its interval."""
    values = [value for value in map(objective.of, outcome.by_seed) if value is not None]
    return objective.of(outcome.figures), half_width(values)


def _broken(spec: StudySpec, best: Outcome) -> tuple[str, ...]:
    if failure := best.figures.get("failure"):
        return (str(failure),)
    staleness = best.figures["staleness_max"]
    if spec.max_staleness is None or staleness <= spec.max_staleness:
        return ()
    return (f"its largest staleness is {staleness:g}, above the bound of {spec.max_staleness:g}",)
