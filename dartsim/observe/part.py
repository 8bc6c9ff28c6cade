"""``Part``: one part of a run, and what it waits for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One part of a run, and what it waits for.

    Attributes:
        name: ``slot 3``, ``worker 0``, ``trainer``, ``weight sync``, ``data manager``, ``store``.
        state: What it does, in one word.
        since: Since when, seconds of the run's time.
        waits_for: What would let it go on.
        woken_by: Who or what brings that about.
        detail: The particulars; may be empty.
    """

    name: str
    state: str
    since: float
    waits_for: str
    woken_by: str
    detail: str = ""

    def plain(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            "part": self.name,
            "state": self.state,
            "since_seconds": round(self.since, 3),
            "waits_for": self.waits_for,
            "woken_by": self.woken_by,
            "detail": self.detail,
        }
