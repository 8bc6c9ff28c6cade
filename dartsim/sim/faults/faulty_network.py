"""The network between components: messages are delayed, lost, duplicated and reordered, and pairs are partitioned.

Delivery is at least once: lost messages are sent again. A receiver recognizes a message of which it has had a copy, and
carries each out once, however often and in whatever order the copies arrive.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from math import ceil, inf
from typing import Any, NoReturn

from dartsim.core.types import Attempt, Reply, Request
from dartsim.observe import Track
from dartsim.rollout import Service, Session
from dartsim.sim.faults.injector import CONTROL, LEARNER, STORE, FaultInjector
from dartsim.sim.faults.kinds import KINDS, FaultKind

RESEND_SECONDS = 5.0
"""Time after which a lost message is sent again."""

RECOGNIZED = "message/recognized"
"""Counter of duplicates that their receiver recognized and did not carry out again."""

CUT = KINDS["network_partition"]

Work = Callable[[], Awaitable[Any]]


class Unanswered(Exception):
    """The caller timed out; the call may have been carried out."""

    def __init__(self, kind: FaultKind) -> None:
        super().__init__(kind.name)
        self.kind = kind


@dataclass(slots=True)
class Delivery:
    """When the copies of one message arrive.

    Attributes:
        seconds: Time until the original arrives.
        again: Time until a duplicate arrives; None if there is none.
        cut: The fault that delays it for longer than the caller waits, or None.
    """

    seconds: float
    again: float | None
    cut: FaultKind | None


class FaultyNetwork:
    """The network between the components of a cluster."""

    def __init__(self, injector: FaultInjector) -> None:
        self._injector = injector
        self._env = injector.env
        self._index = {frozenset(pair): number for number, pair in enumerate(pairs(injector))}
        late = map(injector.call_fault, ("message_delay", "message_loss", "message_reorder"))
        self._late = [fault for fault in late if fault is not None]
        self._doubles = injector.call_fault("message_duplicate")
        self._cuts = injector.window_fault(CUT.name, by_target=True)
        self.quiet = not (self._late or self._doubles or self._cuts)
        """Whether nothing ever happens to a message."""
        self._waits = "store" in injector.parts or self._cuts is not None

    async def request(
        self,
        component: str,
        work: Work,
        *,
        patience: float = inf,
        unanswered: Callable[[FaultKind], Exception] | None = None,
    ) -> Any:
        """Call a component for the control plane, which then waits while the store does not answer.

        If there is no answer within ``patience`` seconds, ``unanswered`` returns the error to raise.
        """
        try:
            answer = await self.call(CONTROL, component, work, patience=patience)
        except Unanswered as cut:
            if unanswered is None:
                raise
            raise unanswered(cut.kind) from None
        if self._waits:
            await self.wait_for_store()
        return answer

    async def call(self, caller: str, component: str, work: Work, *, patience: float = inf) -> Any:
        """Call a component and return its answer; cancelling the call cancels the work.

        Raises:
            Unanswered: If no answer came within ``patience`` seconds.
        """
        if self.quiet:
            return await work()
        there = self._delivery(caller, component, patience)
        if there is None:
            answer = await work()
        elif there.cut is not None:
            await self._give_up(there.cut, patience)
        else:
            answer = await self._deliver(there, work)
        back = self._delivery(component, caller, patience)
        if back is not None:
            if back.cut is not None:
                await self._give_up(back.cut, patience)
            await asyncio.sleep(back.seconds)
        return answer

    async def _deliver(self, leg: Delivery, work: Work) -> Any:
        """Deliver the copies of a message; the first to arrive is carried out."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Any] = loop.create_future()
        running: asyncio.Task[None] | None = None
        arrived = gave_up = False

        async def carry_out() -> None:
            try:
                result = await work()
            except Exception as error:
                if not answer.done():
                    answer.set_exception(error)
            else:
                if not answer.done():
                    answer.set_result(result)

        def arrive() -> None:
            nonlocal arrived, running
            if arrived:
                self._injector.counts[RECOGNIZED] += 1
            elif not gave_up:
                running = loop.create_task(carry_out())
            arrived = True

        for seconds in [leg.seconds] if leg.again is None else [leg.seconds, leg.again]:
            self._env.call_in(seconds, arrive)
        try:
            return await answer
        finally:
            gave_up = not answer.done() or answer.cancelled()
            if running is not None:
                running.cancel()

    async def _give_up(self, kind: FaultKind, patience: float) -> NoReturn:
        await asyncio.sleep(patience)
        raise Unanswered(kind)

    def _delivery(self, sender: str, receiver: str, patience: float) -> Delivery | None:
        """Return the delivery of a message sent now; None if it has no faults."""
        now, again = self._env._now, None
        cut, until = self.cut_until(sender, receiver, now)
        seconds = wait = ceil((until - now) / RESEND_SECONDS) * RESEND_SECONDS if until > now else 0.0
        if cut is not None:
            self._injector.add_cost(cut, min(wait, patience))
        for fault in self._late:
            if (late := fault.hit(now, 0, 1)) is not None:
                seconds += late
                self._injector.count(fault.kind)
                self._injector.add_cost(fault.kind, late)
        if self._doubles is not None and (late := self._doubles.hit(now, 0, 1)) is not None:
            again = wait + late
            self._injector.count(self._doubles.kind)
        if not seconds and again is None:
            return None
        return Delivery(seconds, again, cut if wait > patience else None)

    def cut_until(self, component: str, other: str, now: float) -> tuple[FaultKind | None, float]:
        """Return the fault that partitions two components and when it ends; None and 0 if there is none."""
        cuts = self._cuts
        if cuts is None or not cuts.is_open(now):
            return None, 0.0
        if self._index.get(frozenset((component, other))) != int(cuts.value) % len(self._index):
            return None, 0.0
        self._injector.count_window(CUT, cuts)
        return CUT, cuts.end

    async def wait_for_store(self) -> None:
        """Wait, like the whole control plane, while the store does not answer."""
        await self._injector.wait_for_store()
        while self._cuts is not None:
            now = self._env.now
            kind, until = self.cut_until(CONTROL, STORE, now)
            if kind is None:
                return
            self._injector.add_cost(kind, until - now)
            await asyncio.sleep(until - now)


def pairs(injector: FaultInjector) -> Sequence[tuple[str, str]]:
    """Return the pairs of components that communicate; partitions of other pairs have no effect."""
    hosts = [host(n) for n in range(injector.size.hosts)]
    workers = [worker(n) for n in range(injector.size.workers)]
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


class FaultySession:
    """A session whose requests and replies are messages between a desktop's host and the pool."""

    __slots__ = ("_inner", "_network", "_part")

    def __init__(self, inner: Session, network: FaultyNetwork, part: str) -> None:
        self._inner = inner
        self._network = network
        self._part = part

    async def generate(self, request: Request) -> Reply:
        reply: Reply = await self._network.call(self._part, CONTROL, lambda: self._inner.generate(request))
        return reply

    def close(self) -> None:
        self._inner.close()


class FaultyTransport:
    """A service behind the network."""

    def __init__(self, inner: Service, network: FaultyNetwork, host_of: Callable[[int], int]) -> None:
        self._inner = inner
        self._network = network
        self._host_of = host_of

    def session(self, attempt: Attempt, track: Track) -> Session:
        return FaultySession(self._inner.session(attempt, track), self._network, host(self._host_of(track.index)))
