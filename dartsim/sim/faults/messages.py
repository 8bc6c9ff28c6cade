"""The network between the parts: messages are delayed, lost, doubled and overtaken, and pairs of parts are cut off.

Delivery is at least once: what is lost is sent again. So every message has a key, and its receiver carries out each key
once (``Inbox``), however often and in whatever order its copies arrive.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Sequence
from math import ceil, inf
from typing import Any, NoReturn

from dartsim.sim.faults.kinds import FaultKind, Place
from dartsim.sim.faults.spells import CallFault, Spells
from dartsim.sim.faults.striking import CONTROL, LEARNER, STORE, Faults
from dartsim.sim.faults.table import KINDS

RESEND_SECONDS = 5.0
"""After which a message that was not heard is sent again."""

RECOGNISED = "message/recognised"
"""Counts copies that their receiver knew by their key, and did not carry out again."""

Work = Callable[[], Awaitable[Any]]


class Unanswered(Exception):
    """No answer came for as long as the caller waits; what was asked for may have been done.

    Attributes:
        kind: Why.
    """

    def __init__(self, kind: FaultKind) -> None:
        super().__init__(kind.name)
        self.kind = kind


class Inbox:
    """What a part has taken in: each key once.

    A key is kept until the last copy of its message has arrived.
    """

    __slots__ = ("_copies",)

    def __init__(self) -> None:
        self._copies: dict[int, list[int]] = {}

    def expect(self, key: int, copies: int) -> None:
        """So many copies of a message are on their way."""
        self._copies[key] = [copies, 0]

    def accept(self, key: int) -> bool:
        """Take a copy in; return whether it is the first one, which is to be carried out."""
        entry = self._copies[key]
        entry[0] -= 1
        entry[1] += 1
        if entry[0] == 0:
            del self._copies[key]
        return entry[1] == 1

    def __len__(self) -> int:
        return len(self._copies)


class Leg:
    """One message's way: when its copies arrive.

    Attributes:
        seconds: Until its first copy arrives that is not a second one.
        again: Until a second copy arrives; None: there is none.
        cut: What kept it waiting for longer than its caller waits, or None.
    """

    __slots__ = ("again", "cut", "seconds")

    def __init__(self) -> None:
        self.seconds = 0.0
        self.again: float | None = None
        self.cut: FaultKind | None = None


class Network:
    """The ways between the parts of a cluster.

    Args:
        faults: What strikes.
    """

    def __init__(self, faults: Faults) -> None:
        self._faults = faults
        self._env = faults.env
        self._keys = itertools.count()
        self._inboxes: dict[str, Inbox] = {}
        self._index = {frozenset(pair): number for number, pair in enumerate(pairs(faults))}
        self._delays, self._losses, self._doubles, self._holds = (
            _if_active(faults, name)
            for name in ("message_delay", "message_loss", "message_duplicate", "message_reorder")
        )
        cut = "network_partition"
        self._cuts: Spells | None = faults.spells(cut, by_target=True) if faults.active(cut) else None
        self.quiet = not (faults.has([Place.MESSAGE]) or self._cuts)
        """Whether nothing ever happens to a message."""

    def inbox(self, part: str) -> Inbox:
        """Return what a part has taken in."""
        return self._inboxes.setdefault(part, Inbox())

    async def call(self, caller: str, part: str, work: Work, *, patience: float = inf) -> Any:
        """Ask a part for something, and return its answer.

        Cancelled, it cancels what is being done.

        Args:
            caller: Who asks.
            part: Who is asked.
            work: Does it there.
            patience: How long the caller waits for a message that does not arrive, seconds.

        Raises:
            Unanswered: If that was too long.
        """
        if self.quiet:
            return await work()
        there = self._leg(caller, part, patience)
        if there is None:
            answer = await work()
        elif there.cut is not None:
            await self._give_up(there.cut, patience)
        else:
            answer = await self._deliver(there, part, work)
        back = self._leg(part, caller, patience)
        if back is not None:
            if back.cut is not None:
                await self._give_up(back.cut, patience)
            await asyncio.sleep(back.seconds)
        return answer

    async def _deliver(self, leg: Leg, part: str, work: Work) -> Any:
        """Let the copies of a message arrive; the first one that does is carried out."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Any] = loop.create_future()
        running: list[asyncio.Task[None]] = []
        inbox, key = self.inbox(part), next(self._keys)

        async def carry_out() -> None:
            try:
                result = await work()
            except asyncio.CancelledError:
                raise
            except Exception as error:
                if not answer.done():
                    answer.set_exception(error)
            else:
                if not answer.done():
                    answer.set_result(result)

        def arrive() -> None:
            if not inbox.accept(key):
                self._faults.counts[RECOGNISED] += 1
            elif not gave_up:
                running.append(loop.create_task(carry_out()))

        gave_up = False
        times = [leg.seconds] if leg.again is None else [leg.seconds, leg.again]
        inbox.expect(key, len(times))
        for seconds in times:
            self._env.call_in(seconds, arrive)
        try:
            return await answer
        finally:
            gave_up = not answer.done() or answer.cancelled()
            for task in running:
                task.cancel()

    async def _give_up(self, kind: FaultKind, patience: float) -> NoReturn:
        await asyncio.sleep(patience)
        raise Unanswered(kind)

    def _leg(self, sender: str, receiver: str, patience: float) -> Leg | None:
        """Return what happens to a message that is sent now; None if nothing does."""
        now, leg = self._env.now, Leg()
        kind, until = self.cut_until(sender, receiver, now)
        wait = ceil((until - now) / RESEND_SECONDS) * RESEND_SECONDS if until > now else 0.0
        if kind is not None:
            self._faults.cost(kind, min(wait, patience))
            leg.cut = kind if wait > patience else None
        leg.seconds = wait
        for fault in (self._delays, self._losses, self._holds):
            if fault is not None and (seconds := fault.look(now, 0, 1)) is not None:
                leg.seconds += seconds
                self._faults.count(fault.kind)
                self._faults.cost(fault.kind, seconds)
        if self._doubles is not None and (seconds := self._doubles.look(now, 0, 1)) is not None:
            leg.again = wait + seconds
            self._faults.count(self._doubles.kind)
        return leg if leg.seconds or leg.again is not None else None

    def cut_until(self, one: str, other: str, now: float) -> tuple[FaultKind | None, float]:
        """Return why and until when two parts are cut off from each other; None and 0 if they are not."""
        cuts = self._cuts
        if cuts is None or not cuts.at(now):
            return None, 0.0
        if self._index.get(frozenset((one, other))) != int(cuts.value) % len(self._index):
            return None, 0.0
        kind = KINDS["network_partition"]
        self._faults.notice(kind, cuts)
        return kind, cuts.end

    async def standstill(self) -> None:
        """Wait, as all of the control plane does, while its store does not answer it."""
        await self._faults.standstill()
        while self._cuts is not None:
            now = self._env.now
            kind, until = self.cut_until(CONTROL, STORE, now)
            if kind is None:
                return
            self._faults.cost(kind, until - now)
            await asyncio.sleep(until - now)


def pairs(faults: Faults) -> Sequence[tuple[str, str]]:
    """Return the pairs of parts that talk to each other; all others exchange nothing, so a cut changes nothing."""
    hosts = [host(n) for n in range(faults.sizes.hosts)]
    workers = [worker(n) for n in range(faults.sizes.workers)]
    return [
        *((CONTROL, part) for part in (*hosts, *workers, LEARNER, STORE)),
        *((LEARNER, part) for part in workers),
    ]


def host(number: int) -> str:
    """Return a host's name."""
    return f"host-{number}"


def worker(number: int) -> str:
    """Return a worker's name."""
    return f"worker-{number}"


def _if_active(faults: Faults, name: str) -> CallFault | None:
    return faults.call_fault(name) if faults.active(name) else None
