"""Lockstep turns: the coupled baseline, in which all live attempts send their requests together.

No desktop acts before all replies of the turn have arrived. ``LockstepService`` is a service in front of the pool, so
``play`` does not change.
"""

from __future__ import annotations

import asyncio

from dartsim.core.types import Attempt, Reply, Request
from dartsim.observe import DesktopState, Track
from dartsim.rollout.service import Service
from dartsim.rollout.turns import Session


class LockstepTurn:
    """One common turn.

    States: *gathering* until every live attempt has joined, *generating* until every member has its reply or has left,
    *over*.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._started: asyncio.Future[None] = self._loop.create_future()
        self._over: asyncio.Future[None] = self._loop.create_future()
        self.members = 0
        self._generating = 0

    def join(self) -> None:
        """Join while the turn gathers."""
        self.members += 1

    async def started(self) -> None:
        """Wait, as a member, until the requests may be sent."""
        try:
            await asyncio.shield(self._started)
        except asyncio.CancelledError:
            if self._started.done():
                self.leave()
            else:
                self.members -= 1
            raise

    def start_if_full(self, live: int) -> bool:
        """Start if all live attempts have joined; return whether it did."""
        if not self.members or self.members < live:
            return False
        self._generating = self.members
        self._started.set_result(None)
        return True

    async def finish(self) -> None:
        """Leave with a reply, and wait until all members have theirs."""
        self.leave()
        await asyncio.shield(self._over)

    def leave(self) -> None:
        """Remove a member that has its reply, or was cancelled."""
        self._generating -= 1
        if self._generating == 0:
            self._over.set_result(None)


class LockstepSession:
    """One attempt's session with lockstep turns."""

    __slots__ = ("_closed", "_inner", "_service", "_track")

    def __init__(self, service: LockstepService, inner: Session, track: Track) -> None:
        self._service = service
        self._inner = inner
        self._track = track
        self._closed = False

    async def generate(self, request: Request) -> Reply:
        """Wait for all live attempts, send the request, and wait for all replies."""
        service, track = self._service, self._track
        track.enter(DesktopState.TURN_WAIT)
        turn = await service.join()
        track.enter(DesktopState.GENERATING)
        try:
            reply = await self._inner.generate(request)
        except BaseException:
            turn.leave()
            raise
        track.enter(DesktopState.TURN_WAIT)
        await turn.finish()
        return reply

    def close(self) -> None:
        """Leave; the others no longer wait for this attempt."""
        if not self._closed:
            self._closed = True
            self._service.leave()
            self._inner.close()


class LockstepService:
    """A service whose attempts take their turns together; ``live`` counts the open sessions.

    Invariant: between two turns of one live attempt, every other live attempt takes exactly one turn.
    """

    def __init__(self, inner: Service) -> None:
        self._inner = inner
        self.live = 0
        self.gathering = LockstepTurn()

    def session(self, attempt: Attempt, track: Track) -> Session:
        """Open a session, which every turn waits for from now on."""
        self.live += 1
        return LockstepSession(self, self._inner.session(attempt, track), track)

    async def join(self) -> LockstepTurn:
        """Join the gathering turn, and return it once it starts."""
        turn = self.gathering
        turn.join()
        self._start_if_full()
        await turn.started()
        return turn

    def leave(self) -> None:
        """Count a session that closed."""
        self.live -= 1
        self._start_if_full()

    def _start_if_full(self) -> None:
        if self.gathering.start_if_full(self.live):
            self.gathering = LockstepTurn()
