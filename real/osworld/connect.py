"""``connect``: an ``OsworldDesktop`` over the server at an address, with OSWorld's set-up steps and our scorer.

Whoever starts a desktop passes functions that remove and revert it; without these the desktop is used as it is, and
left running.
"""

from __future__ import annotations

import asyncio
import re
import shutil
import weakref
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from dartsim.core.types import Task
from dartsim.real.osworld.client import VmClient
from dartsim.real.osworld.desktop import OnCall, OsworldDesktop, Scores
from dartsim.real.osworld.fetch import DesktopAddress, Downloads, TaskFolder
from dartsim.real.osworld.scorer import Scorer
from dartsim.real.osworld.settings import DesktopSettings
from dartsim.real.osworld.steps import run_steps
from dartsim.real.osworld.transport import OWN_SERVER, ServerTraits, Timeouts
from dartsim.real.scratch import scratch


class AttemptFolders:
    """Makes a folder for each attempt on one desktop."""

    def __init__(self, address: DesktopAddress, *, downloads: Downloads | None = None) -> None:
        self.address = address
        self.root = scratch("desktop")
        # Removes the folders even if closing the desktop is canceled.
        self.remove = weakref.finalize(self, shutil.rmtree, self.root, ignore_errors=True)
        self.downloads = downloads or Downloads(self.root / "downloads")
        self._count = 0

    def __call__(self, task: Task) -> TaskFolder:
        """Return the folder of the next attempt."""
        self._count += 1
        name = re.sub(r"[^\w.-]", "_", task.id)[:80]
        return TaskFolder(self.root / f"{self._count:04d}-{name}", address=self.address, downloads=self.downloads)


@dataclass(frozen=True, slots=True, kw_only=True)
class DesktopOptions:
    """Settings of a desktop after its server has started.

    Attributes:
        settings: Its screen, the picture shown to the policy, and waits; the ``DesktopAddress`` has the same screen.
        server: Properties of the server inside.
        timeouts: Time limits of calls.
        downloads: Downloads of task files, shared by desktops; by default a temporary folder.
        scorer: Scores states; by default with our own metrics only.
        on_call: Called with the slot, the kind of call and its duration in seconds.
        consoles: Folder for the console output of desktops that do not start; None keeps its last line only.
    """

    settings: DesktopSettings = field(default_factory=DesktopSettings)
    server: ServerTraits = OWN_SERVER
    timeouts: Timeouts = field(default_factory=Timeouts)
    downloads: Downloads | None = None
    scorer: Scores | None = None
    on_call: Callable[[int, str, float], None] | None = None
    consoles: Path | None = None


def connect(
    address: DesktopAddress | str,
    options: DesktopOptions,
    *,
    close: Callable[[], Awaitable[None]] | None = None,
    revert: Callable[[], Awaitable[DesktopAddress]] | None = None,
    on_call: OnCall | None = None,
) -> OsworldDesktop:
    """Return a desktop over a server that is up or coming up; nothing is asked of it yet."""
    width, height = options.settings.screen
    own_address = DesktopAddress(server_url=address) if isinstance(address, str) else address
    full_address = replace(own_address, width=width, height=height, token=options.server.token)
    folders = AttemptFolders(full_address, downloads=options.downloads)

    def client() -> VmClient:
        return VmClient(folders.address.server_url, timeouts=options.timeouts, server=options.server)

    own = Scorer() if options.scorer is None else None

    async def remove() -> None:
        if own is not None:
            await own.aclose()
        await asyncio.to_thread(folders.remove)
        if close is not None:
            await close()

    async def afresh() -> VmClient:
        assert revert is not None
        folders.address = replace(await revert(), width=width, height=height, token=options.server.token)
        return client()

    return OsworldDesktop(
        client(),
        run_steps=run_steps,
        scorer=options.scorer or own or Scorer(),
        where=folders,
        settings=options.settings,
        close=remove,
        revert=None if revert is None else afresh,
        reconnect=client,
        on_call=on_call,
    )
