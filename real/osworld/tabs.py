"""Tabs of the desktop's Chrome, opened and closed over its debugging port.

Chrome's own HTTP endpoints (``/json/…``) are enough for this, so that no browser driver has to be installed.
Source: Chrome DevTools Protocol, HTTP endpoints.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from dartsim.real.osworld.failures import SetupFailed

if TYPE_CHECKING:
    import httpx

CONNECT_TRIES = 15
"""As OSWorld: Chrome is often launched by the step before."""
BETWEEN_SECONDS = 5.0
LOAD_SECONDS = 60.0
"""How long a page may load, as OSWorld; one that still loads then is left to it."""
LOOK_SECONDS = 0.5
CALL_SECONDS = 10.0
ERROR_PAGE = "chrome-error://"

_WEB_SUFFIX = re.compile(r"\.(?:(?:co|com|org|net|ac|gov|edu)\.[a-z]{2}|[a-z]{2,})$")


class Tabs:
    """The tabs of one Chrome.

    Args:
        url: Of the debugging port, ``http://host:port``.
        transport: Of the HTTP client; by default the network.
    """

    def __init__(self, url: str, *, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self.url = url.rstrip("/")
        self._transport = transport

    async def open(self, urls: Sequence[str]) -> None:
        """Open a tab for each URL, wait until it has loaded, and close the tab that was there before.

        Raises:
            SetupFailed: If Chrome does not answer, or a page cannot be loaded.
        """
        before = await self._ready()
        for number, url in enumerate(urls):
            tab = await self._call("PUT", f"/json/new?{quote(url, safe='')}")
            await self._loaded(tab["id"], url)
            if number == 0 and before:
                await self._call("GET", f"/json/close/{before[0]['id']}")

    async def close(self, urls: Sequence[str]) -> None:
        """Close the first tab that shows each URL; one that none shows is passed over, as in OSWorld."""
        await self._ready()
        for url in urls:
            for tab in await self.pages():
                if same_page(tab["url"], url):
                    await self._call("GET", f"/json/close/{tab['id']}")
                    break

    async def pages(self) -> list[dict[str, Any]]:
        """Return the tabs: ``id``, ``url``, ``title`` and what else Chrome says of them."""
        found = await self._call("GET", "/json/list")
        return [tab for tab in found if tab.get("type") == "page"]

    async def _ready(self) -> list[dict[str, Any]]:
        for number in range(CONNECT_TRIES):
            if number:
                await asyncio.sleep(BETWEEN_SECONDS)
            try:
                return await self.pages()
            except SetupFailed:
                if number == CONNECT_TRIES - 1:
                    raise
        raise AssertionError("unreachable")

    async def _loaded(self, tab_id: str, url: str) -> None:
        """Wait until a tab's address and title are those of a page, and the same twice."""
        loop = asyncio.get_running_loop()
        until = loop.time() + LOAD_SECONDS
        last: tuple[str, str] | None = None
        while loop.time() < until:
            tab = next((tab for tab in await self.pages() if tab["id"] == tab_id), None)
            if tab is None:
                return  # the page closed itself, or went to another tab
            seen = (tab["url"], tab.get("title", ""))
            if tab["url"].startswith(ERROR_PAGE):
                raise SetupFailed(f"Chrome could not load {url}", cause="setup_tabs_failed")
            # A tab has no title, or its address for one, until its page has begun to load.
            if seen == last and tab["url"] != "about:blank" and seen[1]:
                return
            last = seen
            await asyncio.sleep(LOOK_SECONDS)

    async def _call(self, method: str, path: str) -> Any:
        import httpx

        try:
            async with httpx.AsyncClient(timeout=CALL_SECONDS, transport=self._transport) as client:
                reply = await client.request(method, self.url + path)
                reply.raise_for_status()
                return reply.json() if "/close/" not in path else None
        except (httpx.HTTPError, ValueError) as exc:
            raise SetupFailed(
                f"Chrome's debugging port {self.url} did not answer {path.split('?')[0]}: {type(exc).__name__}: {exc}; "
                "the task must launch Chrome with --remote-debugging-port first",
                cause="setup_tabs_failed",
            ) from exc


def same_page(one: str, other: str) -> bool:
    """Whether two URLs lead to the same page of the same site, whatever country its name ends in."""
    return _normal(one) == _normal(other)


def _normal(url: str) -> tuple[str, str, str, str, str]:
    parts = urlsplit(url if re.match(r"[a-zA-Z][a-zA-Z0-9+.-]*://", url) else f"http://{url}")
    site = _WEB_SUFFIX.sub("", parts.netloc.lower()).removeprefix("www.")
    path = "" if parts.path == "/" else parts.path
    return parts.scheme.lower(), site, path, parts.query, parts.fragment
