"""Sync modes: what a weight sync does to requests that run on the engine."""

from __future__ import annotations

from typing import ClassVar

from dartsim.core.registry import NamedComponent, component, names, register


class SyncMode(NamedComponent):
    """Says what becomes of requests that run on an engine while it loads weights. Another one is another module here.

    A mode neither drains nor keeps requests if it kills them: they fail with ``WorkerRestarted``.
    """

    DRAIN: ClassVar[SyncMode]
    KEEP: ClassVar[SyncMode]
    RESTART: ClassVar[SyncMode]

    drains: ClassVar[bool] = False
    """Whether the engine's requests end before weights are loaded: then ``load`` finds none."""
    keeps_requests: ClassVar[bool] = False
    """Whether they are frozen while weights load, and continue under the new ones with their old cache."""
    restarts_engine: ClassVar[bool] = False
    """Whether the engine's process is started again, instead of taking weights while it is up."""

    @property
    def kills_requests(self) -> bool:
        """Whether requests that run fail with ``WorkerRestarted``."""
        return not (self.drains or self.keeps_requests)


@register("sync_mode", "drain")
class Drain(SyncMode):
    """Requests finish first; none are sent meanwhile."""

    drains = True


@register("sync_mode", "keep")
class Keep(SyncMode):
    """Requests are frozen, and continue under the new weights."""

    keeps_requests = True


@register("sync_mode", "restart")
class Restart(SyncMode):
    """Requests are killed: the engine's process is started again."""

    restarts_engine = True


SyncMode.DRAIN, SyncMode.KEEP, SyncMode.RESTART = (component("sync_mode", n) for n in ("drain", "keep", "restart"))


def sync_modes() -> list[SyncMode]:
    """Return every sync mode."""
    return [component("sync_mode", name) for name in names("sync_mode")]
