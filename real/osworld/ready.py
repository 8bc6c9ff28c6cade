"""Detects from screenshots, instead of fixed sleeps, when a screen is ready and when it has settled.

OSWorld's runners consider the first HTTP 200 as ready, and sleep 60 s after a set-up and 0 to 10 s after an action. A
200 may come with a black screen, or before an application has painted, and most sleeps are too long. Here a screen is
ready once it shows something and stays the same. Fixed sleeps are available for comparison: a number of seconds in
place of the rules.

A screen that keeps moving is polled less and less, because OSWorld's server survives only so many screenshots.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dartsim.core.errors import EnvBroken
from dartsim.real.osworld.errors import BlackScreen, NotReady, VmHung
from dartsim.real.osworld.frames import Frame, is_black, same
from dartsim.real.osworld.recycle import is_application, open_windows

if TYPE_CHECKING:
    from dartsim.real.osworld.client import VmClient


BLACK_POLL_SECONDS = 5.0
"""Poll interval while a starting desktop is black, because OSWorld's server survives only so many screenshots."""
CHANGE_SECONDS = 10.0
WINDOW_QUIET_SECONDS = 2.0
"""Longest extra wait for a program's first window, which may stay empty as long as it took to appear."""
QUICK_POLLS = 4
"""Consecutive changes before polls slow down; most screens are still by then."""


@dataclass(slots=True)
class ScreenMotion:
    """How long a desktop's screen has been moving."""

    changes: int = 0

    def poll_seconds(self, rules: SettlingRules) -> float:
        """Return the wait before the next poll: it doubles with each change after the first few."""
        doublings = min(max(0, self.changes - QUICK_POLLS), 16)
        return max(rules.poll_seconds, min(rules.poll_seconds * 2.0**doublings, rules.max_poll_seconds))


@dataclass(frozen=True, slots=True, kw_only=True)
class SettlingRules:
    """When the screen has settled after an action.

    Attributes:
        poll_seconds: Interval between two polls.
        max_poll_seconds: Longest interval between polls of a screen that keeps moving.
        quiet_seconds: How long the screen has to stay the same; 0: two equal screenshots in a row.
        cap_seconds: Longest wait; then the newest screenshot is used.
        still_pixels: Pixels that may differ on a screen that is still: a clock, a caret.
        lit_share: Share of the pixels that must show something, or the screen is black; 0 lets black pass.
    """

    poll_seconds: float = 0.1
    max_poll_seconds: float = 5.0
    quiet_seconds: float = 0.0
    cap_seconds: float = 3.0
    still_pixels: int = 200
    lit_share: float = 0.001


@dataclass(frozen=True, slots=True, kw_only=True)
class Readiness(SettlingRules):
    """When a desktop is ready: after its start, or after a task was set up.

    Attributes:
        limit_seconds: Longest wait for a first screenshot that shows something (OSWorld: 300).
        change_seconds: After a set-up that starts a program: longest wait for its window (OSWorld waits 60 s
            whatever happens); for the screen to change after one that only opens something: 10 s of it.
    """

    limit_seconds: float = 300.0
    change_seconds: float = 60.0
    poll_seconds: float = 0.2
    max_poll_seconds: float = 1.0
    quiet_seconds: float = 0.4
    cap_seconds: float = 20.0


async def settle(client: VmClient, rules: SettlingRules | float, motion: ScreenMotion | None = None) -> Frame:
    """Wait until the screen has settled, and return it.

    Raises:
        BlackScreen: If the screen shows nothing, for as long as it may take to settle.
    """
    if not isinstance(rules, SettlingRules):
        await asyncio.sleep(rules)
        return await client.frame()
    if client.is_leaking:
        await asyncio.sleep(rules.cap_seconds)  # then a single screenshot, to save the server's budget
        frame = await client.frame()
        if not is_black(frame, lit_share=rules.lit_share):
            return frame
    return await _lit(client, await client.frame(), rules, motion, after="an action")


