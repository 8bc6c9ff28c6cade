"""``Faults``: what strikes in one run, looked up by place, and counted.

Counted are strikes (``fault/<name>``; a spell counts once, when somebody first feels it) and the seconds that they cost
those whom they struck (``fault_seconds/<name>``). Nothing here wakes the loop or schedules anything by itself.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

from dartsim.core.rng import Streams
from dartsim.sim.environment import SimEnvironment
from dartsim.sim.faults.cluster import LEASE_SECONDS
from dartsim.sim.faults.kinds import Effect, FaultKind, Place, Scope
from dartsim.sim.faults.spells import CallFault, Spells
from dartsim.sim.faults.table import Active

CONTROL, LEARNER, STORE = "control", "learner", "store"
"""Parts by name, as the network knows them; hosts and workers have numbers."""


GONE_SECONDS = 1.0
"""Until one learns that a desktop was removed: its host answers, and says no."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How many there are of what can be struck."""

    desktops: int
    hosts: int
    workers: int

    def members(self, scope: Scope) -> int:
        """Return how many members a scope has."""
        return {Scope.DESKTOP: self.desktops, Scope.HOST: self.hosts, Scope.WORKER: self.workers}.get(scope, 1)


@dataclass(slots=True)
class Blow:
    """What strikes one call.

    Attributes:
        kind: What makes it fail, after ``seconds``; None: nothing does.
        seconds: Until it fails.
        later: Seconds that it takes longer, by what.
        slower: Times that it takes as long, by what.
    """

    kind: FaultKind | None
    seconds: float
    later: list[tuple[FaultKind, float]]
    slower: list[tuple[FaultKind, float]]


class Hazards:
    """All that can strike one kind of call of one part.

    Args:
        faults: Counts what strikes.
        calls: What strikes single calls.
        spells: What strikes all calls for a while.
        target: Whose calls these are.
        members: How many such parts there are.
    """

    __slots__ = ("_calls", "_faults", "_members", "_spells", "_target")

    def __init__(
        self,
        faults: Faults,
        calls: Sequence[CallFault],
        spells: Sequence[tuple[FaultKind, Spells]],
        *,
        target: int,
        members: int,
    ) -> None:
        self._faults = faults
        self._calls = calls
        self._spells = spells
        self._target = target
        self._members = members

    def look(self, now: float) -> Blow | None:
        """Return what strikes the call that begins now; None if nothing does. One call, one look."""
        blow: Blow | None = None
        for fault in self._calls:
            seconds = fault.look(now, self._target, self._members)
            if seconds is not None and (blow is None or blow.kind is None or fault.kind.effect in _TOGETHER):
                self._faults.count(fault.kind)  # of several that end a call only the first does
                blow = _with(blow, fault.kind, seconds)
        for kind, spells in self._spells:
            if not spells.at(now):
                continue
            amount = spells.value
            if kind.effect is Effect.SKEWED:
                if amount <= LEASE_SECONDS:
                    continue
                amount = GONE_SECONDS
            self._faults.notice(kind, spells)
            blow = _with(blow, kind, amount)
        return blow

    def gone(self, since: float, now: float) -> FaultKind | None:
        """Return what has taken everything away that was there at ``since``; None if nothing has."""
        for kind, spells in self._spells:
            if kind.effect is Effect.LOST and spells.touched(since, now):
                self._faults.notice(kind, spells)
                return kind
        return None


_TOGETHER = frozenset({Effect.LATER, Effect.SLOWER})
"""Effects that come on top of each other, and of any other."""


def _with(blow: Blow | None, kind: FaultKind, amount: float) -> Blow:
    blow = blow or Blow(None, 0.0, [], [])
    if kind.effect is Effect.LATER:
        blow.later.append((kind, amount))
    elif kind.effect is Effect.SLOWER:
        blow.slower.append((kind, amount))
    elif blow.kind is None:
        blow.kind, blow.seconds = kind, amount
    return blow


