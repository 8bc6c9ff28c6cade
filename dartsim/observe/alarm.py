"""``Alarm``: a problem of a run, with its likely cause and its remedy; and the table of all alarms.

Rules that raise them are in ``dartsim.observe.alarm_rules``; ``docs/reference.md`` lists them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

PAGE = "docs/reference.md"


class Kind(NamedTuple):
    """A kind of alarm: the exit code if it ends a run, its likely cause, and its remedy."""

    code: int
    likely: str
    todo: str


KINDS: Mapping[str, Kind] = {
    "trainer_starved": Kind(
        10,
        "groups are dropped (too hard, too easy, stale), desktops hang or fail, or no engine serves",
        "mend what the reasons name; `dartsim show RUN` shows what slots wait for; loosen the rule that drops most",
    ),
    "engine_down": Kind(
        12,
        "its engine ended, or refuses the newest weights",
        "read the engine's log; start it again, or lower rollout.num_workers",
    ),
    "mismatch": Kind(
        15,
        "engines and learner compute different probabilities: another precision, sampler or version of the weights",
        "compare dtype, temperature and the loaded version of engines and learner",
    ),
    "disk_near_full": Kind(
        16,
        "screenshots and trajectories fill the disk, or something else does",
        "free some space, or keep less; a run ends when the disk is full",
    ),
    "nothing_trained": Kind(
        18,
        "a rule that admits nothing, faults that mask every attempt, groups without a signal, or too short a run",
        "mend the cause that is named; the run's page and `dartsim show RUN` show what each component waited for",
    ),
    "attempts_masked": Kind(
        19,
        "desktops, engines or the evaluator fail, or are slower than their limits",
        "mend what the causes name, or raise the limit that passes (limits.*, rollout.limits.*)",
    ),
    "untrainable": Kind(
        20,
        "engines report no log-probabilities, all advantages are 0, or loss or gradient are not finite",
        "read the warnings of the log; check trainer.objective.missing, the group filter and the engines' replies",
    ),
}
"""Every kind of alarm, by name."""


@dataclass(slots=True, kw_only=True)
class Alarm:
    """One alarm of a run; times are seconds of the run's time.

    Attributes:
        name: One of ``KINDS``.
        found: The observation, and its bound.
        since: When it began.
        raised: When it was raised.
        cleared: When it ended; None if it did not.
    """

    name: str
    found: str
    since: float
    raised: float
    cleared: float | None = None

    @property
    def kind(self) -> Kind:
        return KINDS[self.name]

    @property
    def page(self) -> str:
        return f"{PAGE}#{self.name}"

    def text(self) -> str:
        return alarm_text(self.as_json())

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "found": self.found,
            "since_seconds": round(self.since, 3),
            "raised_seconds": round(self.raised, 3),
            "cleared_seconds": None if self.cleared is None else round(self.cleared, 3),
            "likely": self.kind.likely,
            "todo": self.kind.todo,
            "exit_code": self.kind.code,
            "page": self.page,
        }


def alarm_text(alarm: Mapping[str, Any]) -> str:
    """Return an alarm, as in ``summary.json``, as one line."""
    cleared = alarm["cleared_seconds"]
    over = "" if cleared is None else f", over at {hours(cleared)}"
    return (
        f"{alarm['name']} since {hours(alarm['since_seconds'])}{over}: {alarm['found']}. Likely: {alarm['likely']}. "
        f"Do: {alarm['todo']}. ({alarm['page']}, exit code {alarm['exit_code']})"
    )


def hours(seconds: float) -> str:
    """Return a duration as text, in seconds, minutes or hours."""
    if abs(seconds) < 120.0:
        return f"{seconds:.1f} s"
    return f"{seconds / 60.0:.1f} min" if abs(seconds) < 7200.0 else f"{seconds / 3600.0:.2f} h"
