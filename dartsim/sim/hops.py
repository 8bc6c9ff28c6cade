"""The way between a desktop and the inference pool: hops, encoding, image preprocessing, and the process between."""

from __future__ import annotations

import asyncio

from dartsim.rollout import Service, Session
from dartsim.sim.environment import SimEnvironment, Timer
from dartsim.trace import Track
from dartsim.types import Attempt, Reply, Request


class HopSession:
    """A session whose requests are some time on their way before they reach the pool."""

    __slots__ = ("_create_future", "_env", "_inner", "_seconds")

    def __init__(self, inner: Session, env: SimEnvironment, seconds: float) -> None:
        self._inner = inner
        self._env = env
        self._seconds = seconds
        self._create_future = asyncio.get_running_loop().create_future

    async def generate(self, request: Request) -> Reply:
        """Travel, then ask."""
        # A timer of the world: half the price of asyncio.sleep, and a perturbed world may stretch it.
        env = self._env
        arrival = self._create_future()
        timer = env.call_in(env.delay(self._seconds), _arrived, arrival)
        try:
            await arrival
        except BaseException:
            timer.cancel()
            raise
        return await self._inner.generate(request)

    def close(self) -> None:
        """Close the session behind it."""
        self._inner.close()


class HopService:
    """A service behind a way of ``seconds``, the same both ways together for every request."""

    def __init__(self, inner: Service, env: SimEnvironment, seconds: float) -> None:
        self._inner = inner
        self._env = env
        self._seconds = seconds

    def session(self, attempt: Attempt, track: Track) -> Session:
        """Open a session."""
        return HopSession(self._inner.session(attempt, track), self._env, self._seconds)


class ControlSession:
    """A session whose requests first cost the process around desktops and pool some of its time."""

    __slots__ = ("_inner", "_process")

    def __init__(self, inner: Session, process: ControlService) -> None:
        self._inner = inner
        self._process = process

    async def generate(self, request: Request) -> Reply:
        """Wait for the process, then ask."""
        await self._process.turn()
        return await self._inner.generate(request)

    def close(self) -> None:
        """Close the session behind it."""
        self._inner.close()


class ControlService:
    """A service in a process with one event loop, which is at work for ``seconds`` with every request.

    What it does for one desktop, the others wait for, first come, first served. Those that come at the same instant
    leave together: a loop that finds several replies ready sees to all of them before anything else.
    """

    def __init__(self, inner: Service, env: SimEnvironment, seconds: float) -> None:
        self._inner = inner
        self._env = env
        self._seconds = seconds
        self._came = -1.0
        self._end = 0.0
        self._together: list[asyncio.Future[None]] = []
        self._timer: Timer | None = None

    def session(self, attempt: Attempt, track: Track) -> Session:
        """Open a session."""
        return ControlSession(self._inner.session(attempt, track), self)

    async def turn(self) -> None:
        """Wait until the process has seen to one request. One that is cancelled has cost its time."""
        env = self._env
        now = env.now
        if now != self._came:
            self._came, self._together, self._timer = now, [], None
            self._end = max(now, self._end)
        self._end += env.delay(self._seconds)
        if self._timer is not None:
            self._timer.cancel()
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._together.append(done)
        self._timer = env.call_at(self._end, _all_arrived, self._together)
        await done


def _all_arrived(arrivals: list[asyncio.Future[None]]) -> None:
    for arrival in arrivals:
        _arrived(arrival)


def _arrived(arrival: asyncio.Future[None]) -> None:
    if not arrival.done():
        arrival.set_result(None)
