"""The desktop's Chrome: opens and closes tabs over its debugging port, and writes its history for a task.

Chrome's own HTTP endpoints (``/json/…``) are enough for this, so no browser driver has to be installed.
Source: Chrome DevTools Protocol, HTTP endpoints.
"""

from __future__ import annotations

import asyncio
import re
import shlex
import shutil
import sqlite3
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from dartsim.real.osworld.errors import SetupFailed, VmBadReply
from dartsim.real.osworld.fetch import EMPTY_HISTORY_URL
from dartsim.real.osworld.replies import MAX_TREE_BYTES

if TYPE_CHECKING:
    import httpx

    from dartsim.real.osworld.client import VmClient
    from dartsim.real.osworld.fetch import TaskFolder

CONNECT_TRIES = 15
"""As in OSWorld, because Chrome is often launched by the previous step."""
BETWEEN_SECONDS = 5.0
LOAD_SECONDS = 60.0
"""Time limit for loading a page, as in OSWorld; a page that is still loading then is left alone."""
LOOK_SECONDS = 0.5
CALL_SECONDS = 10.0
ERROR_PAGE = "chrome-error://"

_WEB_SUFFIX = re.compile(r"\.(?:(?:co|com|org|net|ac|gov|edu)\.[a-z]{2}|[a-z]{2,})$")


class Tabs:
    """The tabs of one Chrome."""

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
        """Close the first tab that shows each URL; URLs without a tab are ignored, as in OSWorld."""
        await self._ready()
        for url in urls:
            for tab in await self.pages():
                if same_page(tab["url"], url):
                    await self._call("GET", f"/json/close/{tab['id']}")
                    break

    async def pages(self) -> list[dict[str, Any]]:
        """Return the tabs: ``id``, ``url``, ``title`` and Chrome's other fields."""
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
            page = (tab["url"], tab.get("title", ""))
            if tab["url"].startswith(ERROR_PAGE):
                raise SetupFailed(f"Chrome could not load {url}", cause="setup_tabs_failed")
            # A tab has no title, or its address for one, until its page has begun to load.
            if page == last and tab["url"] != "about:blank" and page[1]:
                return
            last = page
            await asyncio.sleep(LOOK_SECONDS)

    async def _call(self, method: str, path: str) -> Any:
        import httpx

        from dartsim.real.osworld.exchange import OneExchange

        try:
            # The agent may listen at this port, so it is asked without a proxy and its answer is limited.
            sending = self._transport or OneExchange(max_bytes=MAX_TREE_BYTES)
            async with httpx.AsyncClient(timeout=CALL_SECONDS, transport=sending) as client:
                reply = await client.request(method, self.url + path)
                reply.raise_for_status()
                return reply.json() if "/close/" not in path else None
        except (httpx.HTTPError, ValueError, RecursionError, VmBadReply) as exc:
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


IN_VM = "~/.config/google-chrome/Default/History"
EPOCH_SECONDS = 11_644_473_600
"""From 1601, where Chrome counts microseconds from, to 1970."""
LINKED = 0x3000_0000
"""A transition of Chrome: a link, the first and the last of its chain."""


async def add_visits(visits: Sequence[Mapping[str, Any]], client: VmClient, where: TaskFolder) -> None:
    """Put a history with these visits into the desktop.

    Raises:
        FetchFailed: If the empty history could not be downloaded.
        SetupFailed: If a visit lacks a field, or the desktop has no home.
    """
    empty = await where.downloads.fetch(EMPTY_HISTORY_URL)
    path = where.inside("history.sqlite")
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        await asyncio.to_thread(write_history, empty, path, visits, now_seconds=time.time())
    except (KeyError, TypeError, sqlite3.Error) as exc:
        raise SetupFailed(f"the browse history could not be written: {type(exc).__name__}: {exc}") from exc
    found = await client.execute(["python3", "-c", f"import os; print(os.path.expanduser({IN_VM!r}))"])
    lines = found.output.split()
    if not lines or not lines[-1].startswith("/"):
        raise SetupFailed(f"found {found.output!r} for the home of the desktop's user, wanted a path")
    await client.upload(lines[-1], await asyncio.to_thread(path.read_bytes))
    # If the server runs as root, the file would belong to root and Chrome could not open it.
    await client.execute(
        f"sudo -n chown --reference={shlex.quote(str(Path(lines[-1]).parent))} {shlex.quote(lines[-1])}", shell=True
    )


def write_history(empty: Path, path: Path, visits: Sequence[Mapping[str, Any]], *, now_seconds: float) -> None:
    """Write a history database with these visits, from an empty one."""
    shutil.copyfile(empty, path)
    with closing(sqlite3.connect(path)) as database, database:
        for visit in visits:
            seconds = now_seconds - float(visit["visit_time_from_now_in_seconds"])
            when = int((seconds + EPOCH_SECONDS) * 1_000_000)
            row = database.execute(
                "INSERT INTO urls (url, title, visit_count, typed_count, last_visit_time, hidden)"
                " VALUES (?, ?, 1, 0, ?, 0)",
                (visit["url"], visit["title"], when),
            )
            database.execute(
                "INSERT INTO visits (url, visit_time, from_visit, transition, segment_id, visit_duration)"
                " VALUES (?, ?, 0, ?, 0, 0)",
                (row.lastrowid, when, LINKED),
            )
