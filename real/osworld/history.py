"""Chrome's history, written for a task: pages as if visited some seconds ago."""

from __future__ import annotations

import asyncio
import shlex
import shutil
import sqlite3
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dartsim.real.osworld.failures import SetupFailed

if TYPE_CHECKING:
    from dartsim.real.osworld.client import VmClient
    from dartsim.real.osworld.folder import TaskFolder

EMPTY_URL = (
    "https://huggingface.co/datasets/xlangai/ubuntu_osworld_file_cache/resolve/main/chrome/"
    "44ee5668-ecd5-4366-a6ce-c1c9b8d4e938/history_empty.sqlite?download=true"
)
"""An empty history of the Chrome in OSWorld's image; another version of Chrome throws it away."""
IN_VM = "~/.config/google-chrome/Default/History"
EPOCH_SECONDS = 11_644_473_600
"""From 1601, where Chrome counts microseconds from, to 1970."""
LINKED = 0x3000_0000
"""A transition of Chrome: a link, the first and the last of its chain."""


async def add_visits(visits: Sequence[Mapping[str, Any]], client: VmClient, where: TaskFolder) -> None:
    """Put a history with these visits into the desktop.

    Args:
        visits: Each with ``url``, ``title`` and ``visit_time_from_now_in_seconds``.
        client: The desktop's server.
        where: Where the file is made.

    Raises:
        FetchFailed: If the empty history could not be had.
        SetupFailed: If a visit lacks a field, or the desktop has no home.
    """
    empty = await where.downloads.fetch(EMPTY_URL)
    path = where.inside("history.sqlite")
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        await asyncio.to_thread(write_history, empty, path, visits, now_seconds=time.time())
    except (KeyError, TypeError, sqlite3.Error) as exc:
        raise SetupFailed(f"the browse history could not be written: {type(exc).__name__}: {exc}") from exc
    found = await client.execute(["python3", "-c", f"import os; print(os.path.expanduser({IN_VM!r}))"])
    lines = found.output.split()
    if not lines or not lines[-1].startswith("/"):
        raise SetupFailed(f"found {found.output!r} for the home of the desktop's user, wanted a path")
    await client.upload(lines[-1], await asyncio.to_thread(path.read_bytes))
    # Where the server runs as root, the file would be root's and Chrome could not open it.
    await client.execute(
        f"sudo -n chown --reference={shlex.quote(str(Path(lines[-1]).parent))} {shlex.quote(lines[-1])}", shell=True
    )


def write_history(empty: Path, path: Path, visits: Sequence[Mapping[str, Any]], *, now_seconds: float) -> None:
    """Write a history database with these visits, from an empty one."""
    shutil.copyfile(empty, path)
    with closing(sqlite3.connect(path)) as database, database:
        for visit in visits:
            seconds = now_seconds - float(visit["visit_time_from_now_in_seconds"])
            when = int((seconds + EPOCH_SECONDS) * 1_000_000)
            row = database.execute(
                "INSERT INTO urls (url, title, visit_count, typed_count, last_visit_time, hidden)"
                " VALUES (?, ?, 1, 0, ?, 0)",
                (visit["url"], visit["title"], when),
            )
            database.execute(
                "INSERT INTO visits (url, visit_time, from_visit, transition, segment_id, visit_duration)"
                " VALUES (?, ?, 0, ?, 0, 0)",
                (row.lastrowid, when, LINKED),
            )
