"""The latency between a desktop and the inference pool: network, encoding, image preprocessing."""

from __future__ import annotations

import asyncio

from dartsim.core.types import Attempt, Reply, Request
from dartsim.observe import Track
from dartsim.rollout import Service, Session
from dartsim.sim.environment import SimEnvironment


class DelayedSession:
    """A session whose requests reach the pool after a latency."""

    __slots__ = ("_create_future", "_env", "_inner", "_seconds")

    def __init__(self, inner: Session, env: SimEnvironment, seconds: float) -> None:
        self._inner = inner
        self._env = env
        self._seconds = seconds
        self._create_future = asyncio.get_running_loop().create_future

    async def generate(self, request: Request) -> Reply:
        """Wait for the latency, then ask."""
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


class DelayedService:
    """A service behind a latency of ``seconds``, both directions together, the same for every request."""

    def __init__(self, inner: Service, env: SimEnvironment, seconds: float) -> None:
        self._inner = inner
        self._env = env
        self._seconds = seconds

    def session(self, attempt: Attempt, track: Track) -> Session:
        """Open a session."""
        return DelayedSession(self._inner.session(attempt, track), self._env, self._seconds)


def _arrived(arrival: asyncio.Future[None]) -> None:
    if not arrival.done():
        arrival.set_result(None)
