"""``DesktopProvider``: starts a cluster's desktops in containers, one for each attempt."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from dartsim.real.containers.fleet import DesktopFleet
from dartsim.real.containers.spec import ContainerSpec
from dartsim.real.osworld.boot import start_desktop
from dartsim.real.osworld.desktop import OsworldDesktop
from dartsim.real.osworld.fetch import Downloads
from dartsim.real.osworld.scorer import Scorer
from dartsim.real.osworld.settings import DesktopSettings
from dartsim.real.osworld.transport import ServerTraits, Timeouts


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """How desktops are used once their containers run.

    Attributes:
        settings: How they are shown.
        server: What is known of the server inside.
        downloads: Of task files, shared.
        scorer: Scores tasks.
        timeouts: Of calls.
        on_call: Told the slot, what was done and how many seconds it took, for the run's timings.
    """

    settings: DesktopSettings
    server: ServerTraits
    downloads: Downloads
    scorer: Scorer
    timeouts: Timeouts = field(default_factory=Timeouts)
    on_call: Callable[[int, str, float], None] | None = None


class DesktopProvider:
    """Starts desktops; implements ``dartsim.core.ports.EnvProvider``.

    Args:
        fleet: Where containers run; open.
        spec: What runs.
        usage: How it is used.
    """

    def __init__(self, fleet: DesktopFleet, spec: ContainerSpec, usage: Usage) -> None:
        self._fleet = fleet
        self._spec = spec
        self._usage = usage

    async def start(self, slot: int) -> OsworldDesktop:
        """Start a container and return its desktop once it shows a good screen.

        Raises:
            EnvStartFailed: If it does not; nothing of it is left.
        """
        usage = self._usage

        def tell(what: str, seconds: float) -> None:
            if usage.on_call is not None:
                usage.on_call(slot, what, seconds)

        return await start_desktop(
            self._fleet,
            self._spec,
            slot=slot,
            settings=usage.settings,
            server=usage.server,
            downloads=usage.downloads,
            scorer=usage.scorer,
            timeouts=usage.timeouts,
            on_call=tell,
        )
