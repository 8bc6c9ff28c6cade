"""Sync modes: what a weight sync does to requests running on the engine."""

from __future__ import annotations

from enum import StrEnum


class SyncMode(StrEnum):
    """What happens to requests running on an engine while it loads weights."""

    DRAIN = "drain"
    """Requests finish first; none are sent meanwhile."""
    KEEP = "keep"
    """Requests are frozen, and continue under the new weights with their old cache."""
    RESTART = "restart"
    """Requests fail with ``WorkerRestarted``: the engine's process is restarted."""

    @property
    def drains(self) -> bool:
        """Whether requests finish before weights are loaded, so that ``load`` finds none."""
        return self is SyncMode.DRAIN

    @property
    def keeps_requests(self) -> bool:
        """Whether requests are frozen while weights load, and then continue."""
        return self is SyncMode.KEEP

    @property
    def restarts_engine(self) -> bool:
        """Whether the engine's process is restarted rather than loading weights while it runs."""
        return self is SyncMode.RESTART

    @property
    def kills_requests(self) -> bool:
        """Whether running requests fail with ``WorkerRestarted``."""
        return self is SyncMode.RESTART
