"""Restricts the hosts that task files may make this machine contact to the public internet."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import urllib.request
from collections.abc import Awaitable, Callable, Sequence

from dartsim.real.osworld.errors import FetchFailed

Resolve = Callable[[str], Awaitable[Sequence[str]]]


async def resolve(host: str) -> Sequence[str]:
    """Return the addresses of a host.

    Raises:
        OSError: If it has none.
    """
    found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return [str(entry[4][0]) for entry in found]


def is_public(address: str) -> bool:
    """Whether an address is one of the public internet: not this host, its networks, or a cloud's metadata."""
    found = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(found, ipaddress.IPv6Address):
        found = found.ipv4_mapped or found.sixtofour or found
    return found.is_global and not found.is_multicast


async def check_public(host: str, look_up: Resolve = resolve) -> None:
    """Refuse a host that has an address outside the public internet.

    Raises:
        FetchFailed: If so.
        ConnectError: If it has no address. Behind a proxy, which resolves names itself, that is not an error.
    """
    import httpx

    try:
        found = await look_up(host.strip("[]"))
    except OSError as error:
        if urllib.request.getproxies():
            return
        raise httpx.ConnectError(f"{host} has no address: {error}") from error
    if private := [address for address in found if not is_public(address)]:
        raise FetchFailed(
            f"found the host {host!r} at {', '.join(private)}, wanted one of the public internet; name it in "
            "desktop.download_hosts to allow it"
        )
