"""Desktops on the nodes of a cluster: the actor that drives those of its node, and the provider that calls it.

The actor opens a provider of desktops as a run on that machine would. The control plane numbers desktops, so that a
restarted actor does not know the desktops of its predecessor, and closing works in any state.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack, suppress
from typing import Any

import numpy as np

from dartsim.core.errors import ConfigError, DartsimError, EnvStartFailed
from dartsim.core.ports import AsyncEnv, EnvProvider
from dartsim.core.types import Observation, StepResult, Task
from dartsim.core.waiting import pausable, paused_deadline
from dartsim.real.ray_cluster.errors import ActorGone, ActorLost, HostLost
from dartsim.real.ray_cluster.parts import Part

logger = logging.getLogger(__name__)

Opener = Callable[[], AbstractAsyncContextManager[EnvProvider]]
"""Opens the provider of a machine's desktops."""

_CLOSE_SECONDS = 120.0


class ScoringQueue:
    """In the actor: stands for the deadline of a score, which is the control plane's, and says when it pauses."""

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
        self._closed: set[int] = set()
        self._queues: dict[int, ScoringQueue] = {}
        self._provider: asyncio.Future[EnvProvider] | None = None
        self._end = asyncio.Event()
        self._life: asyncio.Task[None] | None = None

    async def open(self) -> EnvProvider:
        """Open the provider, unless it is open, and return it."""
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

    async def opened(self) -> None:
        await self.open()  # a provider cannot be sent

    async def start(self, number: int, slot: int) -> None:
        desktop = await (await self.open()).start(slot)
        if number in self._closed:  # its caller was canceled
            await desktop.close()
        else:
            self._desktops[number] = desktop

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
        self._closed.add(number)
        desktop = self._desktops.pop(number, None)
        if desktop is not None:
            await desktop.close()

    async def shut(self) -> None:
        """Close all desktops and the provider."""
        await asyncio.gather(*map(self.close, list(self._desktops)))
        self._end.set()
        if self._life is not None:
            await asyncio.wait([self._life])

    def _desktop(self, number: int) -> AsyncEnv:
        try:
            return self._desktops[number]
        except KeyError:
            raise HostLost(f"desktop {number} is not here: its host was restarted since") from None


class RayDesktop:
    """One desktop on some node; implements ``dartsim.core.ports.AsyncEnv``."""

    def __init__(self, host: Part, number: int) -> None:
        self.host = host
        self._number = number

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
        with suppress(ActorLost), ExitStack() as paused:
            while (waits := await self.host.call("queue_change", self._number)) is not None:
                if waits:
                    paused.enter_context(paused_deadline())
                else:
                    paused.close()

    async def close(self) -> None:
        try:
            await self.host.call("close", self._number)
        except Exception as error:  # also of the actor's own code: closing a desktop must not end the run
            logger.warning("desktop %d on %s could not be closed: %s", self._number, self.host.name, error)

    async def _call(self, method: str, *args: Any) -> Any:
        try:
            return await self.host.call(method, self._number, *args)
        except ActorLost as lost:
            raise HostLost(f"desktop {self._number} was lost in {method}: {lost}") from lost


class RayProvider:
    """Starts desktops on the nodes of a cluster; implements ``core.ports.EnvProvider``. Use it as ``async with``.

    Every slot has its host. A start on a host that ended waits until Ray has restarted it.
    """

    def __init__(self, hosts: Sequence[Part]) -> None:
        self.hosts = hosts
        self._gone: set[Part] = set()
        self._numbers = itertools.count(1)

    async def __aenter__(self) -> RayProvider:
        try:
            await asyncio.gather(*(host.placed() for host in self.hosts))
            await asyncio.gather(*(host.call("opened") for host in self.hosts))
        except BaseException:
            self._kill()
            raise
        return self

    async def __aexit__(self, *exc: object) -> None:
        await asyncio.gather(*map(_shut, self.hosts))
        self._kill()

    async def start(self, slot: int) -> RayDesktop:
        host, number = self.hosts[slot % len(self.hosts)], next(self._numbers)
        try:
            await host.call("start", number, slot, again=True)
        except ActorGone as gone:
            self._gone.add(host)
            if len(self._gone) == len(self.hosts):
                raise ActorGone("no desktop host is left; see max_restarts in ray.desktop_options") from gone
            raise EnvStartFailed(f"slot {slot}: {gone}") from gone
        except (ActorLost, ConfigError) as error:  # of the node that a host was restarted on: no reason to end the run
            raise EnvStartFailed(f"slot {slot} on {host.name}: {error}") from error
        except BaseException:
            host.send("close", number)  # it may have come up under a canceled call
            raise
        return RayDesktop(host, number)

    def _kill(self) -> None:
        for host in self.hosts:
            host.kill()


async def _shut(host: Part) -> None:
    try:
        async with asyncio.timeout(_CLOSE_SECONDS):
            await host.call("shut")
    except (TimeoutError, DartsimError) as error:
        logger.warning("%s was not closed in good order: %s", host.name, error)


def _copied(observation: Observation) -> Observation:
    """Copy the screenshot out of Ray's object store, which is small, into this process."""
    screenshot = observation.screenshot
    if isinstance(screenshot, np.ndarray) and not screenshot.flags.writeable:
        return observation._replace(screenshot=screenshot.copy())
    return observation