class Faults:
    """The faults of one run.

    Args:
        active: What strikes, by name.
        env: The world's clock.
        streams: Random streams of the run's seed.
        counts: Where strikes and what they cost are counted.
        sizes: Of the cluster.
        heal_at: When nothing strikes any more, seconds.
    """

    def __init__(
        self,
        active: Mapping[str, Active],
        *,
        env: SimEnvironment,
        streams: Streams,
        counts: Counter[str],
        sizes: Sizes,
        heal_at: float = inf,
    ) -> None:
        self.env = env
        self.counts = counts
        self.sizes = sizes
        self.heal_at = heal_at
        self._active = active
        self._streams = streams
        self._calls: dict[str, CallFault] = {}
        self._spells: dict[tuple[str, int], Spells] = {}
        self._left: set[asyncio.Task[None]] = set()
        self._stalls = self._spells_at((Place.STORE,), {}, (Effect.STALLS,))

    # ---- what strikes where

    def has(self, places: Iterable[Place]) -> bool:
        """Whether anything strikes at one of these places."""
        wanted = frozenset(places)
        return any(active.kind.place in wanted for active in self._active.values())

    def hazards(
        self,
        places: Iterable[Place],
        members: Mapping[Scope, int],
        *,
        effects: Sequence[Effect] | None = None,
        of: Scope = Scope.DESKTOP,
    ) -> Hazards:
        """Return what can strike a kind of call.

        Args:
            places: Where it may be struck.
            members: Which member of each scope the call's part is.
            effects: Only these; None for all.
            of: Scope by which strikes at a set time name single calls.
        """
        wanted = frozenset(places)
        kinds = [a.kind for a in self._active.values() if a.kind.place in wanted and a.kind.scope is Scope.CALL]
        calls = [self.call_fault(kind.name) for kind in kinds if effects is None or kind.effect in effects]
        spells = self._spells_at(wanted, members, effects)
        return Hazards(self, calls, spells, target=members.get(of, 0), members=self.sizes.members(of))

    def call_fault(self, name: str) -> CallFault:
        """Return what strikes single calls, one for the whole run.

        Raises:
            KeyError: If the kind is not active; see ``active``.
        """
        if name not in self._calls:
            active = self._active[name]
            rng = self._streams.rng(f"faults/{name}")
            lasts = active.lasts.sampler(self._streams.rng(f"faults/{name}/lasts"))
            self._calls[name] = CallFault(active, rng=rng, lasts=lasts, heal_at=self.heal_at)
        return self._calls[name]

    def active(self, name: str) -> bool:
        """Whether a kind strikes at all."""
        return name in self._active

    def spells(self, name: str, member: int = 0, *, by_target: bool = False) -> Spells:
        """Return the spells of one kind for one member of its scope."""
        key = (name, member)
        if key not in self._spells:
            active = self._active[name]
            members = self.sizes.members(active.kind.scope)
            rng = self._streams.rng(f"faults/{name}/{member}")
            self._spells[key] = Spells(
                per_hour=active.rate,
                rng=rng,
                lasts=active.lasts,
                value=active.kind.call.sampler(self._streams.rng(f"faults/{name}/{member}/call")),
                scheduled=[s for s in active.scheduled if by_target or s.target % members == member],
                by_target=by_target,
                start=self.env.now,
                heal_at=self.heal_at,
            )
        return self._spells[key]

    def _spells_at(
        self, places: Iterable[Place], members: Mapping[Scope, int], effects: Sequence[Effect] | None
    ) -> list[tuple[FaultKind, Spells]]:
        wanted = frozenset(places)
        kinds = [a.kind for a in self._active.values() if a.kind.place in wanted]
        return [
            (kind, self.spells(kind.name, members.get(kind.scope, 0)))
            for kind in kinds
            if kind.scope not in (Scope.CALL, Scope.PAIR) and (effects is None or kind.effect in effects)
        ]

    def uniform(self, name: str) -> Callable[[], float]:
        """Return what draws from [0, 1) from a stream of that name."""
        return self._streams.rng(name).random

    # ---- counting

    def count(self, kind: FaultKind) -> None:
        """Count one strike."""
        self.counts[f"fault/{kind.name}"] += 1

    def notice(self, kind: FaultKind, spells: Spells) -> None:
        """Count a spell, once, when it is first felt."""
        if spells.counted != spells.begin and spells.begin <= self.env.now:
            spells.counted = spells.begin
            self.count(kind)

    def cost(self, kind: FaultKind, seconds: float) -> None:
        """Add what a strike cost somebody."""
        self.counts[f"fault_seconds/{kind.name}"] += seconds  # type: ignore[assignment]

    # ---- what takes time

    async def suffer(self, blow: Blow | None, began: float) -> None:
        """Let the time pass that a call takes longer, which began at ``began`` and would have its answer now."""
        if blow is None:
            return
        own = self.env.now - began
        extra = [*blow.later, *((kind, (factor - 1.0) * own) for kind, factor in blow.slower)]
        for kind, seconds in extra:
            self.cost(kind, seconds)
        if total := sum(seconds for _, seconds in extra):
            await asyncio.sleep(total)

    async def fail(self, blow: Blow | None, error: Callable[[FaultKind], Exception]) -> None:
        """Let a struck call fail, if it is to: after its time, with the error made for what struck it."""
        if blow is None or blow.kind is None:
            return
        self.cost(blow.kind, blow.seconds)
        await asyncio.sleep(blow.seconds)
        raise error(blow.kind)

    async def standstill(self) -> None:
        """Wait, as all of the control plane does, while it waits for its store."""
        for kind, spells in self._stalls:
            while spells.at(now := self.env.now):
                self.notice(kind, spells)
                self.cost(kind, spells.end - now)
                await asyncio.sleep(spells.end - now)

    def leave(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Let something go on that nobody has to wait for, and return it; it is cancelled with the run."""
        task = asyncio.get_running_loop().create_task(work)
        self._left.add(task)
        task.add_done_callback(self._left.discard)
        return task
