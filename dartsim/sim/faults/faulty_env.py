"""Desktops with faults in their start, set-up, actions, screenshots, scores and tear-down."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, NoReturn

from typing_extensions import override

from dartsim.core.errors import DartsimError, EnvBroken, EnvStartFailed, ScoreUnavailable
from dartsim.core.ports import AsyncEnv, EnvProvider
from dartsim.core.snapshots import Snapshots, WrappedSnapshots, snapshots_of
from dartsim.core.types import Observation, StepResult, Task
from dartsim.sim.faults.faulty_network import FaultyNetwork, host
from dartsim.sim.faults.injector import FaultInjector, InjectionPoint
from dartsim.sim.faults.kinds import Effect, FaultKind, Place, Scope

CLIENT_SECONDS = 90.0
"""How long a client waits for a desktop's answer (OSWorld's: 90 s)."""

GIVE_UP_SECONDS = 10.0
"""How long a cancelled start waits for its cleanup, which then continues in the background (as in real.containers:
``cancel_seconds``)."""

ANYWHERE = (Place.DESKTOP, Place.HOST)


class DesktopFaults:
    """The faults of one desktop slot on one host, by the kind of call."""

    def __init__(self, injector: FaultInjector, *, slot: int, host: int) -> None:
        members = {Scope.DESKTOP: slot, Scope.HOST: host}
        self.start = injector.point((Place.START, Place.HOST), members)
        self.setup = injector.point((Place.SETUP, *ANYWHERE), members)
        self.step = injector.point((Place.STEP, Place.SCREENSHOT, *ANYWHERE), members)
        self.score = injector.point((Place.SCORE, *ANYWHERE), members)
        self.close = injector.point((Place.CLOSE,), members)


class FaultyEnv:
    """A desktop with faults; implements ``dartsim.core.ports.AsyncEnv``."""

    def __init__(
        self, inner: AsyncEnv, injector: FaultInjector, network: FaultyNetwork, faults: DesktopFaults, part: str
    ) -> None:
        self._inner = inner
        self._injector = injector
        self._network = network
        self._faults = faults
        self._part = part
        self._started = injector.env.now

    @property
    def snapshots(self) -> Snapshots | None:
        """The desktop's saved states, with the faults of a set-up."""
        inner = snapshots_of(self._inner)
        return None if inner is None else FaultySnapshots(inner, self._set_up)

    async def _set_up(self, work: Callable[[], Awaitable[Any]]) -> Any:
        return await self._call(self._faults.setup, EnvBroken, work)

    async def reset(self, task: Task, *, seed: int) -> Observation:
        observation: Observation = await self._call(
            self._faults.setup, EnvBroken, lambda: self._inner.reset(task, seed=seed)
        )
        return observation

    async def step(self, action: str) -> StepResult:
        result: StepResult = await self._call(self._faults.step, EnvBroken, lambda: self._inner.step(action))
        return result

    async def evaluate(self) -> float:
        score: float = await self._call(self._faults.score, ScoreUnavailable, self._inner.evaluate)
        return score

    async def close(self) -> None:
        """Tear down, or fail to and hold the resources until a reaper frees them."""
        injector, began = self._injector, self._injector.env.now
        injection = self._faults.close.injection(began)
        if injection is not None and (leak := injection.ending(Effect.LEAKS)):
            injector.add_cost(leak, injection.seconds)
            injector.in_background(self._reap(injection.seconds))
            return
        await self._inner.close()
        await injector.after_call(injection, began)

    async def _reap(self, seconds: float) -> None:
        try:
            await asyncio.sleep(seconds)
        except asyncio.CancelledError:  # the run is ending; an abandoned run raises GeneratorExit instead
            await self._inner.close()
            raise
        await self._inner.close()

    async def _call(self, point: InjectionPoint, error: type[DartsimError], work: Callable[[], Awaitable[Any]]) -> Any:
        return await self._network.request(
            self._part,
            lambda: self._work(point, error, work),
            patience=CLIENT_SECONDS,
            unanswered=lambda kind: kind.error(EnvBroken),
        )

    async def _work(self, point: InjectionPoint, error: type[DartsimError], work: Callable[[], Awaitable[Any]]) -> Any:
        if not point.calls and not point.windows:
            return await work()
        injector, began = self._injector, self._injector.env.now

        def failure(kind: FaultKind) -> DartsimError:
            # A lost desktop is broken, whichever call finds out.
            return kind.error(EnvBroken if kind.place in ANYWHERE else error)

        if (lost := point.lost(self._started, began)) is not None:
            await self._fail_lost(lost)
        result = await injector.carry_out(work, point.injection(began), began, failure)
        if (lost := point.lost(self._started, injector.env.now)) is not None:
            await self._fail_lost(lost)
        return result

    async def _fail_lost(self, kind: FaultKind) -> NoReturn:
        """Fail because the host was lost since the desktop started, after the time until a client notices."""
        seconds = kind.per_call.mean
        self._injector.add_cost(kind, seconds)
        await asyncio.sleep(seconds)
        raise kind.error(EnvBroken)


