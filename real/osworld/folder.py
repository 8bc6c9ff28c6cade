"""``TaskFolder``: where the files of one attempt lie on this host, and the desktop they are about.

Names of files come from task files; none leads out of the folder.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath, PureWindowsPath

from dartsim.core.errors import TaskFileError
from dartsim.real.osworld.fetch import Downloads


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    """What there is to know of a desktop beside its server.

    Attributes:
        server_url: Of the server in the desktop, ``http://host:port``.
        chromium_url: Of Chrome's debugging port, if it is published.
        vlc_url: Of VLC's web interface, if it is published.
        width: Pixels.
        height: Pixels.
        password: Of the desktop's user, for ``{CLIENT_PASSWORD}``.
        vlc_password: Of VLC's web interface.
        token: That the server wants; "" for none.
    """

    server_url: str
    chromium_url: str | None = None
    vlc_url: str | None = None
    width: int = 1920
    height: int = 1080
    password: str = "password"
    vlc_password: str = "password"
    token: str = field(default="", repr=False)

    def fill(self, command: str | Sequence[str]) -> str | list[str]:
        """Return a command with OSWorld's placeholders replaced."""
        if not isinstance(command, str):
            return [str(self.fill(part)) for part in command]
        values = {
            "CLIENT_PASSWORD": self.password,
            "SCREEN_WIDTH_HALF": self.width // 2,
            "SCREEN_HEIGHT_HALF": self.height // 2,
            "SCREEN_WIDTH": self.width,
            "SCREEN_HEIGHT": self.height,
        }
        for name, value in values.items():
            command = command.replace(f"{{{name}}}", str(value))
        return command


class TaskFolder:
    """The files of one attempt.

    Args:
        path: The attempt's own folder, empty at its beginning; made when first written to.
        desk: The desktop it plays on.
        downloads: Shared by all attempts.
    """

    def __init__(self, path: Path, *, desk: Desk, downloads: Downloads) -> None:
        self.path = path
        self.desk = desk
        self.downloads = downloads

    def inside(self, name: str) -> Path:
        """Return the path of a file of the folder.

        Raises:
            TaskFileError: If the name leads out of the folder.
        """
        check_name(name)
        path = self.path / name
        if not path.resolve().is_relative_to(self.path.resolve()):
            raise TaskFileError(f"found the file name {name!r}, whose links lead out of the task's folder")
        return path

    async def write(self, name: str, data: bytes) -> Path:
        """Write a file of the folder and return its path."""
        path = self.inside(name)
        await asyncio.to_thread(_write, path, data)
        return path

    async def fetch(self, url: str, name: str) -> Path:
        """Put what is behind a URL into the folder, unless it is there, and return its path.

        Raises:
            FetchFailed: If it could not be had.
        """
        path = self.inside(name)
        if not await asyncio.to_thread(path.is_file):
            found = await self.downloads.fetch(url)
            # A copy of its own: some metrics look at the files beside it, or write there.
            await asyncio.to_thread(_copy, found, path)
        return path


def check_name(name: str) -> None:
    """Refuse a file name that leads out of the task's folder.

    Raises:
        TaskFileError: If it does.
    """
    posix, windows = PurePosixPath(name), PureWindowsPath(name)
    bad = not name or "\0" in name or posix.is_absolute() or bool(windows.drive) or "\\" in name
    if bad or ".." in posix.parts or str(posix) == ".":
        raise TaskFileError(f"found the file name {name!r}, wanted one inside the task's folder: no '..', no '/' first")


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    # Never through a link: what lies there may come from an archive of the desktop.
    path.unlink(missing_ok=True)
    path.write_bytes(data)


def _copy(source: Path, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)  # never through a link
    shutil.copyfile(source, path)
