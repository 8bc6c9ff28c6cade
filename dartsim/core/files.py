"""Paths inside a folder that others may have written to: none leaves the folder, no link is followed."""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath

from dartsim.core.errors import ConfigError


def below(folder: Path, name: str) -> Path:
    """Return the path of a name below a folder.

    Raises:
        ConfigError: If the name is absolute or leads out of the folder, or a part of it is a link.
    """
    parts = PurePosixPath(name).parts
    if not parts or name.startswith("/") or ".." in parts or "\0" in name:
        raise ConfigError(f"{folder} names the file {name!r}, which is not below it")
    path = folder
    for part in parts:
        path /= part
        if path.is_symlink():
            raise ConfigError(f"{path} is a link; a run's folder has none: put what it points to in its place")
    return path


def refuse_links(folder: Path) -> None:
    """Refuse a folder that has anything but files and folders in it, at any depth.

    Raises:
        ConfigError: If there is a link, a pipe or a device.
    """
    for place, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = Path(place, name)
            if path.is_symlink() or not (path.is_file() or path.is_dir()):
                raise ConfigError(
                    f"{path} is a link, a pipe or a device; a run's folder has only files and folders: remove it, or "
                    "put what it points to in its place"
                )
