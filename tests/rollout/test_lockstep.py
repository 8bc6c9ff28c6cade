"""Lock-step turns: everybody takes one before anybody takes another, whoever comes, goes or fails."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dartsim.core.errors import WorkerFault
from dartsim.core.types import Request
from dartsim.observe import DesktopState
from dartsim.rollout import LockstepService
from dartsim.sim import run_virtual


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


class Watched(LockstepService):
    """Checks the rule at the start of every turn: all that are live take part, and no other request is under way."""

    def __init__(self, inner):
        super().__init__(inner)
        self.turns = []

    def _start_if_full(self):
        turn, members, live = self.gathering, self.gathering.members, self.live
        super()._start_if_full()
        if self.gathering is not turn:
            assert members == live > 0
            assert not self._inner.asking
            self.turns.append(members)


TIMES = st.integers(0, 12)


@given(
    plans=st.lists(
        st.fixed_dictionaries(
            {
                "comes": TIMES,
                "turns": st.integers(0, 4),
                "acting": st.integers(0, 3),
                "asks": st.lists(st.one_of(st.integers(0, 3), st.none()), min_size=4, max_size=4),
                "cancelled": st.one_of(st.none(), st.integers(0, 25)),
            }
        ),
        min_size=1,
        max_size=5,
    )
)
def test_nobody_takes_two_turns_while_another_takes_none_and_nothing_ever_hangs(fakes, plans):
    async def main():
        clients = Clients(fakes, len(plans), lambda number, turn: plans[number]["asks"][turn])
        clients.service = Watched(clients.pool)
        loop = asyncio.get_running_loop()

        async def run(number, plan):
            await asyncio.sleep(plan["comes"])
            await clients.play(clients.session(number), number, plan["turns"], plan["acting"])

        tasks = [loop.create_task(run(number, plan)) for number, plan in enumerate(plans)]
        for task, plan in zip(tasks, plans, strict=True):
            if plan["cancelled"] is not None:
                loop.call_at(plan["cancelled"], task.cancel)
        await asyncio.wait(tasks)  # Stalled if somebody is waited for who will not come
        for task in tasks:
            assert task.cancelled() or isinstance(task.exception(), (WorkerFault, type(None)))
        assert (clients.service.live, clients.service.gathering.members) == (0, 0)
        assert clients.pool.asking == set()
        assert sum(clients.service.turns) >= sum(len(times) for times in clients.replies.values())

    run_virtual(main())
