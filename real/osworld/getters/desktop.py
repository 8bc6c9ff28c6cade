"""Getters of what the desktop shows and what commands on it say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from dartsim.real.osworld.errors import VmBadReply, VmLost, VmMissing

if TYPE_CHECKING:
    from dartsim.real.osworld.client import VmClient
    from dartsim.real.osworld.fetch import TaskFolder
    from dartsim.real.osworld.replies import Executed

_ACTIVE = "{https://accessibility.ubuntu.example.org/ns/state}active"
_FRAMES = ("frame", "dialog", "window", "file-chooser", "alert")


async def rule(client: VmClient, where: TaskFolder, config: Mapping[str, Any]) -> Any:
    """Return what the task file says."""
    return config["rules"]


async def time_diff_range(client: VmClient, where: TaskFolder, config: Mapping[str, Any]) -> Any:
    """Return how many minutes a time may be off."""
    return config.get("diff_range_in_minutes")


async def vm_command_line(client: VmClient, where: TaskFolder, config: Mapping[str, Any]) -> str | None:
    """Run a command on the desktop and return what it writes; None if there is no such program."""
    done = await _command(client, config)
    return None if done is None else done.output


async def vm_command_error(client: VmClient, where: TaskFolder, config: Mapping[str, Any]) -> str | None:
    """Run a command on the desktop and return its errors; None if there is no such program."""
    done = await _command(client, config)
    return None if done is None else done.error


async def _command(client: VmClient, config: Mapping[str, Any]) -> Executed | None:
    try:
        return await client.execute(config["command"], shell=config.get("shell", False))
    except VmBadReply as exc:
        # The server tells Python's error; all others are the desktop's own, such as its time limit.
        if exc.status == 500 and "No such file or directory" in exc.body:
            return None
        raise


async def vm_terminal_output(client: VmClient, where: TaskFolder, config: Mapping[str, Any]) -> str | None:
    """Return the text of the terminal that has the focus; None if none has."""
    return await client.terminal()


async def vm_screen_size(client: VmClient, where: TaskFolder, config: Mapping[str, Any]) -> dict[str, int]:
    """Return the screen's ``width`` and ``height``, pixels."""
    width, height = await client.screen_size()
    return {"width": width, "height": height}


async def vm_window_size(client: VmClient, where: TaskFolder, config: Mapping[str, Any]) -> dict[str, int] | None:
    """Return a window's ``width`` and ``height``, pixels; None if its application shows none."""
    size = await client.window_size(config["app_class_name"])
    return None if size is None else {"width": size[0], "height": size[1]}


async def vm_wallpaper(client: VmClient, where: TaskFolder, config: Mapping[str, Any]) -> str:
    """Fetch the wallpaper; an empty file if there is none."""
    try:
        data = await client.wallpaper()
    except VmMissing:
        data = b""
    return str(await where.write(config["dest"], data))


async def list_directory(client: VmClient, where: TaskFolder, config: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return a folder of the desktop as a tree of ``type``, ``name`` and ``children``; None if it is not there."""
    try:
        return dict(await client.list_directory(config["path"]))
    except VmLost:
        raise
    except VmBadReply as exc:
        if isinstance(exc, VmMissing) or exc.status == 400:
            return None
        raise


async def accessibility_tree(client: VmClient, where: TaskFolder, config: Mapping[str, Any]) -> str:
    """Return the accessibility tree, XML."""
    return await client.accessibility()


async def active_window(client: VmClient, where: TaskFolder, config: Mapping[str, Any]) -> str | None:
    """Return the title of the window that has the focus; None if none has. Not one of OSWorld's getters."""
    for element in ElementTree.fromstring(await client.accessibility()).iter():
        if element.get(_ACTIVE) == "true" and element.tag in _FRAMES:
            return element.get("name") or None
    return None
