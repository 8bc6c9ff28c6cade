"""What each component of a run is doing, what it waits for, and what would wake it.

Nothing here is called on the hot path: statuses are made when somebody looks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dartsim.observe.alarm import hours
from dartsim.observe.records import Population
from dartsim.observe.states import POPULATIONS


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentStatus:
    """What one component of a run is doing.

    Attributes:
        name: ``slot 3``, ``engine 0``, ``trainer``, ``weight sync``, ``data manager``, ``store``.
        state: Its state, as pages call it.
        since: When it entered the state, seconds of the run's time.
        waits_for: What would let it continue.
        woken_by: Who or what brings that about.
        detail: The particulars; may be empty.
    """

    name: str
    state: str
    since: float
    waits_for: str
    woken_by: str
    detail: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            "component": self.name,
            "state": self.state,
            "since_seconds": round(self.since, 3),
            "waits_for": self.waits_for,
            "woken_by": self.woken_by,
            "detail": self.detail,
        }


class StatusSource:
    """Knows the particulars that a recorder's states do not show; this one knows none."""

    def detail(self, population: str, index: int) -> str:
        """Return what a component works on or waits for; may be empty."""
        return ""

    def components(self) -> Sequence[ComponentStatus]:
        """Return the status of the components that have no recorded states."""
        return ()


def component_statuses(
    populations: Sequence[Population], source: StatusSource, started: float
) -> list[ComponentStatus]:
    """Return the status of every component: those with recorded states first.

    Args:
        populations: Have recorded states.
        source: Knows the particulars.
        started: Loop time at which the run started, seconds.
    """
    found = []
    for population in populations:
        one = POPULATIONS[population.name].one
        for track in population.tracks:
            info = population.states(track.state).info
            found.append(
                ComponentStatus(
                    name=one if len(population) == 1 and one == population.name else f"{one} {track.index}",
                    state=info.label,
                    since=track.since - started,
                    waits_for=info.waits_for,
                    woken_by=info.woken_by,
                    detail=source.detail(population.name, track.index),
                )
            )
    return [*found, *source.components()]


def status_text(statuses: Sequence[ComponentStatus], *, max_lines: int = 40) -> str:
    """Return what every component that is not off waits for: those in the same state in one line."""
    lines: dict[tuple[str, str], list[ComponentStatus]] = {}
    for status in statuses:
        if status.state != "off":
            lines.setdefault((status.name.split(" ")[0], status.state), []).append(status)
    text = []
    for (_, state), same in lines.items():
        oldest = min(same, key=lambda status: status.since)
        who = oldest.name if len(same) == 1 else f"{oldest.name} and {len(same) - 1} more"
        detail = f" ({oldest.detail})" if oldest.detail else ""
        text.append(
            f"  {who}: {state} since {hours(oldest.since)}, waits for {oldest.waits_for}{detail}; "
            f"woken by {oldest.woken_by}"
        )
    left = len(text) - max_lines
    return "\n".join(text[:max_lines] + ([f"  and {left} more"] if left > 0 else []))
