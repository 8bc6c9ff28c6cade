"""Whether what a study found holds: its best settings beside the configuration as it is, with seeds it has not seen.

The best of many trials is partly the luckiest. Seeds that no trial had tell what is left of it, and whether the bounds
still hold. Each knob is moved alone, away from the best settings, with such seeds too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dartsim.core.errors import ConfigError
from dartsim.lab.comparison import Change, change, half_width
from dartsim.lab.jobs import Job, Outcome, outcomes
from dartsim.lab.space import Dimension, Range, Space, Value
from dartsim.lab.study_spec import StudyObjective, StudySpec
from dartsim.lab.sweep import Executor
from dartsim.lab.virtual import as_virtual, changed
from dartsim.run.prepare import prepare

SHARE = 0.15
"""How far a number is moved, of its range."""


@dataclass(frozen=True, slots=True)
class KnobMove:
    """One knob that is to be moved.

    Attributes:
        key: The setting.
        value: Its other value.
        job: What simulates it, all other settings being the best.
    """

    key: str
    value: Value
    job: Job


@dataclass(frozen=True, slots=True)
class Moved:
    """One knob at another value.

    Attributes:
        value: The value.
        figure: The objective's value with it; None if nothing was trained.
        change: Against the best settings, as a share of theirs; None if unknown.
        half_width: Half of the change's 95 % interval, seed against seed; None with fewer than two.
    """

    value: Value
    figure: float | None
    change: float | None
    half_width: float | None = None


@dataclass(frozen=True, slots=True)
class Knob:
    """What one knob is worth around the best settings.

    Attributes:
        key: The setting.
        best: Its best value.
        moved: Other values.
    """

    key: str
    best: Value
    moved: tuple[Moved, ...]

    @property
    def worth(self) -> float:
        """Largest change that a move makes, as a share."""
        return max((abs(moved.change) for moved in self.moved if moved.change is not None), default=0.0)


def moves(best: Job, settings: Mapping[str, Any], space: Space) -> list[KnobMove]:
    """Return every knob moved in turn, what cannot be left out.

    Args:
        best: The best settings as a job.
        settings: The best settings.
        space: What was tuned.
    """
    found: list[KnobMove] = []
    for dimension in space:
        for value in neighbours(dimension, settings[dimension.key]):
            try:
                config = changed(best.config, {dimension.key: value})
                prepare(config)
            except ConfigError:
                continue  # beside the best settings lies what cannot be
            job = replace(best, name=f"{dimension.key} = {value}", config=config)
            found.append(KnobMove(dimension.key, value, job))
    return found


def knobs(
    settings: Mapping[str, Any],
    space: Space,
    objective: StudyObjective,
    base: Outcome,
    tried: Sequence[tuple[KnobMove, Outcome]],
) -> list[Knob]:
    """Return what each knob is worth, the most important knob first.

    Args:
        settings: The best settings.
        space: What was tuned.
        objective: The figure that counts.
        base: Of the best settings, with the moves' seeds first.
        tried: What came of the moves.
    """
    moved: dict[str, list[Moved]] = {dimension.key: [] for dimension in space}
    for move, outcome in tried:
        found: Change = change(objective, base, outcome)
        moved[move.key].append(Moved(move.value, objective.of(outcome.figures), found.share, found.half_width))
    made = [Knob(key, settings[key], tuple(values)) for key, values in moved.items()]
    return sorted(made, key=lambda knob: -knob.worth)


def neighbours(dimension: Dimension, value: Any) -> list[Value]:
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


KNOB_SEEDS = 3
"""Most fresh seeds that each move of a knob is simulated with."""


@dataclass(frozen=True, slots=True)
class Held:
    """One objective, with fresh seeds.

    Attributes:
        figure: Its name.
        first: Of the configuration as it is, mean; None if it has none.
        first_half_width: Half of its 95 % interval over seeds; None of one seed.
        best: Of the best settings.
        best_half_width: Half of its interval.
        change: Of the best against the first, as a share.
        half_width: Half of the change's interval, seed against seed.
        better: Whether the change is for the better, and more than chance.
    """

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
    """What is left of a study's best with seeds that it has not seen.

    Attributes:
        seeds: Those seeds.
        held: Each objective.
        broken: Bounds that the best settings do not keep with these seeds, in words.
        knobs: What each knob is worth, the most important one first.
    """

    seeds: tuple[int, ...]
    held: tuple[Held, ...]
    broken: tuple[str, ...]
    knobs: tuple[Knob, ...]


def validate(spec: StudySpec, settings: Mapping[str, Any], number: int, executor: Executor) -> Validation:
    """Simulate the best settings, the configuration as it is, and every knob moved alone, with fresh seeds.

    Args:
        spec: What the study asks.
        settings: Its best settings.
        number: How many fresh seeds; those right after the study's own.
        executor: What simulates.

    Raises:
        DartsimError: If a simulation failed.
    """
    first = max(spec.seeds) + 1
    seeds = tuple(range(first, first + number))
    base = as_virtual(spec.base)
    best = Job(name="the best", config=changed(base, settings), seeds=seeds, prices=spec.prices)
    as_it_is = [replace(best, name="as it is", config=base)] if _can_be(base) else []
    moved = moves(replace(best, seeds=seeds[:KNOB_SEEDS]), settings, spec.space)
    found = outcomes(executor, [best, *as_it_is, *(move.job for move in moved)])
    of_best, rest = found[0], found[1:]
    of_first = rest[0] if as_it_is else Outcome()
    tried = list(zip(moved, rest[len(as_it_is) :], strict=True))
    return Validation(
        seeds=seeds,
        held=tuple(_held(objective, of_first, of_best) for objective in spec.objectives),
        broken=_broken(spec, of_best),
        knobs=tuple(knobs(settings, spec.space, spec.objectives[0], of_best, tried)),
    )


def _can_be(config: Any) -> bool:
    try:
        prepare(config)
    except ConfigError:
        return False
    return True


def _held(objective: StudyObjective, first: Outcome, best: Outcome) -> Held:
    found = change(objective, first, best)
    return Held(
        objective.figure,
        *_mean(objective, first),
        *_mean(objective, best),
        found.share,
        found.half_width,
        found.certain and objective.sign * (found.share or 0.0) > 0.0,
    )


def _mean(objective: StudyObjective, outcome: Outcome) -> tuple[float | None, float | None]:
    """Return a figure's mean over seeds, and half of its interval."""
    values = [value for value in map(objective.of, outcome.by_seed) if value is not None]
    return objective.of(outcome.figures), half_width(values)


def _broken(spec: StudySpec, best: Outcome) -> tuple[str, ...]:
    stale = best.figures["staleness_max"]
    if spec.max_staleness is None or stale <= spec.max_staleness:
        return ()
    return (f"its largest staleness is {stale:g}, above the bound of {spec.max_staleness:g}",)
