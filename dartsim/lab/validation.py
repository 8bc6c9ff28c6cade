"""Whether what a study found holds: its best settings beside the configuration as it is, with seeds it has not seen.

The best of many trials is partly the luckiest. Seeds that no trial had tell what is left of it, and whether the bounds
still hold. The knobs are moved with such seeds too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from dartsim.core.errors import ConfigError
from dartsim.lab.comparison import change, half_width
from dartsim.lab.jobs import Job, Outcome, outcomes
from dartsim.lab.sensitivity import Knob, knobs, moves
from dartsim.lab.study_spec import StudyObjective, StudySpec
from dartsim.lab.sweep import Executor
from dartsim.lab.virtual import as_virtual, changed
from dartsim.run.models import models

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
        models(config)
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
