"""``FaultInjector``: the active faults of one run, looked up by place, and counted.

It counts injections (``fault/<name>``; a window counts once, when it first affects something) and the seconds that they
cost (``fault_seconds/<name>``). Nothing here wakes the loop or schedules anything by itself.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any

from dartsim.core.rng import Streams
from dartsim.sim.environment import SimEnvironment
from dartsim.sim.faults.kinds import ActiveFault, Effect, FaultKind, Place, Scope
from dartsim.sim.faults.timing import CallFault, WindowFault

CONTROL, LEARNER, STORE = "control", "learner", "store"
"""Names of components in the network; hosts and workers are numbered."""

LEASE_SECONDS = 870.0
"""If a clock is further ahead, a living owner's lease looks expired (real.containers: 900 s, renewed every 30)."""

GONE_SECONDS = 1.0
"""Time until a client learns that a desktop was removed, because its host refuses the call."""

ADDS_TIME = frozenset({Effect.LATER, Effect.SLOWER})
"""Effects that add to each other and to any other effect."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSize:
    """The number of components of each kind."""

    desktops: int
    hosts: int
    workers: int

    def num_members(self, scope: Scope) -> int:
        """Return the number of members of a scope."""
        return {Scope.DESKTOP: self.desktops, Scope.HOST: self.hosts, Scope.WORKER: self.workers}.get(scope, 1)


@dataclass(slots=True)
class Injection:
    """What is injected into one call.

    Attributes:
        kind: The fault that makes it fail after ``seconds``; None: it does not fail.
        seconds: Time until it fails.
        extra: Faults that make it longer, with their additional seconds or factor.
    """

    kind: FaultKind | None = None
    seconds: float = 0.0
    extra: list[tuple[FaultKind, float]] = field(default_factory=list)

    def add(self, kind: FaultKind, amount: float) -> None:
        """Add the effect of a fault; if several end a call, the first one does."""
        if kind.effect in ADDS_TIME:
            self.extra.append((kind, amount))
        elif self.kind is None:
            self.kind, self.seconds = kind, amount

    def ending(self, effect: Effect) -> FaultKind | None:
        """Return the fault if the call ends in this way."""
        return self.kind if self.kind is not None and self.kind.effect is effect else None


@dataclass(slots=True, eq=False)
class InjectionPoint:
    """All faults that can affect one kind of call of one component."""

    injector: FaultInjector
    calls: Sequence[CallFault]
    windows: Sequence[tuple[FaultKind, WindowFault]]
    target: int
    num_members: int

    def injection(self, now: float) -> Injection | None:
        """Return what is injected into the call that begins now, or None; call this once per call."""
        injection: Injection | None = None
        for fault in self.calls:
            seconds = fault.hit(now, self.target, self.num_members)
            if seconds is not None and (injection is None or injection.kind is None or fault.kind.effect in ADDS_TIME):
                self.injector.count(fault.kind)
                injection = injection or Injection()
                injection.add(fault.kind, seconds)
        for kind, window in self.windows:
            if not window.is_open(now):
                continue
            amount = window.value
            if kind.effect is Effect.SKEWED:
                if amount <= LEASE_SECONDS:
                    continue
                amount = GONE_SECONDS
            elif kind.effect is not Effect.SLOWER:
                amount = min(amount, self.injector.heal_at - now)
            self.injector.count_window(kind, window)
            injection = injection or Injection()
            injection.add(kind, amount)
        return injection

    def lost(self, since: float, now: float) -> FaultKind | None:
        """Return the fault that removed everything present at ``since``; None if there is none."""
        for kind, window in self.windows:
            if kind.effect is Effect.LOST and window.was_open(since, now):
                self.injector.count_window(kind, window)
                return kind
        return None


class FaultInjector:
    """The faults of one run."""

    def __init__(
        self,
        active: Mapping[str, ActiveFault],
        *,
        env: SimEnvironment,
        streams: Streams,
        counts: Counter[str],
        size: ClusterSize,
        heal_at: float = inf,
    ) -> None:
        self.env = env
        self.counts = counts
        self.size = size
        self.heal_at = heal_at
        self.parts = {fault.kind.place.split(".")[0] for fault in active.values()}
        """Components with faults: "desktop", "host", "worker", …, and what is between them."""
        self._active = active
        self._streams = streams
        self._calls: dict[str, CallFault] = {}
        self._windows: dict[tuple[str, int], WindowFault] = {}
        self._background: set[asyncio.Task[None]] = set()
        self._stalls = self._windows_at((Place.STORE,), {}, (Effect.UNAVAILABLE,))

    def point(
        self, places: Iterable[Place], members: Mapping[Scope, int], *, effects: Sequence[Effect] | None = None
    ) -> InjectionPoint:
        """Return all faults of one kind of call of a component, which is the first of ``members``."""
        chosen = frozenset(places)
        names = [a.kind.name for a in self._active.values() if a.kind.place in chosen and a.kind.scope is Scope.CALL]
        calls = [
            fault for fault in map(self.call_fault, names) if fault and (not effects or fault.kind.effect in effects)
        ]
        of = next(iter(members), Scope.DESKTOP)
        windows = self._windows_at(chosen, members, effects)
        return InjectionPoint(self, calls, windows, members.get(of, 0), self.size.num_members(of))

    def call_fault(self, name: str) -> CallFault | None:
        """Return a fault of single calls, one object per run; None if it is not active."""
        if name in self._active and name not in self._calls:
            active = self._active[name]
            rng = self._streams.rng(f"faults/{name}")
            lasts = active.lasts.sampler(self._streams.rng(f"faults/{name}/lasts"))
            self._calls[name] = CallFault(active, rng=rng, lasts=lasts, heal_at=self.heal_at)
        return self._calls.get(name)

    def window_fault(self, name: str, member: int = 0, *, by_target: bool = False) -> WindowFault | None:
        """Return the windows of a fault for one member of its scope; None if it is not active."""
        key = (name, member)
        if name in self._active and key not in self._windows:
            active = self._active[name]
            num_members = self.size.num_members(active.kind.scope)
            rng = self._streams.rng(f"faults/{name}/{member}")
            self._windows[key] = WindowFault(
                per_hour=active.rate,
                rng=rng,
                lasts=active.lasts,
                value=active.kind.per_call.sampler(self._streams.rng(f"faults/{name}/{member}/call")),
                windows=[window for window in active.windows if by_target or window.includes(member, num_members)],
                by_target=by_target,
                start=self.env.now,
                heal_at=self.heal_at,
            )
        return self._windows.get(key)

    def _windows_at(
        self, places: Iterable[Place], members: Mapping[Scope, int], effects: Sequence[Effect] | None
    ) -> list[tuple[FaultKind, WindowFault]]:
        found = []
        for kind in (active.kind for active in self._active.values()):
            if kind.place in places and kind.scope is not Scope.CALL and (not effects or kind.effect in effects):
                window = self.window_fault(kind.name, members.get(kind.scope, 0))
                assert window is not None
                found.append((kind, window))
        return found

    def uniform(self, name: str) -> Callable[[], float]:
        """Return a function that draws from [0, 1), using the stream of that name."""
        return self._streams.rng(name).random

    def count(self, kind: FaultKind) -> None:
        self.counts[f"fault/{kind.name}"] += 1

    def count_window(self, kind: FaultKind, window: WindowFault) -> None:
        """Count a window, once, when it first affects something."""
        if window.counted != window.begin and window.begin <= self.env.now:
            window.counted = window.begin
            self.count(kind)

    def add_cost(self, kind: FaultKind, seconds: float) -> None:
        """Add seconds that an injection cost."""
        self.counts[f"fault_seconds/{kind.name}"] += seconds  # type: ignore[assignment]

    async def carry_out(
        self,
        work: Callable[[], Awaitable[Any]],
        injection: Injection | None,
        began: float,
        error: Callable[[FaultKind], Exception],
    ) -> Any:
        """Do the work of a call that began at this time, with its injection; return the result."""
        if injection is None:
            return await work()
        await self.before_call(injection, error)
        result = await work()
        await self.after_call(injection, began, error)
        return result

    async def before_call(self, injection: Injection | None, error: Callable[[FaultKind], Exception]) -> None:
        """Fail a call that is not carried out, after the fault's time, with the error for the fault."""
        if injection is not None and injection.kind is not None and not injection.ending(Effect.ACK_LOST):
            await self._fail(injection.kind, injection.seconds, error)

    async def after_call(
        self, injection: Injection | None, began: float, error: Callable[[FaultKind], Exception] | None = None
    ) -> None:
        """Wait for a call's extra time, and fail the call if its acknowledgment is lost."""
        if injection is None:
            return
        own = self.env.now - began
        total = 0.0
        for kind, amount in injection.extra:
            seconds = (amount - 1.0) * own if kind.effect is Effect.SLOWER else amount
            self.add_cost(kind, seconds)
            total += seconds
        if total:
            await asyncio.sleep(total)
        if error is not None and (lost := injection.ending(Effect.ACK_LOST)):
            await self._fail(lost, injection.seconds, error)

    async def _fail(self, kind: FaultKind, seconds: float, error: Callable[[FaultKind], Exception]) -> None:
        self.add_cost(kind, seconds)
        await asyncio.sleep(seconds)
        raise error(kind)

    async def wait_for_store(self) -> None:
        """Wait, like the whole control plane, while the store stalls."""
        for kind, window in self._stalls:
            while window.is_open(now := self.env.now):
                self.count_window(kind, window)
                self.add_cost(kind, window.end - now)
                await asyncio.sleep(window.end - now)

    def in_background(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run work in the background and return its task, which is cancelled with the run."""
        task = asyncio.get_running_loop().create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return task

    async def settle(self) -> None:
        """Wait for everything in the background: tear-downs and reapers."""
        while self._background:
            await asyncio.wait(list(self._background))
