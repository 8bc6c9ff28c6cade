"""Desktops on the nodes of a cluster: the actor that drives those of its node, and the provider that calls it.

The actor opens a provider of desktops as a run on that machine would. The control plane numbers desktops, so that a
restarted actor does not know the desktops of its predecessor, and closing works in any state.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack, suppress
from typing import Any

import numpy as np

from dartsim.core.errors import ConfigError, DartsimError, EnvStartFailed
from dartsim.core.ports import AsyncEnv, EnvProvider
from dartsim.core.types import Observation, StepResult, Task
from dartsim.core.waiting import pausable, paused_deadline
from dartsim.real.ray_cluster.errors import HostLost, HostLostAtStart, PartGone, PartLost
from dartsim.real.ray_cluster.parts import Part

logger = logging.getLogger(__name__)

Opener = Callable[[], AbstractAsyncContextManager[EnvProvider]]
"""Opens the provider of a machine's desktops."""

_CLOSE_SECONDS = 120.0


class ScoringQueue:
    """In the actor: stands for the deadline of a score, which is the control plane's, and tells when it pauses."""

    def __init__(self) -> None:
        self.changes: asyncio.Queue[bool | None] = asyncio.Queue()

    def pause(self) -> None:
        self.changes.put_nowait(True)

    def resume(self) -> None:
        self.changes.put_nowait(False)


class DesktopHost:
    """In the actor: the desktops of one machine, by the control plane's numbers."""

    def __init__(self, opener: Opener) -> None:
        self._opener = opener
        self._desktops: dict[int, AsyncEnv] = {}
        self._starting: dict[int, asyncio.Task[None]] = {}
        self._queues: dict[int, ScoringQueue] = {}
        self._provider: asyncio.Future[EnvProvider] | None = None
        self._end = asyncio.Event()
        self._life: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Open the provider, unless it is open.

        Raises:
            DartsimError: As the opener does.
        """
        await self._opened()

    async def start(self, number: int, slot: int) -> None:
        provider = await self._opened()
        task = self._starting[number] = asyncio.create_task(self._start(provider, number, slot), name=f"start {number}")
        try:
            await task
        finally:
            del self._starting[number]

    async def _start(self, provider: EnvProvider, number: int, slot: int) -> None:
        # Recorded in the very step in which it is there: the caller may be canceled before it wakes.
        self._desktops[number] = await provider.start(slot)

    async def reset(self, number: int, task: Task, seed: int) -> Observation:
        return await self._desktop(number).reset(task, seed=seed)

    async def step(self, number: int, action: str) -> StepResult:
        return await self._desktop(number).step(action)

    async def evaluate(self, number: int) -> float:
        queue = self._queues[number] = ScoringQueue()
        try:
            with pausable(queue):
                return await self._desktop(number).evaluate()
        finally:
            del self._queues[number]
            queue.changes.put_nowait(None)

    async def queue_change(self, number: int) -> bool | None:
        """Return True once the score under way waits for its turn, False once it goes on, None once there is none."""
        queue = self._queues.get(number)
        return await queue.changes.get() if queue else None

    async def close(self, number: int) -> None:
        """Close a desktop, even one that is still starting or was closed."""
        starting = self._starting.get(number)
        if starting is not None:
            starting.cancel()
            await asyncio.wait([starting])
            await asyncio.sleep(0)  # lets `start` forget it
        desktop = self._desktops.pop(number, None)
        if desktop is not None:
            await desktop.close()

    async def shut(self) -> None:
        """Close all desktops and the provider."""
        await asyncio.gather(*(self.close(number) for number in sorted({*self._starting, *self._desktops})))
        self._end.set()
        if self._life is not None:
            await asyncio.wait([self._life])

    def _desktop(self, number: int) -> AsyncEnv:
        try:
            return self._desktops[number]
        except KeyError:
            raise HostLost(f"desktop {number} is not here: its host was restarted since") from None

    async def _opened(self) -> EnvProvider:
        if self._provider is None:
            self._provider = asyncio.get_running_loop().create_future()
            self._life = asyncio.create_task(self._live(self._provider), name="desktops")
        return await asyncio.shield(self._provider)

    async def _live(self, opened: asyncio.Future[EnvProvider]) -> None:
        """Hold the provider open, in one task from start to end."""
        try:
            async with self._opener() as provider:
                opened.set_result(provider)
                await self._end.wait()
        except Exception as error:
            if opened.done():
                logger.exception("the desktops of this host could not be closed")
                return
            opened.set_exception(error)
            self._provider = None  # the next call tries again


class PlacedHost:
    """The control plane's view of one actor; ``live`` counts its desktops."""

    def __init__(self, part: Part) -> None:
        self.part = part
        self.live = 0
        self.up = True
        self.gone = False


