"""Lock-step turns: everybody takes one before anybody takes another, whoever comes, goes or fails."""

import asyncio

import pytest

from dartsim.core.errors import WorkerFault
from dartsim.core.types import Request
from dartsim.observe import DesktopState
from dartsim.rollout import LockstepService


class Pool:
    """An inner service whose requests take the time that their attempt's list says; None fails at once."""

    def __init__(self, fakes, seconds):
        self.fakes = fakes
        self.seconds = seconds
        self.asking = set()
        self.closed = []

    def session(self, attempt, track):
        return PoolSession(self, attempt.id)


class PoolSession:
    def __init__(self, pool, number):
        self.pool = pool
        self.number = number

    async def generate(self, request):
        self.pool.asking.add(self.number)
        try:
            seconds = self.pool.seconds(self.number, request.turn)
            if seconds is None:
                raise WorkerFault("no worker")
            await asyncio.sleep(seconds)
        finally:
            self.pool.asking.remove(self.number)
        return self.pool.fakes.reply()

    def close(self):
        self.pool.closed.append(self.number)


class Clients:
    """Attempts on a lock-step service, and the times at which each asks and has its reply."""

    def __init__(self, fakes, count, seconds=lambda number, turn: 2.0):
        self.fakes = fakes
        self.pool = Pool(fakes, seconds)
        self.service = LockstepService(self.pool)
        self.recorder = fakes.recorder(count)
        self.replies = {number: [] for number in range(count)}

    def session(self, number):
        return self.service.session(self.fakes.attempt(number), self.recorder.desktops.tracks[number])

    async def play(self, session, number, turns, acting=1.0):
        track = self.recorder.desktops.tracks[number]
        try:
            for turn in range(turns):
                await session.generate(Request(self.fakes.attempt(number), turn, self.fakes.SEEN, []))
                self.replies[number].append(self.fakes.now())
                track.enter(DesktopState.ACTING)
                await asyncio.sleep(acting)
        finally:
            session.close()

    def playing(self, number, turns, acting=1.0):
        """Open the session now, so that all that are opened at one moment take their first turn together."""
        playing = self.play(self.session(number), number, turns, acting)
        return asyncio.get_running_loop().create_task(playing)


async def test_all_wait_for_the_slowest_reply_and_for_the_slowest_desktop(fakes):
    clients = Clients(fakes, 3, lambda number, turn: [1.0, 5.0, 2.0][number])
    await asyncio.gather(*(clients.playing(number, 3, acting) for number, acting in enumerate([1.0, 2.0, 10.0])))
    assert list(clients.replies.values()) == [[5.0, 20.0, 35.0]] * 3
    assert clients.recorder.desktops.tracks[0].state == DesktopState.ACTING


async def test_waiting_for_the_others_is_counted_apart(fakes):
    clients = Clients(fakes, 2, lambda number, turn: [1.0, 5.0][number])
    await asyncio.gather(clients.playing(0, 2), clients.playing(1, 2, 3.0))
    # Each turn: 1 and 5 s of generating, 4 s of waiting for the other's reply; between them 2 s for its desktop.
    # The last action of the first is over 2 s before the end, which its track still counts.
    assert fakes.spent(clients.recorder.desktops) == {
        "GENERATING": 2 * (1.0 + 5.0),
        "TURN_WAIT": 2 * 4.0 + 2.0,
        "ACTING": 2 * (1.0 + 3.0) + 2.0,
    }


async def test_who_comes_later_is_waited_for_from_the_next_turn_on(fakes):
    clients = Clients(fakes, 2)
    first = clients.playing(0, 3)
    await asyncio.sleep(1.0)
    session = clients.session(1)
    await asyncio.sleep(50.0)
    session.close()
    await first
    assert clients.replies[0] == [2.0, 53.0, 56.0]


async def test_a_session_may_be_closed_twice(fakes):
    clients = Clients(fakes, 2)
    session = clients.session(1)
    session.close()
    session.close()
    assert (clients.service.live, clients.pool.closed) == (0, [1])


async def test_a_request_that_fails_does_not_hold_the_others(fakes):
    clients = Clients(fakes, 2, lambda number, turn: None if (number, turn) == (0, 1) else 2.0)
    failing, other = clients.playing(0, 3), clients.playing(1, 3)
    await asyncio.wait([failing, other])
    with pytest.raises(WorkerFault):
        failing.result()
    assert clients.replies == {0: [2.0], 1: [2.0, 5.0, 8.0]}


async def test_who_is_cancelled_in_the_instant_in_which_a_turn_starts_is_not_waited_for(fakes):
    clients = Clients(fakes, 2)
    sessions = [clients.session(number) for number in (0, 1)]
    loop = asyncio.get_running_loop()
    leaving = loop.create_task(clients.play(sessions[0], 0, 3))
    await asyncio.sleep(1.0)
    staying = loop.create_task(clients.play(sessions[1], 1, 2))  # its first step starts the turn,
    loop.call_soon(leaving.cancel)  # and this comes before the other one hears of it
    await staying
    assert leaving.cancelled()
    assert clients.replies == {0: [], 1: [3.0, 6.0]}