class FaultySnapshots(WrappedSnapshots):
    """Saved states of a desktop with faults.

    Args:
        inner: Saved states of the desktop without faults.
        call: Makes a call or lets it fail.
    """

    def __init__(self, inner: Snapshots, call: Callable[[Callable[[], Awaitable[Any]]], Awaitable[Any]]) -> None:
        super().__init__(inner)
        self._call = call

    @override
    async def save(self, key: str) -> int:
        return int(await self._call(lambda: self._inner.save(key)))

    @override
    async def restore(self, key: str) -> None:
        await self._call(lambda: self._inner.restore(key))


class FaultyProvider:
    """Starts desktops with faults; implements ``dartsim.core.ports.EnvProvider``."""

    def __init__(
        self, inner: EnvProvider, injector: FaultInjector, network: FaultyNetwork, *, host_of: Callable[[int], int]
    ) -> None:
        self.inner = inner
        self._injector = injector
        self._network = network
        self._host_of = host_of
        self._faults: dict[int, DesktopFaults] = {}

    async def start(self, slot: int) -> AsyncEnv:
        """Start a desktop; a desktop that is not returned is torn down."""
        number = self._host_of(slot)
        if slot not in self._faults:
            self._faults[slot] = DesktopFaults(self._injector, slot=slot, host=number)
        faults = self._faults[slot]
        started: list[AsyncEnv] = []

        async def work() -> None:
            started.append(await self._start(slot, faults.start))

        try:
            await self._network.request(
                host(number),
                work,
                patience=CLIENT_SECONDS,
                unanswered=lambda kind: kind.error(EnvStartFailed, cause="engine_missing"),
            )
        except BaseException:
            for env in started:
                await self._undo(env)
            raise
        return FaultyEnv(started[0], self._injector, self._network, faults, host(number))

    async def _start(self, slot: int, point: InjectionPoint) -> AsyncEnv:
        injector = self._injector
        began = injector.env.now
        injection = point.injection(began)
        await injector.before_call(injection, _start_failure)
        env = await self.inner.start(slot)
        try:
            await injector.after_call(injection, began, _start_failure)
            if (kind := point.lost(began, injector.env.now)) is not None:
                raise _start_failure(kind)
        except BaseException:
            await self._undo(env)
            raise
        return env

    async def _undo(self, env: AsyncEnv) -> None:
        """Tear down a desktop that is not returned; a caller that timed out does not wait if that hangs."""
        await asyncio.wait({self._injector.in_background(env.close())}, timeout=GIVE_UP_SECONDS)


def _start_failure(kind: FaultKind) -> DartsimError:
    return kind.error(EnvStartFailed, cause="engine_missing" if kind.effect is Effect.LOST else "")
