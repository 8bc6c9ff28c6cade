"""What each knob is worth: one at a time, moved away from the best settings while all others stay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dartsim.core.errors import ConfigError
from dartsim.lab.comparison import Change, change
from dartsim.lab.jobs import Job, Outcome
from dartsim.lab.space import Dimension, Range, Space, Value
from dartsim.lab.study_spec import StudyObjective
from dartsim.lab.virtual import changed
from dartsim.run.models import models

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
                models(config)
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
