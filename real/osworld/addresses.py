"""Which addresses task files may make this host ask: those of the public internet, and hosts that are allowed by name.

A name is looked up once, all of its addresses are judged, and the connection goes to the judged address, so that a
name that answers differently a second time (DNS rebinding) leads nowhere else. Every redirection is a request of its
own and is judged as one.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import urllib.request
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from dartsim.real.osworld.errors import FetchFailed

if TYPE_CHECKING:
    import httpx

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
LOCAL_NAMES = ("localhost", "localhost.localdomain", "ip6-localhost")
LOCAL_DOMAINS = (".localhost", ".internal", ".local")


async def resolve(host: str, port: int) -> Sequence[str]:
    """Return the addresses of a host."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(entry[4][0]) for entry in found]


def is_public(address: str) -> bool:
    """Whether an address is one of the public internet: not this host, its networks, or a cloud's metadata."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(found, "ipv4_mapped", None) or getattr(found, "sixtofour", None)
    if mapped is not None:
        return is_public(str(mapped))
    teredo = getattr(found, "teredo", None)
    if teredo is not None:
        return False
    return found.is_global and not found.is_multicast and not found.is_reserved


def check_host(host: str, allowed: Collection[str]) -> None:
    """Refuse a host that is no public one by its name alone; nothing is looked up.

    Raises:
        FetchFailed: If so.
    """
    name = host.strip("[]").rstrip(".").lower()
    if name in allowed:
        return
    # What the resolver of the C library would take for an address, such as 127.1 or 0x7f000001.
    with suppress(OSError):
        name = socket.inet_ntoa(socket.inet_aton(name))
    is_address = ":" in name or name.replace(".", "").isdigit()
    local = name in LOCAL_NAMES or name.endswith(LOCAL_DOMAINS)
    if local or not name or (is_address and not is_public(name)):
        raise FetchFailed(
            f"found the host {host!r}, wanted one of the public internet; name it in desktop.download_hosts to allow it"
        )


def behind_proxy(scheme: str) -> bool:
    """Whether the environment names a proxy, which then looks names up."""
    proxies = urllib.request.getproxies()
    return scheme in proxies or "all" in proxies


def guarded(
    inner: httpx.AsyncBaseTransport, *, allowed: Collection[str], look_up: Resolve = resolve
) -> httpx.AsyncBaseTransport:
    """Return a transport that connects to judged addresses only."""
    import httpx as web

    class Guarded(web.AsyncBaseTransport):
        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            host, url = request.url.host, request.url
            check_host(host, allowed)
            if host.lower() in allowed:
                return await inner.handle_async_request(request)
            try:
                found = await look_up(host, url.port or (443 if url.scheme == "https" else 80))
            except OSError as error:
                raise web.ConnectError(f"{host} has no address: {error}") from error
            private = [address for address in found if not is_public(address)]
            if private or not found:
                raise FetchFailed(
                    f"found the host {host!r} at {', '.join(private) or 'no address'}, wanted one of the public "
                    "internet; name it in desktop.download_hosts to allow it"
                )
            # The Host header and the name that the certificate is checked for stay those of the URL.
            pinned = web.Request(
                request.method,
                url.copy_with(host=found[0]),
                headers=request.headers,
                stream=request.stream,
                extensions={**request.extensions, "sni_hostname": host},
            )
            return await inner.handle_async_request(pinned)

        async def aclose(self) -> None:
            await inner.aclose()

    return Guarded()
