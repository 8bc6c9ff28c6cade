"""The way between a desktop and the inference pool: hops, encoding, image preprocessing."""

from __future__ import annotations

import asyncio

from dartsim.rollout import Service, Session
from dartsim.trace import Track
from dartsim.types import Attempt, Reply, Request


class HopSession:
    """A session whose requests are some time on their way before they reach the pool."""

    __slots__ = ("_inner", "_seconds")

    def __init__(self, inner: Session, seconds: float) -> None:
        self._inner = inner
        self._seconds = seconds

    async def generate(self, request: Request) -> Reply:
        """Travel, then ask."""
        await asyncio.sleep(self._seconds)
        return await self._inner.generate(request)

    def close(self) -> None:
        """Close the session behind it."""
        self._inner.close()


class HopService:
    """A service behind a way of ``seconds``, the same both ways together for every request."""

    def __init__(self, inner: Service, seconds: float) -> None:
        self._inner = inner
        self._seconds = seconds

    def session(self, attempt: Attempt, track: Track) -> Session:
        """Open a session."""
        return HopSession(self._inner.session(attempt, track), self._seconds)
