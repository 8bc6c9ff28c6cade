"""Set-up steps of a task file, which run on a desktop before an attempt (``config``) or its scoring (``postconfig``).

A step that fails raises, so no attempt starts in a wrong state. This departs from OSWorld, which only logs a failed
window, wallpaper, launch or command. A command that ran and returned something other than 0 has not failed; many tasks
rely on that.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import math
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dartsim.core.errors import EnvBroken, TaskFileError
from dartsim.real.osworld.chrome import Tabs, add_visits
from dartsim.real.osworld.errors import FetchFailed, SetupFailed, VmBadReply, VmLost
from dartsim.real.osworld.fetch import TaskFolder, check_name, check_url, local_file

if TYPE_CHECKING:
    from dartsim.real.osworld.client import VmClient
    from dartsim.real.osworld.replies import Executed

logger = logging.getLogger(__name__)

REFUSED_STEPS = {
    "login": "it signs in to a Google account",
    "googledrive": "it changes the files of a Google account",
    "proxy": "it sends the desktop's traffic through a paid proxy",
    "act": "OSWorld names it and never wrote it",
    "replay": "OSWorld names it and never wrote it",
    "tidy_desktop": "OSWorld names it and never wrote it",
}
"""Steps that OSWorld knows and we refuse, and why."""

OPEN_SECONDS = 300.0
"""How long a file may take to open; the server itself would wait for 1,800 s."""
UNTIL_SECONDS = 300.0
"""How long a command is repeated until its condition is met; OSWorld repeats forever."""
BETWEEN_SECONDS = 0.3
MAX_FAILURES = 5
MAX_SLEEP_SECONDS = 600.0
CHROME_SECONDS = 5.0
"""Wait before closing tabs, as in OSWorld."""

Command = str | list[str]
Files = list[dict[str, str]]


async def run_steps(steps: Sequence[Mapping[str, Any]], client: VmClient, where: TaskFolder) -> None:
    """Carry out steps one after another.

    Raises:
        SetupFailed: If one failed.
        EnvBroken: If the desktop failed; a note names the step.
        TaskFileError: If a step is not one that ``check_steps`` accepts; nothing was done then.
    """
    check_steps(steps)
    for number, step in enumerate(steps, 1):
        place = f"step {number} of {len(steps)} ({step['type']})"
        try:
            await STEPS[step["type"]](client, where, **step.get("parameters", {}))
        except FetchFailed as exc:
            raise SetupFailed(f"{place}: {exc}", cause="setup_download_failed") from exc
        except VmLost as exc:
            exc.add_note(f"in {place}")
            raise
        except VmBadReply as exc:
            raise SetupFailed(f"{place}: {exc}") from exc
        except SetupFailed as exc:
            raise SetupFailed(f"{place}: {exc}", cause=exc.cause) from exc
        except EnvBroken as exc:
            exc.add_note(f"in {place}")
            raise
        except OSError as exc:  # one file of the task is a folder of another
            raise SetupFailed(f"{place}: {exc}") from exc


def check_steps(steps: Sequence[Mapping[str, Any]]) -> None:
    """Refuse steps that cannot be carried out, before anything is done.

    Raises:
        TaskFileError: If a step is unknown or refused, or its parameters are invalid.
    """
    for number, step in enumerate(steps, 1):
        kind = step["type"]
        place = f"step {number} of {len(steps)} ({kind})"
        if kind in REFUSED_STEPS:
            raise TaskFileError(f"{place} is not supported: {REFUSED_STEPS[kind]}; leave the task out")
        if kind not in STEPS:
            raise TaskFileError(f"{place} is unknown; known are {', '.join(sorted(STEPS))}")
        parameters = step.get("parameters", {})
        try:
            inspect.signature(STEPS[kind]).bind(None, None, **parameters)
            _check(kind, parameters)
        except (TypeError, ValueError, OverflowError, FetchFailed, TaskFileError) as exc:
            raise TaskFileError(f"{place}: {exc}") from None


def _check(kind: str, parameters: Mapping[str, Any]) -> None:
    for name, value in parameters.items():
        allows, words = _CHECKS.get(name, (None, ""))
        if allows is not None and not allows(value):
            raise ValueError(f"found {name} = {value!r}, wanted {words}")
        if name in ("stdout", "stderr") and value:
            check_name(value)
    for file in parameters.get("files", ()):
        wanted = {"path", "url" if kind == "download" else "local_path"}
        if not wanted <= set(file) or not all(isinstance(file[key], str) and file[key] for key in wanted):
            raise ValueError(f"found the file {file!r}, wanted {' and '.join(sorted(wanted))}")
        if kind == "download":
            check_url(file["url"])
        if file["path"].endswith("/"):
            raise ValueError(f"found the path {file['path']!r}, wanted the path of a file")


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value)


def _is_command(value: Any) -> bool:
    words = [value] if isinstance(value, str) else value
    return isinstance(words, list) and all(isinstance(word, str) for word in words) and bool(words and words[0])


def _is_seconds(value: Any) -> bool:
    number = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    return number and 0 <= value <= MAX_SLEEP_SECONDS


def _is_urls(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_text, value))


def _is_list(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, dict) for item in value)


def _is_until(value: Any) -> bool:
    kinds = {"returncode": int, "stdout": str, "stderr": str}
    return not value or (isinstance(value, dict) and all(isinstance(value[key], kinds.get(key, ())) for key in value))


_SECONDS = (_is_seconds, f"0 to {MAX_SLEEP_SECONDS:g} s")
_URLS = (_is_urls, "a list of URLs")
_CHECKS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "command": (_is_command, "words"),
    "path": (_is_text, "text"),
    "window_name": (_is_text, "text"),
    "seconds": _SECONDS,
    "max_wait_time": _SECONDS,
    "check_interval": _SECONDS,
    "stdout": (lambda value: not value or _is_text(value), "text"),
    "stderr": (lambda value: not value or _is_text(value), "text"),
    "urls_to_open": _URLS,
    "urls_to_close": _URLS,
    "files": (_is_list, "a list of objects"),
    "history": (_is_list, "a list of objects"),
    "until": (_is_until, "returncode, stdout or stderr"),
    "verification": (lambda value: not value or isinstance(value, dict), "window_exists or command_success"),
}
"""Checks of parameters, and a description of the valid values."""


async def _download(client: VmClient, where: TaskFolder, files: Files) -> None:
    for file in files:
        found = await where.downloads.fetch(file["url"])
        await client.upload(file["path"], await asyncio.to_thread(found.read_bytes))


async def _upload_file(client: VmClient, where: TaskFolder, files: Files) -> None:
    for file in files:
        found = local_file(file["local_path"], where.downloads.sources)
        await client.upload(file["path"], await asyncio.to_thread(found.read_bytes))


async def _open(client: VmClient, where: TaskFolder, path: str) -> None:
    await client.open_file(path, seconds=OPEN_SECONDS)


async def _launch(client: VmClient, where: TaskFolder, command: Command, shell: bool = False) -> None:
    if isinstance(command, str) and not shell:
        command = command.split()
    await client.launch(command, shell=shell)


WINDOWLESS = frozenset({"socat", "sh", "bash"})
"""Programs without a window that tasks launch."""


def launched_programs(steps: Sequence[Mapping[str, Any]]) -> set[str]:
    """Return the programs that set-up steps launch, except those without a window."""
    programs = set()
    for step in steps:
        if step.get("type") == "launch":
            command = step["parameters"]["command"]
            words = command.split() if isinstance(command, str) else command
            name = next((word for word in words if not re.match(r"\w+=", word)), "")
            programs.add(name.rpartition("/")[2])
    return programs - WINDOWLESS


async def _execute(
    client: VmClient,
    where: TaskFolder,
    command: Command,
    stdout: str = "",
    stderr: str = "",
    shell: bool = False,
    until: Mapping[str, Any] | None = None,
) -> None:
    filled = where.address.expand_placeholders(command)
    loop = asyncio.get_running_loop()
    give_up = loop.time() + UNTIL_SECONDS
    failures = 0
    while True:
        try:
            done = await client.execute(filled, shell=shell)
        except VmBadReply:
            failures += 1
            if not until or failures >= MAX_FAILURES:
                raise
        else:
            if done.returncode:
                logger.info("a set-up command returned %d: %s", done.returncode, done.error[-200:])
            if stdout:
                await where.write(stdout, done.output.encode())
            if stderr:
                await where.write(stderr, done.error.encode())
            if not until or _met(until, done):
                return
        if loop.time() > give_up:
            raise SetupFailed(
                f"{command!r} did not come to {until!r} in {UNTIL_SECONDS:g} s", cause="setup_until_never_met"
            )
        await asyncio.sleep(BETWEEN_SECONDS)


def _met(until: Mapping[str, Any], done: Executed) -> bool:
    """Whether one of the conditions holds."""
    return (
        ("returncode" in until and done.returncode == until["returncode"])
        or ("stdout" in until and until["stdout"] in done.output)
        or ("stderr" in until and until["stderr"] in done.error)
    )


async def _execute_with_verification(
    client: VmClient,
    where: TaskFolder,
    command: Command,
    verification: Mapping[str, Any] | None = None,
    max_wait_time: float = 10,
    check_interval: float = 1.0,
    shell: bool = False,
) -> None:
    await client.execute_with_verification(
        where.address.expand_placeholders(command),
        verification=dict(verification or {}),
        shell=shell,
        max_wait_seconds=max_wait_time,
        check_seconds=check_interval,
    )


async def _sleep(client: VmClient, where: TaskFolder, seconds: float) -> None:
    await asyncio.sleep(seconds)


async def _activate_window(
    client: VmClient, where: TaskFolder, window_name: str, strict: bool = False, by_class: bool = False
) -> None:
    await client.activate_window(window_name, strict=strict, by_class=by_class)


async def _close_window(
    client: VmClient, where: TaskFolder, window_name: str, strict: bool = False, by_class: bool = False
) -> None:
    await client.close_window(window_name, strict=strict, by_class=by_class)


async def _change_wallpaper(client: VmClient, where: TaskFolder, path: str) -> None:
    await client.change_wallpaper(path)


async def _chrome_open_tabs(client: VmClient, where: TaskFolder, urls_to_open: list[str]) -> None:
    await _tabs(where).open(urls_to_open)


async def _chrome_close_tabs(client: VmClient, where: TaskFolder, urls_to_close: list[str]) -> None:
    await asyncio.sleep(CHROME_SECONDS)
    await _tabs(where).close(urls_to_close)


def _tabs(where: TaskFolder) -> Tabs:
    if where.address.chromium_url is None:
        raise SetupFailed(
            "the desktop publishes no debugging port of Chrome; publish its port 9222", cause="setup_tabs_failed"
        )
    return Tabs(where.address.chromium_url)


async def _update_browse_history(client: VmClient, where: TaskFolder, history: list[dict[str, Any]]) -> None:
    await add_visits(history, client, where)


Step = Callable[..., Awaitable[None]]

STEPS: Mapping[str, Step] = {
    "download": _download,
    "upload_file": _upload_file,
    "open": _open,
    "launch": _launch,
    "execute": _execute,
    "command": _execute,
    "execute_with_verification": _execute_with_verification,
    "sleep": _sleep,
    "activate_window": _activate_window,
    "close_window": _close_window,
    "change_wallpaper": _change_wallpaper,
    "chrome_open_tabs": _chrome_open_tabs,
    "chrome_close_tabs": _chrome_close_tabs,
    "update_browse_history": _update_browse_history,
}
"""Every step type that is carried out, by its name in task files."""
