"""Restarting the server inside a desktop, before it dies of the X clients that it leaks.

OSWorld's server runs as a service that is started again about 5 s after it was killed. The programs it has launched
belong to that service, and may be killed with it; so a server is best restarted between two attempts.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from dartsim.core.errors import EnvBroken
from dartsim.real.osworld.errors import VmBadReply, VmHung

if TYPE_CHECKING:
    from dartsim.real.osworld.client import VmClient

# The parent of a command that the server runs is the server.
_WHO = ["bash", "-c", "echo $PPID"]
_KILL = ["bash", "-c", 'server=$PPID; setsid bash -c "sleep 0.3; kill -9 $server" >/dev/null 2>&1 </dev/null &']


async def recycle_server(client: VmClient, *, limit_seconds: float = 30.0, poll_seconds: float = 0.25) -> None:
    """Kill the server and wait until its service has started another.

    Raises:
        VmHung: If no other answers in time.
        VmBadReply: If the desktop does not tell which process the server is.
    """
    loop = asyncio.get_running_loop()
    old = await _server_pid(client)
    await client.execute(_KILL, seconds=client.timeouts.other)
    until = loop.time() + limit_seconds
    while True:
        await asyncio.sleep(poll_seconds)
        try:
            if await _server_pid(client) != old:
                client.server_restarted()
                return
            found = "the same one"
        except EnvBroken as fault:
            client.forget_requests()
            found = str(fault)
        if loop.time() > until:
            raise VmHung(
                f"the server at {client.base_url} was killed, and {limit_seconds:g} s later there was no other: {found}"
            )


async def _server_pid(client: VmClient) -> int:
    done = await client.execute(_WHO, seconds=client.timeouts.other, action=False)
    # Some desktops print warnings first.
    last = (done.output.split() or [""])[-1]
    if done.returncode != 0 or not last.isdecimal():
        raise VmBadReply(f"found {done!r} when asked for the server's process, wanted its number")
    return int(last)
