"""What tests of pages in a real headless Chromium share."""

from __future__ import annotations

import os
import shutil
from typing import Any

import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
MARKS = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium on the path: apt-get install chromium"),
]
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def options() -> dict[str, Any]:
    """Return how Chromium is started."""
    env = {**os.environ, "DBUS_SESSION_BUS_ADDRESS": "disabled:"}
    return {"executable_path": CHROMIUM, "headless": True, "args": list(FLAGS), "env": env}


class Visitor:
    """A page that keeps what it complains of and which strangers it asks.

    Args:
        context: Of the browser.
        own: What the addresses of its own begin with.
    """

    def __init__(self, context: Any, *own: str) -> None:
        self.page = context.new_page()
        self.complaints: list[str] = []
        self.strangers: list[str] = []
        self._own = (*own, "file:", "data:", "blob:")
        self.page.on("console", self._console)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", self._request)

    def _console(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)

    def _request(self, request: Any) -> None:
        if not request.url.startswith(self._own):
            self.strangers.append(request.url)

    def check(self) -> None:
        assert self.complaints == []
        assert self.strangers == []
