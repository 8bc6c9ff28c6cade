"""Getters of files: from the desktop, from the task's folder, from the web."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from dartsim.real.osworld.errors import Unscored, VmMissing

if TYPE_CHECKING:
    from dartsim.real.osworld.client import VmClient
    from dartsim.real.osworld.fetch import TaskFolder

Paths = str | list[str | None] | None
"""One path as a text, several as a list; None for a file that is not there."""


async def vm_file(client: VmClient, where: TaskFolder, config: Mapping[str, Any]) -> Paths:
    """Fetch one file of the desktop, or several (``multi``), and give those that ``gives`` says."""
    pairs = _pairs(config)
    if config.get("time_suffix") and not config.get("multi"):
        path, dest = pairs[0]
        name = PurePosixPath(dest)
        stamp = time.strftime(config.get("time_format", "%Y%m%d_%H%M%S"))
        pairs = [(path, str(name.with_name(f"{name.stem}_{stamp}{name.suffix}")))]
    return _given(config, [await _from_vm(client, where, path, dest) for path, dest in pairs])


async def cloud_file(client: VmClient, where: TaskFolder, config: Mapping[str, Any]) -> Paths:
    """Fetch what is behind one URL, or several, unless it lies in the task's folder already."""
    return _given(config, [str(await where.fetch(url, dest)) for url, dest in _pairs(config)])


async def cache_file(client: VmClient, where: TaskFolder, config: Mapping[str, Any]) -> str:
    """Return a file that a step before has put into the task's folder."""
    path = where.inside(config["path"])
    if not await asyncio.to_thread(path.is_file):
        raise Unscored(f"the task's folder has no file {config['path']!r}; no step has made it", cause="getter_failed")
    return str(path)


async def content_from_vm_file(client: VmClient, where: TaskFolder, config: Mapping[str, Any]) -> list[str] | None:
    """Return the cells of the last row of a spreadsheet, as texts."""
    kind, content = config["file_type"], config["file_content"]
    if (kind, content) != ("xlsx", "last_row"):
        raise Unscored(f"found {content!r} of a {kind!r}, wanted the last_row of an xlsx", cause="getter_unavailable")
    name = PurePosixPath(config["path"]).name
    path = await _from_vm(client, where, config["path"], name)
    return None if path is None else await asyncio.to_thread(_last_row, Path(path))


def _last_row(path: Path) -> list[str]:
    from dartsim.real.osworld.metrics.sheets import read_grid

    rows = read_grid(path, 0)
    # The first row is a header, as pandas reads it.
    return ["nan" if cell is None else str(cell) for cell in rows[-1]] if len(rows) > 1 else []


async def _from_vm(client: VmClient, where: TaskFolder, path: str, dest: str) -> str | None:
    try:
        data = await client.file(path)
    except VmMissing:
        # What an earlier call has fetched is not what is there now.
        where.inside(dest).unlink(missing_ok=True)
        return None
    return str(await where.write(dest, data))


def _pairs(config: Mapping[str, Any]) -> list[tuple[str, str]]:
    if not config.get("multi"):
        return [(config["path"], config["dest"])]
    return list(zip(config["path"], config["dest"], strict=False))


def _given(config: Mapping[str, Any], paths: Sequence[str | None]) -> Paths:
    gives = set(config.get("gives", [0]))
    given = [path for number, path in enumerate(paths) if number in gives]
    return given[0] if len(given) == 1 else given
