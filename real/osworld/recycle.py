"""Restarting the server before it dies of the X clients that it leaks, and checking the memory after an attempt.

OSWorld's server runs in Flask's debug mode: when its file changes, a parent process replaces it, which ends its X
clients and nothing else (``reload_server``). One without that mode is killed (``recycle_server``); its service starts
another about 5 s later, and the programs it has launched may be killed with it. So that is best done between two
attempts. Within one, the windows that were open before must be open afterwards.

A container that runs out of memory keeps running, but an application may be gone, so the desktop looks as if nothing
was done. A score of that state would say nothing about the policy.
"""

from __future__ import annotations

import asyncio
import logging
import math
import re
from typing import TYPE_CHECKING

from dartsim.core.errors import EnvBroken
from dartsim.real.osworld.errors import ApplicationCrashed, DiskFull, OutOfMemory, VmBadReply, VmHung

if TYPE_CHECKING:
    from dartsim.real.osworld.client import VmClient

logger = logging.getLogger(__name__)

# The parent of a command that the server runs is the server.
_WHO = ["bash", "-c", "echo $PPID"]
_KILL = ["bash", "-c", 'server=$PPID; setsid bash -c "sleep 0.3; kill -9 $server" >/dev/null 2>&1 </dev/null &']


_TOUCH = [
    "bash",
    "-c",
    r"""cd /proc/$PPID/cwd && file=$(tr '\0' '\n' < /proc/$PPID/cmdline | grep -m1 '\.py$') && [ -w "$file" ] || exit 1
tr '\0' '\n' < /proc/$PPID/environ | grep -q ^WERKZEUG_RUN_MAIN=true || exit 1
setsid bash -c 'sleep 0.3; touch "$1"' touch "$file" >/dev/null 2>&1 </dev/null &""",
]
"""Touches the server's file, if it is in debug mode; fails otherwise."""


async def reload_server(client: VmClient, *, limit_seconds: float = 30.0) -> bool:
    """Let the server's debug mode replace it, and return whether it has one; programs keep running.

    Raises:
        VmHung: If no other server answers in time.
    """
    try:
        old = await _server_pid(client)
        if (await client.execute(_TOUCH, seconds=client.timeouts.other, action=False)).returncode:
            return False
    except VmBadReply:
        return False
    return await _is_replaced(client, old, "its file was touched", limit_seconds, 0.25, same_seconds=5.0)


async def recycle_server(client: VmClient, *, limit_seconds: float = 30.0, poll_seconds: float = 0.25) -> None:
    """Kill the server and wait until its service has started another.

    Raises:
        VmHung: If no other answers in time.
        VmBadReply: If the desktop does not tell which process the server is.
    """
    old = await _server_pid(client)
    await client.execute(_KILL, seconds=client.timeouts.other)
    await _is_replaced(client, old, "it was killed", limit_seconds, poll_seconds)


async def _is_replaced(
    client: VmClient, old: int, why: str, limit_seconds: float, poll_seconds: float, *, same_seconds: float = math.inf
) -> bool:
    """Wait for another server; return False if the same one still answers after so many seconds."""
    loop = asyncio.get_running_loop()
    until = loop.time() + limit_seconds
    while True:
        await asyncio.sleep(poll_seconds)
        try:
            if await _server_pid(client) != old:
                client.server_restarted()
                return True
            found = "the same one"
            if loop.time() > until - limit_seconds + same_seconds:
                return False
        except EnvBroken as fault:
            client.forget_requests()
            found = str(fault)
        if loop.time() > until:
            raise VmHung(
                f"the server at {client.base_url}: {why}, and {limit_seconds:g} s later there was no other: {found}"
            )


async def _server_pid(client: VmClient) -> int:
    done = await client.execute(_WHO, seconds=client.timeouts.other, action=False)
    # Some desktops print warnings first.
    last = (done.output.split() or [""])[-1]
    if done.returncode != 0 or not last.isdecimal():
        raise VmBadReply(f"found {done!r} when asked for the server's process, wanted its number")
    return int(last)


async def open_windows(client: VmClient) -> frozenset[str] | None:
    """Return the ids of the open windows; None if the desktop cannot list them."""
    try:
        # OSWorld's server activates and closes windows by the same program.
        listed = await client.execute(["wmctrl", "-l"], seconds=client.timeouts.other, action=False)
    except VmBadReply as fault:
        logger.warning("%s cannot list its windows: %s", client.base_url, fault)
        return None
    return None if listed.returncode else frozenset(re.findall(r"^(0x[0-9a-f]+) ", listed.output, re.MULTILINE))


async def is_application(client: VmClient, window: str) -> bool:
    """Whether a window is a program's main window, not a splash screen; assume so if it cannot be queried."""
    words = ["xprop", "-id", window, "_NET_WM_WINDOW_TYPE"]
    try:
        done = await client.execute(words, seconds=client.timeouts.other, action=False)
    except VmBadReply:
        return True
    kinds = re.findall(r"_NET_WM_WINDOW_TYPE_(\w+)", done.output)
    return not kinds or not {"NORMAL", "DIALOG"}.isdisjoint(kinds)


COUNTERS = ("/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control")
"""Files with the counts of the container's own control group, versions 2 and 1."""
# The server writes down which program ended by which signal.
HEALTH = f'cat {" ".join(COUNTERS)} "$XDG_RUNTIME_DIR/crashes" 2>/dev/null; df -k --output=avail "$HOME" | tail -n 1'
"""Prints what has happened in a container since its start, and the kilobytes that are left on its disk."""
LEAST_DISK_KIB = 1024


async def check_health(client: VmClient) -> None:
    """Refuse a desktop that has lost a program by a crash or for lack of memory, or whose disk is full.

    Raises:
        OutOfMemory: If the kernel has killed a program.
        ApplicationCrashed: If a program crashed that the server had started.
        DiskFull: If there is no space left.
        EnvBroken: If the desktop cannot be asked.
    """
    done = await client.execute(HEALTH, shell=True, seconds=client.timeouts.other, action=False)
    killed = sum(int(number) for number in re.findall(r"^oom_kill (\d+)$", done.output, re.MULTILINE))
    if killed:
        raise OutOfMemory(
            f"{client.base_url}: the kernel killed {killed} programs because the container is out of memory; raise "
            "its limit (desktop.memory_mib)"
        )
    if crashes := re.findall(r"^crashed: (.*)$", done.output, re.MULTILINE):
        raise ApplicationCrashed(f"{client.base_url}: {', '.join(crashes)}")
    if (left := re.search(r"^\s*(\d+)\s*$", done.output, re.MULTILINE)) and int(left[1]) < LEAST_DISK_KIB:
        raise DiskFull(f"{client.base_url}: {left[1]} KiB are left on the disk of its home folder")
