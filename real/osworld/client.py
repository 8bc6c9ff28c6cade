"""``VmClient``: every route of the server inside one desktop.

Reads (screenshot, files, sizes, …) are retried if their answer is lost or broken; requests that may change the desktop
are sent once, see ``transport``. All calls may raise ``VmRefused``, ``VmHung`` and ``VmBadReply``, and those that
change the desktop ``ActionUncertain``; all of these are ``EnvBroken``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Self, TypeVar
from weakref import ref

from dartsim.real.osworld import replies
from dartsim.real.osworld.errors import BadScreenshot
from dartsim.real.osworld.frames import Frame, read_frame
from dartsim.real.osworld.replies import Executed
from dartsim.real.osworld.transport import OSWORLD_SERVER, ServerTraits, Timeouts, Transport

if TYPE_CHECKING:
    import httpx

BUDGET_SHARE = 0.95
"""Share of a server's screenshots to use; the rest is a reserve for one step."""
FREE_SCREENSHOTS = 40
"""As many of OSWorld's 200 as leave one for each of 150 steps."""
SAFE_SCREENSHOTS = 120
"""The same for a server that is known to reload."""

Command = str | Sequence[str]
T = TypeVar("T")


class VmClient:
    """The client of one desktop's server. Calls wait for each other; close it, or use it with ``async with``."""

    def __init__(
        self,
        base_url: str,
        *,
        timeouts: Timeouts = Timeouts(),  # noqa: B008 - frozen
        server: ServerTraits = OSWORLD_SERVER,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self.base_url = base_url.rstrip("/")
        self.timeouts = timeouts
        self.server = server
        self.screenshots = 0
        self.server_starts = 1
        self.can_reload: bool | None = None
        self._last: Callable[[], Frame | None] = lambda: None
        self._wire = Transport(base_url, timeouts=timeouts, traits=server, transport=transport)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        await self._wire.aclose()

    @property
    def refusals(self) -> int:
        """How often a read found the server restarting and waited until it was back."""
        return self._wire.refusals

    @property
    def needs_recycle(self) -> bool:
        """Whether the server has given as many screenshots as it should before a restart."""
        budget = self.server.screenshot_budget
        return budget is not None and self.screenshots >= BUDGET_SHARE * budget

    @property
    def is_leaking(self) -> bool:
        """Whether a server that leaks has given so many that it should reload, or be asked for fewer."""
        free = SAFE_SCREENSHOTS if self.can_reload else FREE_SCREENSHOTS
        return self.server.screenshot_budget is not None and self.screenshots >= free

    def forget_requests(self) -> None:
        """Declare that no earlier request can still be running, for example because the desktop was only booting."""
        self._wire.forget()

    def server_restarted(self) -> None:
        """Declare that the server was restarted: its budget is full, and no old request can still be running."""
        self.screenshots = 0
        self.server_starts += 1
        self._wire.forget()

    async def screenshot(self) -> bytes:
        """Return the screen as PNG, checked to its end.

        Raises:
            BadScreenshot: If each try gave something else.
        """
        return (await self.frame()).png

    async def frame(self, *, patient: bool = True) -> Frame:
        """Return the screen as PNG and as pixels; otherwise as ``screenshot``. Without ``patient`` there is one try."""
        tries = self.server.tries if patient else 1
        while True:
            tries -= 1
            limit = self.timeouts.screenshot
            data = await self._wire.read(
                "GET", "/screenshot", seconds=limit, accept=self._screenshot_reply, patient=patient
            )
            last = self._last()
            if last is not None and data == last.png:
                return last  # a screen that rests is looked at often; decoding it costs 20 ms
            try:
                frame = await asyncio.to_thread(read_frame, data)
                self._last = ref(frame)  # pixels of hundreds of desktops would be gigabytes
                return frame
            except BadScreenshot:
                if tries <= 0:
                    raise
            await asyncio.sleep(self.server.retry_seconds)

    def _screenshot_reply(self, response: httpx.Response) -> bytes:
        self.screenshots += 1
        return replies.ok(response).content

    async def accessibility(self) -> str:
        return str(
            await self._read("GET", "/accessibility", replies.field("AT", str), seconds=self.timeouts.accessibility)
        )

    async def execute(
        self, command: Command, *, shell: bool = False, seconds: float | None = None, action: bool = True
    ) -> Executed:
        """Run a command and return its outcome, whatever its return code.

        Raises:
            VmBadReply: If it could not be started, or the server's own time limit was over.
        """
        send = self._wire.act if action else self._wire.read
        return await send(
            "POST",
            "/execute",
            seconds=self.timeouts.execute if seconds is None else seconds,
            accept=replies.executed,
            json={"command": _plain(command), "shell": shell},
        )

    async def execute_with_verification(
        self,
        command: Command,
        verification: Mapping[str, Any],
        *,
        shell: bool = False,
        max_wait_seconds: float = 10.0,
        check_seconds: float = 1.0,
    ) -> Executed:
        """Run a command and wait until its expected result is seen.

        Raises:
            VmBadReply: If the result was not seen in time.
        """
        return await self._act(
            "/execute_with_verification",
            replies.executed,
            seconds=self.timeouts.execute + max_wait_seconds,
            json={
                "command": _plain(command),
                "shell": shell,
                "verification": dict(verification),
                "max_wait_time": max_wait_seconds,
                "check_interval": check_seconds,
            },
        )

    async def launch(self, command: Command, *, shell: bool = False) -> str:
        """Start a program and do not wait for it."""
        return await self._act("/setup/launch", replies.text, json={"command": _plain(command), "shell": shell})

    async def list_directory(self, path: str) -> dict[str, Any]:
        tree = await self._read(
            "POST",
            "/list_directory",
            replies.field("directory_tree", dict),
            seconds=self.timeouts.file,
            json={"path": path},
        )
        return dict(tree)

    async def file(self, path: str) -> bytes:
        """Return a file of the desktop.

        Raises:
            VmMissing: If there is none.
        """
        return await self._read("POST", "/file", replies.content, seconds=self.timeouts.file, data={"file_path": path})

    async def upload(self, path: str, data: bytes) -> None:
        """Put a file onto the desktop. Repeating this is harmless, so it is retried if the answer is lost."""
        name = PurePosixPath(path).name or "file"
        await self._read(
            "POST",
            "/setup/upload",
            replies.text,
            seconds=self.timeouts.file,
            data={"file_path": path},
            files={"file_data": (name, data)},
        )

    async def open_file(self, path: str, *, seconds: float) -> str:
        """Open a file with its application and wait for a window with its name, ``seconds`` at most.

        Raises:
            VmMissing: If there is no such file.
            ActionUncertain: If no such window came; a dialog may be in its way.
        """
        return await self._act("/setup/open_file", replies.text, seconds=seconds, json={"path": path})

    async def activate_window(self, name: str, *, strict: bool = False, by_class: bool = False) -> str:
        """Bring a window to the front; OSWorld's server does not tell whether there is one."""
        return await self._act("/setup/activate_window", replies.text, json=_window(name, strict, by_class))

    async def close_window(self, name: str, *, strict: bool = False, by_class: bool = False) -> str:
        """Close a window; OSWorld's server does not tell whether there is one."""
        return await self._act("/setup/close_window", replies.text, json=_window(name, strict, by_class))

    async def change_wallpaper(self, path: str) -> str:
        return await self._act("/setup/change_wallpaper", replies.text, json={"path": path})

    async def _read(
        self,
        method: str,
        path: str,
        accept: Callable[[httpx.Response], T],
        *,
        seconds: float | None = None,
        **content: Any,
    ) -> T:
        limit = self.timeouts.other if seconds is None else seconds
        return await self._wire.read(method, path, seconds=limit, accept=accept, **content)

    async def _act(
        self, path: str, accept: Callable[[httpx.Response], T], *, seconds: float | None = None, **content: Any
    ) -> T:
        limit = self.timeouts.other if seconds is None else seconds
        return await self._wire.act("POST", path, seconds=limit, accept=accept, **content)


def _plain(command: Command) -> str | list[str]:
    return command if isinstance(command, str) else [str(each) for each in command]


def _window(name: str, strict: bool, by_class: bool) -> dict[str, Any]:
    return {"window_name": name, "strict": strict, "by_class": by_class}
