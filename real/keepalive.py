"""Options of TCP sockets with which a connection to a host that is gone ends within a minute.

A request that waits for its answer has nothing under way, so that TCP alone never notices that the other side is gone:
a crashed host and a cut cable send nothing.
"""

from __future__ import annotations

import socket

IDLE_SECONDS = 10
"""Silence after which the other side is asked whether it is there."""
PROBE_SECONDS = 5
PROBES = 5
"""Unanswered ones that end a connection: a host may be out of reach for 25 s."""
LOST_SECONDS = IDLE_SECONDS + PROBE_SECONDS * PROBES
"""Longest time until a connection to a host that is gone ends."""

SocketOption = tuple[int, int, int]

_TCP = {
    "TCP_KEEPIDLE": IDLE_SECONDS,
    "TCP_KEEPINTVL": PROBE_SECONDS,
    "TCP_KEEPCNT": PROBES,
    "TCP_USER_TIMEOUT": 1000 * LOST_SECONDS,  # for what was sent and is not acknowledged
}
OPTIONS: list[SocketOption] = [
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    # Some systems lack some of them.
    *((socket.IPPROTO_TCP, int(getattr(socket, name)), value) for name, value in _TCP.items() if hasattr(socket, name)),
]
"""As ``httpx`` takes them."""


def kept_alive(
    address: tuple[int | socket.AddressFamily, int | socket.SocketKind, int, str, tuple[object, ...]],
) -> socket.socket:
    """Return a socket with these options for an address of ``getaddrinfo``, as ``aiohttp`` takes it."""
    family, kind, protocol, *_ = address
    made = socket.socket(family, kind, protocol)
    for option in OPTIONS:
        made.setsockopt(*option)
    return made
