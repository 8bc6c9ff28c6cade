"""Lock-step turns: the coupled baseline's way to ask an inference engine.

All live attempts ask together, one batched request, and no desktop acts before every reply of that turn is
there. It is a service like the other one, put in front of it: ``play`` does not know.
"""

from __future__ import annotations

import asyncio

from dartsim.core.types import Attempt, Reply, Request
from dartsim.observe import DesktopState, Track
from dartsim.rollout.service import Service, Session


class LockstepTurn:
    """One common turn.

    States: *gathering* until every live attempt has joined, *asking* until every member has its reply or is
    gone, *over*.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._started: asyncio.Future[None] = self._loop.create_future()
        self._over: asyncio.Future[None] = self._loop.create_future()
        self._members = 0
        self._asking = 0

    def join(self) -> None:
        """Become a member, while it gathers."""
        self._members += 1

    async def started(self) -> None:
        """Wait, as a member, until it asks."""
        try:
            await asyncio.shield(self._started)
        except asyncio.CancelledError:
            if self._started.done():
                self.leave()
            else:
                self._members -= 1
            raise

    def start_if_full(self, live: int) -> bool:
        """Start asking if all live attempts have joined; return whether it did."""
        if not self._members or self._members < live:
            return False
        self._asking = self._members
        self._started.set_result(None)
        return True

    async def finish(self) -> None:
        """Have a reply, and wait until all members have theirs."""
        self.leave()
        await asyncio.shield(self._over)

    def leave(self) -> None:
        """A member has its reply, or is gone."""
        self._asking -= 1
        if self._asking == 0:
            self._over.set_result(None)


class LockstepSession:
    """One attempt's part in the lock-step turns."""

    __slots__ = ("_closed", "_inner", "_service", "_track")

    def __init__(self, service: LockstepService, inner: Session, track: Track) -> None:
        self._service = service
        self._inner = inner
        self._track = track
        self._closed = False

    async def generate(self, request: Request) -> Reply:
        """Wait for all live attempts, ask, and wait for all replies."""
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
        """Leave the turns; the others no longer wait for this attempt."""
        if not self._closed:
            self._closed = True
            self._service.leave()
            self._inner.close()


class LockstepService:
    """A service whose attempts take their turns together.

    Invariant: between two turns of one live attempt, every other live attempt takes exactly one turn.
    """

    def __init__(self, inner: Service) -> None:
        self._inner = inner
        self.live = 0
        self._gathering = LockstepTurn()

    def session(self, attempt: Attempt, track: Track) -> Session:
        """Open a session; from now on every turn waits for it."""
        self.live += 1
        return LockstepSession(self, self._inner.session(attempt, track), track)

    async def join(self) -> LockstepTurn:
        """Join the turn that gathers, and return it once it asks."""
        turn = self._gathering
        turn.join()
        self._start_if_full()
        await turn.started()
        return turn

    def leave(self) -> None:
        """A session closed."""
        self.live -= 1
        self._start_if_full()

    def _start_if_full(self) -> None:
        if self._gathering.start_if_full(self.live):
            self._gathering = LockstepTurn()
