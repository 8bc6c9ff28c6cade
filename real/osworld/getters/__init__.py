"""Getters: where the evaluator finds a value. Those that need no browser driver and no foreign service.

A getter is called with the desktop's client, the attempt's folder and its part of the task file. What it returns
goes to a metric: a path on this host, a text, or JSON. A file that is missing on the desktop is None, as in OSWorld:
that is the agent's doing. A desktop that fails raises.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from dartsim.core.errors import TaskFileError
from dartsim.real.osworld.errors import FetchFailed
from dartsim.real.osworld.fetch import check_name, check_url
from dartsim.real.osworld.getters import apps, desktop, files
from dartsim.real.osworld.known import GETTERS, LATER_GETTERS, REFUSED_GETTERS

if TYPE_CHECKING:
    from dartsim.real.osworld.client import VmClient
    from dartsim.real.osworld.fetch import TaskFolder

Config = Mapping[str, Any]
Getter = Callable[["VmClient", "TaskFolder", Config], Awaitable[Any]]

NATIVE: Mapping[str, Getter] = {
    "accessibility_tree": desktop.accessibility_tree,
    "active_window": desktop.active_window,
    "cache_file": files.cache_file,
    "cloud_file": files.cloud_file,
    "content_from_vm_file": files.content_from_vm_file,
    "default_video_player": apps.default_video_player,
    "gimp_config_file": apps.gimp_config_file,
    "list_directory": desktop.list_directory,
    "rule": desktop.rule,
    "time_diff_range": desktop.time_diff_range,
    "vlc_config": apps.vlc_config,
    "vlc_playing_info": apps.vlc_playing_info,
    "vm_command_error": desktop.vm_command_error,
    "vm_command_line": desktop.vm_command_line,
    "vm_file": files.vm_file,
    "vm_screen_size": desktop.vm_screen_size,
    "vm_terminal_output": desktop.vm_terminal_output,
    "vm_wallpaper": desktop.vm_wallpaper,
    "vm_window_size": desktop.vm_window_size,
    "vscode_config": apps.vscode_config,
}
"""Getters of our own, by their name in task files; ``active_window`` is not OSWorld's."""

KNOWN = GETTERS | LATER_GETTERS | frozenset(NATIVE)


def check_getter(config: Config) -> None:
    """Refuse a getter that no evaluator could carry out, or whose files would lie outside the task's folder.

    Raises:
        TaskFileError: If so.
    """
    kind = config["type"]
    if kind in REFUSED_GETTERS:
        raise TaskFileError(f"the getter {kind} is not supported: {REFUSED_GETTERS[kind]}; leave the task out")
    if kind not in KNOWN:
        raise TaskFileError(f"the getter {kind!r} is unknown; known are {', '.join(sorted(KNOWN))}")
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


def _many(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else list(value)