class RayDesktop:
    """One desktop on some node; implements ``dartsim.core.ports.AsyncEnv``."""

    def __init__(self, owner: RayProvider, host: PlacedHost, number: int) -> None:
        self._owner = owner
        self.host = host
        self._number = number
        self._closed = False

    async def reset(self, task: Task, *, seed: int) -> Observation:
        return _copied(await self._call("reset", task, seed))

    async def step(self, action: str) -> StepResult:
        observation, over = await self._call("step", action)
        return StepResult(_copied(observation), over)

    async def evaluate(self) -> float:
        """Return the score; while it waits for its turn over there, the caller's deadline stands still here."""
        following = asyncio.create_task(self._follow_queue(), name=f"scoring queue {self._number}")
        try:
            score: float = await self._call("evaluate")
            return score
        finally:
            following.cancel()
            await asyncio.wait([following])

    async def _follow_queue(self) -> None:
        with suppress(PartLost), ExitStack() as paused:
            while (waits := await self.host.part.call("queue_change", self._number)) is not None:
                if waits:
                    paused.enter_context(paused_deadline())
                else:
                    paused.close()

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self.host.live -= 1
        try:
            await self.host.part.call("close", self._number)
        except PartLost as lost:
            self._owner.lost(self.host, lost)
        except Exception as error:  # also of the actor's own code: closing a desktop must not end the run
            logger.warning("desktop %d on %s could not be closed: %s", self._number, self.host.part.name, error)

    async def _call(self, method: str, *args: Any) -> Any:
        try:
            return await self.host.part.call(method, self._number, *args)
        except PartLost as lost:
            self._owner.lost(self.host, lost)
            raise HostLost(f"desktop {self._number} was lost in {method}: {lost}") from lost


class RayProvider:
    """Starts desktops on the nodes of a cluster; implements ``core.ports.EnvProvider``. Use it as ``async with``.

    A new desktop goes to the host with the fewest. A host that ended is skipped until Ray has restarted it.
    """

    def __init__(self, hosts: Sequence[Part], *, ready_seconds: float = 120.0) -> None:
        self.counts: Counter[str] = Counter()
        self.hosts = [PlacedHost(part) for part in hosts]
        self._ready_seconds = ready_seconds
        self._numbers = 0
        self._returning: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()

    async def __aenter__(self) -> RayProvider:
        try:
            await asyncio.gather(*(host.part.placed(self._ready_seconds) for host in self.hosts))
            await asyncio.gather(*(host.part.call("open") for host in self.hosts))
        except BaseException:
            self._kill()
            raise
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def start(self, slot: int) -> RayDesktop:
        host = await self._choose()
        self._numbers += 1
        number = self._numbers
        host.live += 1
        try:
            await host.part.call("start", number, slot)
        except PartLost as lost:
            host.live -= 1
            self.lost(host, lost)
            raise HostLostAtStart(f"slot {slot}: {lost}") from lost
        except ConfigError as error:  # of the node that a host was restarted on: no reason to end the run
            host.live -= 1
            raise EnvStartFailed(f"slot {slot} on {host.part.name}: {error}") from error
        except BaseException:
            host.live -= 1
            host.part.tell("close", number)  # it may have come up under a canceled call
            raise
        return RayDesktop(self, host, number)

    def lost(self, host: PlacedHost, lost: PartLost) -> None:
        """Skip a host until it is back."""
        if not host.up:
            return
        host.up = False
        self.counts["hosts_lost"] += 1
        logger.warning("%s", lost)
        task = asyncio.create_task(self._await_back(host), name=f"back {host.part.name}")
        self._returning.add(task)
        task.add_done_callback(self._returning.discard)

    async def close(self) -> None:
        for task in self._returning:
            task.cancel()
        await asyncio.gather(*(self._shut(host) for host in self.hosts if host.up))
        self._kill()
        for host in self.hosts:
            host.up = False

    async def _choose(self) -> PlacedHost:
        while True:
            up = [host for host in self.hosts if host.up]
            if up:
                return min(up, key=lambda host: host.live)
            if all(host.gone for host in self.hosts):
                raise PartGone("no desktop host is left: all ended more often than ray.desktops.restarts allows")
            self._changed.clear()
            await self._changed.wait()

    async def _await_back(self, host: PlacedHost) -> None:
        try:
            await host.part.until_up()
        except PartGone as gone:
            logger.error("%s", gone)
            host.gone = True
            self.counts["hosts_gone"] += 1
        else:
            host.up = True
            self.counts["hosts_back"] += 1
        self._changed.set()

    async def _shut(self, host: PlacedHost) -> None:
        try:
            async with asyncio.timeout(_CLOSE_SECONDS):
                await host.part.call("shut")
        except (TimeoutError, DartsimError) as error:
            logger.warning("%s was not closed in good order: %s", host.part.name, error)

    def _kill(self) -> None:
        for host in self.hosts:
            host.part.kill()


def _copied(observation: Observation) -> Observation:
    """Copy the screenshot out of Ray's object store, which is small, into this process."""
    screenshot = observation.screenshot
    if isinstance(screenshot, np.ndarray) and not screenshot.flags.writeable:
        return observation._replace(screenshot=screenshot.copy())
    return observation
