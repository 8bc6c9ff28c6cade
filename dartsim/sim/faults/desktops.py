"""Desktops that the table's faults strike: in their start, set-up, actions, pictures, scores and tear-down."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from dartsim.core.errors import DartsimError, EnvBroken, EnvStartFailed, ScoreUnavailable
from dartsim.core.ports import AsyncEnv, EnvProvider
from dartsim.core.types import Observation, StepResult, Task
from dartsim.sim.faults.kinds import Effect, FaultKind, Place, Scope
from dartsim.sim.faults.messages import Network, Unanswered, host
from dartsim.sim.faults.striking import CONTROL, Faults, Hazards

CLIENT_SECONDS = 90.0
"""How long a client waits for an answer of a desktop (OSWorld's: 90 s)."""

GIVE_UP_SECONDS = 10.0
"""How long a start that is given up waits for its own clean-up, which otherwise goes on behind it (as real.containers
does: ``cancel_seconds``)."""

ANYWHERE = (Place.DESKTOP, Place.HOST)


@dataclass(frozen=True, slots=True)
class SlotHazards:
    """All that can strike a desktop slot, by the kind of call."""

    start: Hazards
    setup: Hazards
    step: Hazards
    score: Hazards
    close: Hazards

    @classmethod
    def of(cls, faults: Faults, *, slot: int, host: int) -> SlotHazards:
        """Return those of one slot on one host."""
        members = {Scope.DESKTOP: slot, Scope.HOST: host}

        def at(*places: Place) -> Hazards:
            return faults.hazards(places, members)

        return cls(
            start=at(Place.START, Place.HOST),
            setup=at(Place.SETUP, *ANYWHERE),
            step=at(Place.STEP, Place.SCREENSHOT, *ANYWHERE),
            score=at(Place.SCORE, *ANYWHERE),
            close=at(Place.CLOSE),
        )


class StruckDesktop:
    """A desktop that faults strike; implements ``dartsim.core.ports.AsyncEnv``.

    Args:
        faults: What strikes.
        network: The way to it.
        inner: The desktop.
        hazards: What can strike it.
        host: The number of its host.
    """

    def __init__(self, faults: Faults, network: Network, inner: AsyncEnv, hazards: SlotHazards, host: int) -> None:
        self._faults = faults
        self._network = network
        self._inner = inner
        self._hazards = hazards
        self._part = f"host-{host}"
        self._started = faults.env.now

    async def reset(self, task: Task, *, seed: int) -> Observation:
        """Set up, unless something strikes."""
        shown: Observation = await self._call(
            self._hazards.setup, EnvBroken, lambda: self._inner.reset(task, seed=seed)
        )
        return shown

    async def step(self, action: str) -> StepResult:
        """Act, unless something strikes."""
        result: StepResult = await self._call(self._hazards.step, EnvBroken, lambda: self._inner.step(action))
        return result

    async def evaluate(self) -> float:
        """Score, unless something strikes."""
        score: float = await self._call(self._hazards.score, ScoreUnavailable, self._inner.evaluate)
        return score

    async def close(self) -> None:
        """Tear down; or fail to, and keep what it holds until a reaper comes."""
        blow = self._hazards.close.look(self._faults.env.now)
        if blow is None or blow.kind is None:
            await self._inner.close()
            return
        self._faults.cost(blow.kind, blow.seconds)
        self._faults.leave(self._reap(blow.seconds))

    async def _reap(self, seconds: float) -> None:
        try:
            await asyncio.sleep(seconds)
        except asyncio.CancelledError:  # the run ends; not when it was abandoned, where nothing may be awaited
            await self._inner.close()
            raise
        await self._inner.close()

    async def _call(self, hazards: Hazards, error: type[DartsimError], work: Callable[[], Awaitable[Any]]) -> Any:
        try:
            result = await self._network.call(
                CONTROL, self._part, lambda: self._work(hazards, error, work), patience=CLIENT_SECONDS
            )
        except Unanswered as cut:
            raise caused(EnvBroken, cut.kind, cut.kind.cause) from None
        await self._network.standstill()
        return result

    async def _work(self, hazards: Hazards, error: type[DartsimError], work: Callable[[], Awaitable[Any]]) -> Any:
        faults = self._faults
        await self._unless_gone(hazards)
        began = faults.env.now
        blow = hazards.look(began)
        await faults.fail(blow, lambda kind: caused(_error(kind, error), kind, kind.cause))
        result = await work()
        await faults.suffer(blow, began)
        await self._unless_gone(hazards)
        return result

    async def _unless_gone(self, hazards: Hazards) -> None:
        """Fail if its host has been lost since it started, after the time in which a client learns of it."""
        kind = hazards.gone(self._started, self._faults.env.now)
        if kind is not None:
            seconds = kind.call.mean
            self._faults.cost(kind, seconds)
            await asyncio.sleep(seconds)
            raise caused(EnvBroken, kind, kind.cause)


class StruckProvider:
    """Starts desktops that faults strike; implements ``dartsim.core.ports.EnvProvider``.

    Args:
        inner: Starts desktops.
        faults: What strikes.
        network: The way to them.
        host_of: Number of the host that a slot's desktops run on.
    """

    def __init__(self, inner: EnvProvider, faults: Faults, network: Network, *, host_of: Callable[[int], int]) -> None:
        self._inner = inner
        self._faults = faults
        self._network = network
        self._host_of = host_of
        self._hazards: dict[int, SlotHazards] = {}

    async def start(self, slot: int) -> AsyncEnv:
        """Start a desktop, unless something strikes; of one that is not returned, nothing is left in the end."""
        number = self._host_of(slot)
        if slot not in self._hazards:
            self._hazards[slot] = SlotHazards.of(self._faults, slot=slot, host=number)
        hazards = self._hazards[slot]
        started: list[AsyncEnv] = []

        async def work() -> None:
            started.append(await self._start(slot, hazards.start))

        try:
            await self._network.call(CONTROL, host(number), work, patience=CLIENT_SECONDS)
            await self._network.standstill()
        except BaseException as error:
            for env in started:
                await self._undo(env)
            if isinstance(error, Unanswered):
                raise caused(EnvStartFailed, error.kind, "engine_missing") from None
            raise
        return StruckDesktop(self._faults, self._network, started[0], hazards, number)

    async def _start(self, slot: int, hazards: Hazards) -> AsyncEnv:
        faults = self._faults
        began = faults.env.now
        blow = hazards.look(began)
        await faults.fail(blow, lambda kind: caused(EnvStartFailed, kind, _start_cause(kind)))
        env = await self._inner.start(slot)
        try:
            await faults.suffer(blow, began)
            if (kind := hazards.gone(began, faults.env.now)) is not None:
                raise caused(EnvStartFailed, kind, _start_cause(kind))
        except BaseException:
            await self._undo(env)
            raise
        return env

    async def _undo(self, env: AsyncEnv) -> None:
        """Tear down what was started in vain: a caller whose time is up does not wait for a tear-down that hangs."""
        await asyncio.wait({self._faults.leave(env.close())}, timeout=GIVE_UP_SECONDS)


def caused(error: type[DartsimError], kind: FaultKind, cause: str) -> DartsimError:
    """Return an error that says what struck, and is counted by the word of the real fault."""
    found = error(f"{kind.what} (drawn fault {kind.name})")
    found.cause = cause  # type: ignore[attr-defined]
    return found


def _error(kind: FaultKind, error: type[DartsimError]) -> type[DartsimError]:
    """A desktop that is gone is broken, whatever was asked of it."""
    return EnvBroken if kind.place in ANYWHERE else error


def _start_cause(kind: FaultKind) -> str:
    return "engine_missing" if kind.effect is Effect.LOST else kind.cause
