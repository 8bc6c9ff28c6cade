"""The status of each component of a run: what it is doing, what it waits for, and what ends the wait.

Statuses are computed on demand, not on the hot path.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dartsim.observe.alarm import hours
from dartsim.observe.records import Population
from dartsim.observe.states import POPULATIONS

MAX_LINES = 40
"""Maximum number of lines of ``waiting_text``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentStatus:
    """The status of one component."""

    name: str
    state: str
    since: float
    waits_for: str
    woken_by: str
    detail: str = ""

    def as_json(self) -> dict[str, Any]:
        return {
            "component": self.name,
            "state": self.state,
            "since_seconds": round(self.since, 3),
            "waits_for": self.waits_for,
            "woken_by": self.woken_by,
            "detail": self.detail,
        }


class StatusSource:
    """Provides details that a recorder's states lack; the base class provides none."""

    def detail(self, population: str, index: int) -> str:
        return ""

    def components(self) -> Sequence[ComponentStatus]:
        """Return the status of the components that have no recorded states."""
        return ()


def component_statuses(
    populations: Sequence[Population], source: StatusSource, started: float
) -> list[ComponentStatus]:
    """Return the status of every component, those with recorded states first."""
    statuses = []
    for population in populations:
        kind = POPULATIONS[population.name].member
        for track in population.tracks:
            info = population.states(track.state).info
            statuses.append(
                ComponentStatus(
                    name=kind if len(population) == 1 and kind == population.name else f"{kind} {track.index}",
                    state=info.label,
                    since=track.since - started,
                    waits_for=info.waits_for,
                    woken_by=info.woken_by,
                    detail=source.detail(population.name, track.index),
                )
            )
    return [*statuses, *source.components()]


def waiting(components: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return what components wait for, those of one kind and state together, with the one that waits longest.

    Args:
        components: As ``ComponentStatus.as_json`` returns them.
    """
    kinds = {info.member: name for name, info in POPULATIONS.items()}
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for part in components:
        kind = str(part["component"]).split(" ")[0]
        groups.setdefault((kind if kind in kinds else str(part["component"]), str(part["state"])), []).append(part)
    return [
        {
            **min(same, key=lambda part: float(part["since_seconds"])),
            "population": kinds.get(kind),
            "kind": kind,
            "count": len(same),
        }
        for (kind, _), same in groups.items()
    ]


def waiting_text(waits: Sequence[Mapping[str, Any]]) -> str:
    """Return what every component that is not off waits for, one line for each state."""
    text = []
    for wait in waits:
        more = f" and {wait['count'] - 1} more" if wait["count"] > 1 else ""
        detail = f" ({wait['detail']})" if wait["detail"] else ""
        if wait["state"] != "off":
            text.append(
                f"  {wait['component']}{more}: {wait['state']} since {hours(wait['since_seconds'])}, waits for "
                f"{wait['waits_for']}{detail}; woken by {wait['woken_by']}"
            )
    left = len(text) - MAX_LINES
    return "\n".join(text[:MAX_LINES] + ([f"  and {left} more"] if left > 0 else []))
