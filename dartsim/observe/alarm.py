"""``Alarm``: something that a run suffers from, in words; and the table of all there are.

Rules that raise them are in ``dartsim.observe.alarm_rules``; each has a section in ``docs/alarms.md``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

PAGE = "docs/alarms.md"


class Kind(NamedTuple):
    """What all alarms of a name have in common.

    Attributes:
        code: Exit code of a run that it ends.
        likely: What is most often behind it.
        todo: What to look at and what to change.
    """

    code: int
    likely: str
    todo: str


KINDS: Mapping[str, Kind] = {
    "trainer_starved": Kind(
        10,
        "too few groups become eligible: they are dropped, or attempts end too rarely",
        "look at the drop reasons; lower curation.batch.min_groups, loosen the rule that drops most, or add desktops",
    ),
    "no_trajectory": Kind(
        11,
        "desktops hang, no engine serves, or the bound on attempts ahead is reached while the trainer stands still",
        "`dartsim status RUN` says what each slot waits for; lower rollout.limits.* if calls hang",
    ),
    "engine_down": Kind(
        12,
        "its engine ended, or refuses the newest weights",
        "read the engine's log; start it again, or lower rollout.num_workers",
    ),
    "stale_drops": Kind(
        13,
        "updates come faster than trajectories end, or trajectories lie in wait for a batch too long",
        "raise curation.staleness.max_staleness, lower rollout.max_turns, or set curation.max_ahead",
    ),
    "nothing_to_train": Kind(
        14,
        "tasks are too hard or too easy for the policy, or rewards are broken",
        "check the evaluator on one task; choose other tasks, set curation.task_filter or curation.pool",
    ),
    "mismatch": Kind(
        15,
        "engines compute other probabilities than the learner: another precision, sampler or version of the weights",
        "compare dtype, temperature and the loaded version of engines and learner",
    ),
    "disk_near_full": Kind(
        16,
        "screenshots and trajectories fill the disk, or something else does",
        "free some room, or keep less; a run that finds no room ends",
    ),
    "desktops_failing": Kind(
        17,
        "hosts are overloaded, or the image or its server is broken",
        "look at the causes; start fewer at a time (desktop.concurrent_starts) or give them more memory",
    ),
}
"""Every alarm by its name."""


@dataclass(slots=True, kw_only=True)
class Alarm:
    """One alarm of a run.

    Attributes:
        name: One of ``KINDS``.
        found: What was found, and what the bound is.
        since: When it began, seconds of the run's time.
        raised: When it was raised.
        cleared: When it was over; None if it was not.
    """

    name: str
    found: str
    since: float
    raised: float
    cleared: float | None = None

    @property
    def kind(self) -> Kind:
        """What it has in common with others of its name."""
        return KINDS[self.name]

    @property
    def page(self) -> str:
        """Where it is documented."""
        return f"{PAGE}#{self.name}"

    def text(self) -> str:
        """Say what, since when, likely why, and what to do."""
        over = "" if self.cleared is None else f", over at {hours(self.cleared)}"
        return (
            f"{self.name} since {hours(self.since)}{over}: {self.found}. Likely: {self.kind.likely}. "
            f"Do: {self.kind.todo}. ({self.page})"
        )

    def as_json(self) -> dict[str, Any]:
        """Return it as plain values, as it is written to ``summary.json`` and ``status.json``."""
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


def hours(seconds: float) -> str:
    """Return a time or a length in the unit that reads best."""
    if abs(seconds) < 120.0:
        return f"{seconds:.1f} s"
    return f"{seconds / 60.0:.1f} min" if abs(seconds) < 7200.0 else f"{seconds / 3600.0:.2f} h"
