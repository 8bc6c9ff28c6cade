"""Getters that need only the desktop's server; they run in the driver. All others are those of ``desktop-env``.

A getter is called with the desktop's client, the attempt's folder and its part of the task file. Its result goes to a
metric: a file, a text, or JSON. A file that is missing on the desktop is None, as in OSWorld, because the agent caused
that. A desktop that fails raises.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from dartsim.core.errors import TaskFileError
from dartsim.real.osworld.errors import FetchFailed, VmBadReply, VmLost, VmMissing
from dartsim.real.osworld.fetch import check_name, check_url
from dartsim.real.osworld.replies import MAX_REPLY_BYTES
from dartsim.real.scoring.sandbox import FileInput, ScoreFault
from dartsim.real.scoring.sandboxed.wire import CAN_BE_SENT, free_name

if TYPE_CHECKING:
    from dartsim.real.osworld.client import VmClient
    from dartsim.real.osworld.fetch import TaskFolder
    from dartsim.real.osworld.replies import Executed

Config = Mapping[str, Any]
Getter = Callable[["VmClient", "TaskFolder", Config], Awaitable[Any]]
Files = FileInput | list[FileInput | None] | None
"""One file, or several as a list; None for a file that is not there."""

REFUSED_GETTERS = {"googledrive_file": "it reads the files of a Google account"}
"""Getters that OSWorld knows and we refuse, and why."""


async def rule(client: VmClient, where: TaskFolder, config: Config) -> Any:
    """Return the rule in the task file."""
    return config["rules"]


async def vm_command_line(client: VmClient, where: TaskFolder, config: Config) -> str | None:
    """Run a command on the desktop and return its output; None if there is no such program."""
    done = await _command(client, config)
    return None if done is None else done.output


async def vm_command_error(client: VmClient, where: TaskFolder, config: Config) -> str | None:
    """Run a command on the desktop and return its errors; None if there is no such program."""
    done = await _command(client, config)
    return None if done is None else done.error


async def _command(client: VmClient, config: Config) -> Executed | None:
    try:
        return await client.execute(config["command"], shell=config.get("shell", False))
    except VmBadReply as exc:
        # The server reports Python's error; other failures are the desktop's own, such as its time limit.
        if exc.status == 500 and "No such file or directory" in exc.body:
            return None
        raise


async def list_directory(client: VmClient, where: TaskFolder, config: Config) -> dict[str, Any] | None:
    """Return a folder of the desktop as a tree of ``type``, ``name`` and ``children``; None if it is not there."""
    try:
        return dict(await client.list_directory(config["path"]))
    except VmLost:
        raise
    except VmBadReply as exc:
        if isinstance(exc, VmMissing) or exc.status == 400:
            return None
        raise


async def vm_file(client: VmClient, where: TaskFolder, config: Config) -> Files:
    """Fetch one file of the desktop, or several (``multi``), and give those that ``gives`` says."""
    pairs = _pairs(config)
    if config.get("time_suffix") and not config.get("multi"):
        path, dest = pairs[0]
        name = PurePosixPath(dest)
        stamp = time.strftime(config.get("time_format", "%Y%m%d_%H%M%S"))
        pairs = [(path, str(name.with_name(f"{name.stem}_{stamp}{name.suffix}")))]
    return _given(config, [await _from_vm(client, where, *names) for names in _places(pairs)])


async def cloud_file(client: VmClient, where: TaskFolder, config: Config) -> Files:
    """Download one URL, or several."""
    return _given(
        config, [FileInput(await where.fetch(url, place), dest) for url, dest, place in _places(_pairs(config))]
    )


async def cache_file(client: VmClient, where: TaskFolder, config: Config) -> FileInput:
    """Return a file that an earlier step has put into the task's folder."""
    path = where.inside(config["path"])
    if not await asyncio.to_thread(path.is_file):
        message = f"the task's folder has no file {config['path']!r}; no step has made it"
        raise ScoreFault(message, cause="getter_failed", of_task=True)
    return FileInput(path, config["path"])


GETTERS: Mapping[str, Getter] = {
    function.__name__: function
    for function in (cache_file, cloud_file, list_directory, rule, vm_command_error, vm_command_line, vm_file)
}
"""Getters of the driver, by their name in task files."""


def check_getter(config: Config) -> None:
    """Refuse a getter that we do not support, or whose files would lie outside the task's folder.

    Raises:
        TaskFileError: If so.
    """
    kind = config["type"]
    if kind in REFUSED_GETTERS:
        raise TaskFileError(f"the getter {kind} is not supported: {REFUSED_GETTERS[kind]}; leave the task out")
    names = ("dest", "path") if kind == "cache_file" else ("dest",)
    for name in names:
        for value in _many(config.get(name, ())):
            check_name(value)
    if kind == "cloud_file":
        for value in _many(config.get("path", ())):
            try:
                check_url(value)
            except FetchFailed as exc:
                raise TaskFileError(f"the getter {kind}: {exc}") from None


async def _from_vm(client: VmClient, where: TaskFolder, path: str, dest: str, place: str) -> FileInput | None:
    try:
        data = await client.file(path)
    except VmMissing:
        # A file fetched by an earlier call is out of date.
        where.inside(place).unlink(missing_ok=True)
        return None
    except VmLost:
        raise
    except VmBadReply as fault:
        # A folder in its place, or a file that is unreadable or too large, is caused by the agent.
        done = await client.execute(["python3", "-c", CAN_BE_SENT, path, str(MAX_REPLY_BYTES)])
        if done.output.split()[-1:] == ["False"]:
            return None
        raise VmBadReply(f"{fault}, although the desktop can read the file") from fault
    return FileInput(await where.write(place, data), dest)


def _pairs(config: Config) -> list[tuple[str, str]]:
    if not config.get("multi"):
        return [(config["path"], config["dest"])]
    return list(zip(config["path"], config["dest"], strict=False))


def _places(pairs: Sequence[tuple[str, str]]) -> list[tuple[str, str, str]]:
    """Return pairs with the place of each file in the folder, where it meets none before it."""
    places: list[str] = []
    for _, dest in pairs:
        places.append(free_name(dest, places))
    return [(path, dest, place) for (path, dest), place in zip(pairs, places, strict=True)]


def _given(config: Config, files: Sequence[FileInput | None]) -> Files:
    gives = set(config.get("gives", [0]))
    # Metrics of spreadsheets look for a sheet's text beside the book.
    others = tuple(file for number, file in enumerate(files) if file and number not in gives)
    given = [file and replace(file, beside=others) for number, file in enumerate(files) if number in gives]
    return given[0] if len(given) == 1 else given


def _many(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else list(value)
