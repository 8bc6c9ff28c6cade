"""Stand-in desktops: servers of OSWorld's HTTP protocol, each on a port of its own, that show distinct screenshots.

    python -m dartsim.real.stand_ins.desktops --ports 5000 5001 --host 0.0.0.0

Every action shows another screenshot. Commands succeed; the one that scores says 1 or 0 by chance.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
from aiohttp import web

from dartsim.real.osworld.pyautogui_code import PREFIX
from dartsim.real.stand_ins.screens import Screens
from dartsim.real.stand_ins.serving import serve

SCORE = "dartsim-stand-in-score"
"""The command whose output is the score of an attempt."""
NUMBERS = 2**24
"""Number of distinct screenshots."""


class StandInDesktop:
    """One desktop."""

    def __init__(self, screens: Screens, number: int, of: int) -> None:
        self._screens = screens
        self._next, self._step = number, of
        self._png = b""
        self._pid = 100
        self._scores = np.random.default_rng(number)
        self._change()

    def app(self) -> web.Application:
        app = web.Application(client_max_size=2**28)
        handlers: dict[str, Callable[[web.Request], Awaitable[web.Response]]] = {
            "/screenshot": self._screenshot,
            "/execute": self._execute,
            "/setup/execute": self._execute,
            "/screen_size": self._screen_size,
            "/accessibility": self._accessibility,
        }
        for path, handler in handlers.items():
            app.router.add_route("*", path, handler)
        app.router.add_route("*", "/{path:.*}", self._done)
        return app

    def _change(self) -> None:
        self._png = self._screens.png(self._next % NUMBERS)
        self._next += self._step

    async def _screenshot(self, request: web.Request) -> web.Response:
        return web.Response(body=self._png, content_type="image/png")

    async def _execute(self, request: web.Request) -> web.Response:
        command = (await request.json())["command"]
        text = command if isinstance(command, str) else " ".join(command)
        output = ""
        if PREFIX in text:
            self._change()
        elif SCORE in text:
            output = str(self._scores.integers(2))
        elif "echo $PPID" in text:
            output = f"{self._pid}\n"
        elif "kill -9" in text or "touch" in text:
            self._pid += 1  # another server was started
        return _json({"status": "success", "output": output, "error": "", "returncode": 0})

    async def _screen_size(self, request: web.Request) -> web.Response:
        return _json({"width": self._screens.width, "height": self._screens.height})

    async def _accessibility(self, request: web.Request) -> web.Response:
        return _json({"AT": '<desktop-frame name="main"/>'})

    async def _done(self, request: web.Request) -> web.Response:
        await request.read()
        self._change()
        return web.Response(text="done")


def _json(value: Any) -> web.Response:
    return web.Response(body=json.dumps(value).encode(), content_type="application/json")


def main() -> None:
    """Serve until the process ends."""
    parser = argparse.ArgumentParser(
        prog=f"python -m {__spec__.name}", description=str(__doc__), formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--ports", type=int, nargs="+", required=True, help="one for each desktop; 0 is any")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on")
    parser.add_argument("--width", type=int, default=1920)
    parser.add_argument("--height", type=int, default=1080)
    options = parser.parse_args()
    screens = Screens(options.width, options.height)
    count = len(options.ports)
    apps = [StandInDesktop(screens, number, count).app() for number in range(count)]
    asyncio.run(serve(apps, options.host, options.ports))


if __name__ == "__main__":
    main()