async def wait_booted(client: VmClient, rules: Readiness) -> Frame:
    """Wait until a desktop that was started shows a good screen, and return it.

    Raises:
        NotReady: If it does not in time; the message says what was found last.
    """
    loop = asyncio.get_running_loop()
    until = loop.time() + rules.limit_seconds
    found = "nothing"
    poll_seconds = rules.poll_seconds
    while True:
        try:
            frame = await client.frame(patient=False)
            if not is_black(frame, lit_share=rules.lit_share):
                return await _still(client, frame, rules)
            found = "a black screen"
            poll_seconds = min(1.2 * poll_seconds, BLACK_POLL_SECONDS)
        except EnvBroken as fault:
            found = str(fault)
            if isinstance(fault, VmHung):
                client.forget_requests()  # a port may accept connections long before its server runs
        left = until - loop.time() - rules.poll_seconds
        if left < 0:
            raise NotReady(
                f"{client.base_url} showed no good screen within {rules.limit_seconds:g} s; the last try found {found}"
            )
        await asyncio.sleep(min(poll_seconds, max(left, rules.poll_seconds)))


async def wait_opened(client: VmClient, rules: Readiness, *, before: frozenset[str] | None, count: int) -> float:
    """Wait until so many programs have a window of their own, and return for how long; splash screens do not count.

    Args:
        client: Client of the desktop.
        rules: Its longest wait, which is also the wait on a desktop that cannot list its windows.
        before: The windows before the set-up; None if they could not be listed.
        count: How many programs were started.
    """
    loop = asyncio.get_running_loop()
    began = loop.time()
    until, poll_seconds = began + rules.change_seconds, rules.poll_seconds
    ours: set[str] = set()
    while (left := until - loop.time()) > 0:
        windows = None if before is None else await open_windows(client)
        if before is None or windows is None:
            await asyncio.sleep(left)
            break
        ours &= windows
        for window in sorted(windows - before - ours):
            if await is_application(client, window):
                ours.add(window)
        if len(ours) >= count:
            break
        await asyncio.sleep(min(poll_seconds, left))
        poll_seconds = min(1.2 * poll_seconds, rules.max_poll_seconds)
    return loop.time() - began


async def wait_set_up(
    client: VmClient, rules: Readiness, *, before: Frame | None, motion: ScreenMotion | None = None
) -> Frame:
    """Wait until the windows that a set-up has opened are painted, and return the screen.

    Args:
        client: Client of the desktop.
        rules: When the screen is ready.
        before: The screen before the set-up, if that opens a window: the screen has to change first.
        motion: Motion of the screen so far; it is updated.

    Raises:
        BlackScreen: If the screen shows nothing.
    """
    loop = asyncio.get_running_loop()
    began = loop.time()
    frame = await client.frame()
    while before is not None and same(before, frame, still_pixels=rules.still_pixels):
        if loop.time() - began >= min(rules.change_seconds, CHANGE_SECONDS):
            break  # it may have been there before
        await asyncio.sleep(rules.poll_seconds)
        frame = await client.frame()
    return await _lit(client, frame, rules, motion, after="the task was set up")


async def _lit(
    client: VmClient, frame: Frame, rules: SettlingRules, motion: ScreenMotion | None, *, after: str
) -> Frame:
    """Return the settled screen; one that was not black before is given twice the time, as a video may be for a moment.

    Raises:
        BlackScreen: If it shows nothing.
    """
    settled = await _still(client, frame, rules, motion)
    if is_black(settled, lit_share=rules.lit_share) and not is_black(frame, lit_share=rules.lit_share):
        settled = await _still(client, settled, rules, motion)
    if is_black(settled, lit_share=rules.lit_share):
        raise BlackScreen(f"the screen was still black {rules.cap_seconds:g} s after {after}")
    return settled


async def _still(client: VmClient, frame: Frame, rules: SettlingRules, motion: ScreenMotion | None = None) -> Frame:
    """Return the screen once it rests and shows something, or what it shows after the cap."""
    loop = asyncio.get_running_loop()
    motion = motion or ScreenMotion()
    began = since = loop.time()
    while (left := began + rules.cap_seconds - loop.time()) > 0:
        await asyncio.sleep(min(motion.poll_seconds(rules), left))
        newer = await client.frame()
        if not same(frame, newer, still_pixels=rules.still_pixels) or is_black(newer, lit_share=rules.lit_share):
            since = loop.time()
            motion.changes += 1
        else:
            motion.changes = 0
            if loop.time() - since >= rules.quiet_seconds:
                return newer
        frame = newer
    return frame
