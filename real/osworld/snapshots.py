"""Saved states of desktops that are virtual machines; implements ``dartsim.core.snapshots.Snapshots``.

A state is the machine's memory and disk. A program in the container (``dartsim/real/desktop/files/vm-run.py``) stores
it on the engine's machine, where every container of the run finds it. The files that the task's set-up created on the
driver's side are stored here.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from dartsim.real.osworld.errors import SnapshotFailed

if TYPE_CHECKING:
    from dartsim.real.containers.host import Container
    from dartsim.real.osworld.desktop import OsworldDesktop


class SavedStates:
    """The states that the desktops of one run have saved.

    Args:
        root: Folder for the files of set-ups; the caller removes it.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.files: dict[tuple[str, str], Path | None] = {}
        """By host and key: a copy of the attempt's files after the set-up, None if there was no set-up yet."""


class DesktopSnapshots:
    """The states that a desktop can return to.

    Args:
        desktop: The desktop.
        container: Returns its present container.
        saved: States that the run's desktops have saved.
    """

    def __init__(self, desktop: OsworldDesktop, container: Callable[[], Container], saved: SavedStates) -> None:
        self._desktop = desktop
        self._container = container
        self._saved = saved

    @property
    def host(self) -> str:
        return self._container().engine.identity

    async def save(self, key: str) -> int:
        """Save the current state; the machine is paused for 1 to 3 s."""
        place = self.host, key
        self._saved.files.pop(place, None)
        with self._desktop.saving() as files:
            size = int(await self._call("save", key))
            copy = None
            if files is not None:
                copy = self._saved.root.joinpath(*place)
                await asyncio.to_thread(_copy, files, copy)
            self._saved.files[place] = copy
        return size

    async def restore(self, key: str) -> None:
        place = self.host, key
        if place not in self._saved.files:
            raise SnapshotFailed(f"there is no saved state {key} on host {place[0]}")
        async with self._desktop.restoring(self._saved.files[place]):
            await self._call("restore", key)

    async def delete(self, key: str) -> None:
        # Also if none is known: a save that was canceled or lost its machine may have left files.
        await self._call("delete", key)
        place = self.host, key
        self._saved.files.pop(place, None)
        await asyncio.to_thread(shutil.rmtree, self._saved.root.joinpath(*place), ignore_errors=True)

    async def _call(self, what: str, key: str) -> str:
        container = self._container()
        assert container.spec.state_command is not None
        code, output = await container.exec([*container.spec.state_command, what, key])
        text = output.decode(errors="replace").strip()
        if code != 0:
            raise SnapshotFailed(f"{container}: {what} {key} ended with exit code {code}: {text or 'no output'}")
        return text


def _copy(source: Path, target: Path) -> None:
    """Copy a folder in place of an older copy; one that is not there counts as empty."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    if source.is_dir():
        shutil.copytree(source, target, dirs_exist_ok=True)
