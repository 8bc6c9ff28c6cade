"""``WarmProvider``: desktops booted ahead, so that a slot's next attempt need not wait for a boot.

A slot takes a booted spare if there is one, and otherwise boots its own desktop; a returned desktop is torn down in the
background. So a slot waits for neither a tear-down nor a boot between attempts, as long as spares keep up. All
desktops, spares included, take at most ``num_envs + num_spares`` places.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from collections.abc import Sequence

from dartsim.config.sections.rollout import RolloutConfig
from dartsim.core.answers import close_desktop, start_desktop, text_of
from dartsim.core.backoff import backoff_seconds
from dartsim.core.errors import EnvStartFailed, cause_of
from dartsim.core.ports import AsyncEnv, EnvProvider
from dartsim.observe import DesktopState, Recorder, Track

logger = logging.getLogger(__name__)

Place = int
"""A slot number of the inner provider."""

START_BACKOFF_SECONDS = 5.0
"""Wait after a failed start, doubled each time."""


def fitting_spares(config: RolloutConfig, hosts_gib: Sequence[float], desktop_gib: float) -> int:
    """Return how many of the configured spares fit into memory besides the slots."""
    if desktop_gib <= 0.0 or math.inf in hosts_gib:
        return config.warm_envs
    places = sum(int(max(0.0, gib - config.host_reserve_gib) // desktop_gib) for gib in hosts_gib)
    return min(config.warm_envs, max(0, places - config.num_envs))


class LentDesktop:
    """A desktop and the place it occupies; implements ``dartsim.core.ports.AsyncEnv``."""

    __slots__ = ("_owner", "env", "evaluate", "place", "reset", "step")

    def __init__(self, owner: WarmProvider, place: Place, env: AsyncEnv) -> None:
        self._owner = owner
        self.place = place
        self.env = env
        self.reset = env.reset
        self.step = env.step
        self.evaluate = env.evaluate

    async def close(self) -> None:
        self._owner.take_back(self)


class WarmProvider:
    """Starts desktops ahead of their use; implements ``dartsim.core.ports.EnvProvider``.

    ``run`` boots the spares and tears down returned desktops; it must run as long as desktops are requested.

    Args:
        inner: Starts desktops.
        config: Number of slots, and of tries to start a desktop.
        tracks: One for each spare.
        recorder: Records states and faults.
    """

    def __init__(
        self,
        inner: EnvProvider,
        config: RolloutConfig,
        tracks: Sequence[Track],
        recorder: Recorder,
    ) -> None:
        if not tracks:
            raise ValueError("a warm provider keeps at least 1 spare, got none")
        self.inner = inner
        self._tracks = tracks
        self._limits = config.limits
        self._recorder = recorder
        self._free: deque[Place] = deque(range(config.num_envs + len(tracks)))
        self._ready: deque[tuple[LentDesktop, asyncio.Event]] = deque()
        self._slots: deque[asyncio.Future[Place | LentDesktop]] = deque()
        self._spares: deque[asyncio.Future[Place | LentDesktop]] = deque()
        self._closing: set[asyncio.Task[None]] = set()

    @property
    def num_ready(self) -> int:
        return len(self._ready)

    async def start(self, slot: int) -> AsyncEnv:
        """Return a booted spare, or boot a desktop if none is ready."""
        spare = await self._next()
        if isinstance(spare, LentDesktop):
            self._recorder.counts["warm/hits"] += 1
            return spare
        self._recorder.counts["warm/misses"] += 1
        return await self._boot(spare)

    def take_back(self, desktop: LentDesktop) -> None:
        """Tear a desktop down in the background, which frees its place."""
        if desktop.place < 0:
            return  # it was closed twice
        closing = LentDesktop(self, desktop.place, desktop.env)
        desktop.place = -1
        task = asyncio.get_running_loop().create_task(self._close(closing), name=f"close-{closing.place}")
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def run(self) -> None:
        """Keep spares booted until cancelled; then tear everything down."""
        try:
            async with asyncio.TaskGroup() as group:
                for number, track in enumerate(self._tracks):
                    group.create_task(self._keep(track), name=f"spare-{number}")
        finally:
            while self._ready:
                self.take_back(self._ready.popleft()[0])
            for track in self._tracks:
                track.enter(DesktopState.OFF)
            if self._closing:
                await asyncio.wait(sorted(self._closing, key=asyncio.Task.get_name))

    async def _next(self) -> Place | LentDesktop:
        """Return a spare or, failing that, a place for a slot to boot in."""
        if self._ready:
            desktop, taken = self._ready.popleft()
            taken.set()
            return desktop
        if self._free:
            return self._free.popleft()
        return await self._wait(self._slots)

    async def _wait(self, line: deque[asyncio.Future[Place | LentDesktop]]) -> Place | LentDesktop:
        """Wait in a line for a place or a spare; if cancelled, pass on what was given at the same time."""
        waiting: asyncio.Future[Place | LentDesktop] = asyncio.get_running_loop().create_future()
        line.append(waiting)
        try:
            return await waiting
        except asyncio.CancelledError:
            if waiting.done() and not waiting.cancelled():
                given = waiting.result()
                if isinstance(given, LentDesktop):
                    self.take_back(given)
                else:
                    self._free_place(given)
            raise

    def _free_place(self, place: Place) -> None:
        """Give a place to a waiting slot, else to a waiting spare, else keep it free."""
        for waiting in (self._slots, self._spares):
            while waiting:
                future = waiting.popleft()
                if not future.done():
                    future.set_result(place)
                    return
        self._free.append(place)

    async def _keep(self, track: Track) -> None:
        """Boot spares one after the other."""
        failures = 0
        while True:
            track.enter(DesktopState.WAIT_ADMISSION)
            place = self._free.popleft() if self._free else await self._wait(self._spares)
            assert isinstance(place, Place), "only slots are given desktops"
            track.enter(DesktopState.STARTING)
            try:
                desktop = await self._boot(place)
            except EnvStartFailed as fault:
                self._recorder.start_failed(cause_of(fault), text_of(fault))
                logger.debug("a spare did not start: %s", fault)
                track.enter(DesktopState.WAIT_START)
                failures += 1
                first, most = START_BACKOFF_SECONDS, self._limits.start_seconds
                await asyncio.sleep(backoff_seconds(failures, first_seconds=first, max_seconds=most))
                continue
            failures = 0
            track.enter(DesktopState.READY)
            await self._offer(desktop)

    async def _offer(self, desktop: LentDesktop) -> None:
        """Hand a spare to a waiting slot, or keep it until one asks."""
        while self._slots:
            waiting = self._slots.popleft()
            if not waiting.done():
                waiting.set_result(desktop)
                return
        taken = asyncio.Event()
        self._ready.append((desktop, taken))
        await taken.wait()

    async def _boot(self, place: Place) -> LentDesktop:
        try:
            return LentDesktop(self, place, await start_desktop(self.inner, place, self._limits.start_seconds))
        except BaseException:
            self._free_place(place)
            raise

    async def _close(self, desktop: LentDesktop) -> None:
        try:
            await close_desktop(desktop.env, self._limits.close_seconds, self._recorder.counts)
        finally:
            self._free_place(desktop.place)
