"""Sync modes: what a weight sync does to requests that run on the engine."""

from __future__ import annotations

from enum import StrEnum


class SyncMode(StrEnum):
    """Says what becomes of requests that run on an engine while it loads weights."""

    DRAIN = "drain"
    """Requests finish first; none are sent meanwhile."""
    KEEP = "keep"
    """Requests are frozen, and continue under the new weights with their old cache."""
    RESTART = "restart"
    """Requests fail with ``WorkerRestarted``: the engine's process is started again."""

    @property
    def drains(self) -> bool:
        """Whether the engine's requests end before weights are loaded: then ``load`` finds none."""
        return self is SyncMode.DRAIN

    @property
    def keeps_requests(self) -> bool:
        """Whether they are frozen while weights load, and continue."""
        return self is SyncMode.KEEP

    @property
    def restarts_engine(self) -> bool:
        """Whether the engine's process is started again, instead of taking weights while it is up."""
        return self is SyncMode.RESTART

    @property
    def kills_requests(self) -> bool:
        """Whether requests that run fail with ``WorkerRestarted``."""
        return self is SyncMode.RESTART
