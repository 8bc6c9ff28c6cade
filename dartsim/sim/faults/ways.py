"""The way between desktops and inference pool as messages: what goes wrong on it, in front of any service."""

from __future__ import annotations

from collections.abc import Callable

from dartsim.core.types import Attempt, Reply, Request
from dartsim.observe import Track
from dartsim.rollout import Service, Session
from dartsim.sim.faults.messages import Network, host
from dartsim.sim.faults.striking import CONTROL


class MessageSession:
    """A session whose requests and replies are messages between a desktop's host and the pool."""

    __slots__ = ("_inner", "_network", "_part")

    def __init__(self, inner: Session, network: Network, part: str) -> None:
        self._inner = inner
        self._network = network
        self._part = part

    async def generate(self, request: Request) -> Reply:
        """Travel, ask, and travel back."""
        reply: Reply = await self._network.call(self._part, CONTROL, lambda: self._inner.generate(request))
        return reply

    def close(self) -> None:
        """Close the session behind it."""
        self._inner.close()


class MessageService:
    """A service behind a network.

    Args:
        inner: The service.
        network: The network.
        host_of: Number of the host that a slot's desktops run on.
    """

    def __init__(self, inner: Service, network: Network, host_of: Callable[[int], int]) -> None:
        self._inner = inner
        self._network = network
        self._host_of = host_of

    def session(self, attempt: Attempt, track: Track) -> Session:
        """Open a session."""
        return MessageSession(self._inner.session(attempt, track), self._network, host(self._host_of(track.index)))
