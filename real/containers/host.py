"""``DockerHost``: one engine; ``Container``: one of our containers on it."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from dartsim.config.schema import DockerHostConfig
from dartsim.real.containers.engine import (
    CALL_SECONDS,
    CONCURRENT_CALLS,
    Connect,
    EngineInfo,
    check_reachable,
    connect,
    describe,
)
from dartsim.real.containers.errors import DockerHung, DockerLost, HostClosed, call_fault, start_fault
from dartsim.real.containers.launch import Launch, Started
from dartsim.real.containers.owner import new_owner, owner_labels, retire
from dartsim.real.containers.reaper import count_ours, reap, remove_container, remove_volumes
from dartsim.real.containers.spec import ContainerSpec

logger = logging.getLogger(__name__)

T = TypeVar("T")

SWEEP_SECONDS = 30.0
"""Interval between checks for lost containers."""
CANCEL_SECONDS = 10.0
"""How long a canceled start waits for its clean-up, which then continues in the background."""
CLOSE_TRIES = 3
"""Sweeps at the end; the next reaper removes anything left after them."""


@dataclass(eq=False, repr=False)
class Container:
    """One running container, created by ``DockerHost.start``.

    Every call goes to the engine in a thread; if canceled, the thread still finishes it or times out. A call that the
    engine cannot or will not carry out raises a ``ContainerFault`` with its cause.
    """

    engine: DockerHost
    id: str
    name: str
    slot: int
    spec: ContainerSpec
    host: str
    ports: Mapping[str, int]

    def __repr__(self) -> str:
        return f"<Container {self.name} at {self.host} {dict(self.ports)}>"

    async def remove(self) -> None:
        """Kill and remove it, paused or not, even if the caller is canceled. May be called twice.

        Raises:
            ContainerFault: If the engine does not answer. The host then keeps trying.
        """
        await self.engine.remove(self.name)

    async def kill(self) -> None:
        await self._call(lambda container: container.kill())

    async def exec(self, argv: Sequence[str]) -> tuple[int, bytes]:
        def run(container: Any) -> tuple[int, bytes]:
            api = container.client.api
            identity = api.exec_create(container.id, list(argv))["Id"]
            # Over ssh the package fails to close a complete answer that the other side closed first; it leaves a stream
            # alone.
            over_ssh = api.base_url.startswith("http+docker://ssh")
            output = b"".join(api.exec_start(identity, stream=True)) if over_ssh else api.exec_start(identity)
            return int(api.exec_inspect(identity)["ExitCode"]), bytes(output or b"")

        return await self._call(run)

    async def logs(self, *, tail: int | None = None) -> bytes:
        """Return its output, or the last ``tail`` lines."""
        return await self._call(lambda container: bytes(container.logs(tail="all" if tail is None else tail)))

    async def state(self) -> dict[str, Any]:
        """Return the engine's ``State``: ``Status``, ``Running``, ``Paused``, ``OOMKilled``, ``ExitCode`` and more.

        A desktop may be dead while this says ``running``; only a good screenshot proves that it works.
        """
        return await self._call(lambda container: dict(container.attrs["State"]))

    async def _call(self, function: Callable[[Any], T]) -> T:
        return await self.engine.call(self.id, function)


class DockerHost:
    """One engine: starts containers and removes them.

    The ``docker`` package blocks, so its calls run in threads of this host: ``concurrent_starts`` for starts,
    ``CONCURRENT_CALLS`` for everything else. Further starts wait.

    Every container counts against the capacity from before its creation until it is known to be gone (``num_held``).
    Invariant: every container with this host's owner label is held, or the next sweep removes it. After ``close``
    nothing is left, unless the engine did not answer; then any later reaper finds it.

    Args:
        settings: The engine and its limits.
        run: Name of the run, a label of every container.
        connect: Opens a client of the ``docker`` package.
        check_reachable: Checks before every call whether the engine still listens.
    """

    def __init__(
        self,
        settings: DockerHostConfig | None = None,
        *,
        run: str = "",
        connect: Connect = connect,
        check_reachable: Callable[[DockerHostConfig], None] = check_reachable,
    ) -> None:
        self.settings = settings or DockerHostConfig()
        _ = self.settings.client_address  # refuses settings under which no port could be reached
        self.owner = new_owner()
        self.run = run
        self.freed = asyncio.Event()
        """Set whenever a place may have become free; cleared by those who wait for one."""
        self._connect = connect
        self._check_reachable = check_reachable
        self._client: Any = None
        self._connect_lock = threading.Lock()
        self._held: set[str] = set()
        self._lost: set[str] = set()
        self._launches: dict[str, tuple[Launch, Future[Started | None]]] = {}
        self._removals: dict[str, asyncio.Task[None]] = {}
        self._sweeps: asyncio.Task[None] | None = None
        self._number = 0
        self._closing = False
        self._closed: asyncio.Task[None] | None = None
        name = f"docker-{self.owner.token}"
        self._starts = ThreadPoolExecutor(self.settings.concurrent_starts, thread_name_prefix=f"{name}-start")
        self._calls = ThreadPoolExecutor(CONCURRENT_CALLS, thread_name_prefix=name)

    def __repr__(self) -> str:
        return f"<DockerHost {self.settings.target}: {self.num_held} of {self.settings.max_desktops}>"

    @property
    def identity(self) -> str:
        return self.owner.token

    @property
    def num_held(self) -> int:
        """Containers that exist, are being made, or may still exist."""
        return len(self._held)

    async def start(self, spec: ContainerSpec, *, slot: int) -> Container:
        """Start a container and return it once its ports are known. If canceled or failed, nothing of it is left.

        Raises:
            ContainerStartFailed: With its cause; see ``dartsim.real.containers.errors``.
        """
        if self._closing:
            raise HostClosed(f"{self.settings.target}: the host was closed; start slot {slot} on another")
        if self._sweeps is None:
            self._sweeps = asyncio.create_task(self._sweep_often(), name=f"sweep {self.settings.target}")
        self._number += 1
        name = f"dartsim-{self.owner.token}-slot{slot}-{self._number}"
        launch = Launch(
            spec,
            self.settings,
            name=name,
            client=self._ready,
            labels=owner_labels(self.owner, run=self.run, slot=slot),
            volume=self._volume,
        )
        self._held.add(name)
        future = self._starts.submit(launch.run)
        self._launches[name] = (launch, future)
        loop = asyncio.get_running_loop()
        future.add_done_callback(lambda _: _call_soon(loop, self._launched, launch, future))
        try:
            started = await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                await self._abandon(launch, future)
                raise
            started = None  # the caller did not cancel: `close` removed it from the queue
        if started is None:
            raise HostClosed(f"{self.settings.target} was closed while slot {slot} started")
        return Container(
            self, id=started.id, name=name, slot=slot, spec=spec, host=started.address, ports=started.ports
        )

    async def call(self, identity: str, function: Callable[[Any], T]) -> T:
        """Call ``function`` with one container of the ``docker`` package, in a thread.

        Raises:
            ContainerFault: If the engine cannot or will not.
        """

        def work() -> T:
            with self._call_faults(identity[:12]):
                return function(self._ready().containers.get(identity))

        return await self._in_thread(work)

    async def remove(self, name: str) -> None:
        """Remove a container of this host; see ``Container.remove``."""
        if name not in self._held:
            return
        removal = self._removals.get(name)
        if removal is None:
            removal = self._removals[name] = asyncio.create_task(self._remove(name), name=f"remove {name}")
            removal.add_done_callback(_retrieve)
        await asyncio.shield(removal)

    async def reap(self, *, everybody: bool = False) -> int:
        """Remove our unwanted containers, of any owner, and return their number.

        Raises:
            ContainerStartFailed: If the engine does not answer.
        """

        def work(client: Any) -> int:
            return reap(
                client,
                self.owner,
                # Lost containers are not excluded, so this retries their removal.
                mine=lambda: self._held - self._lost,
                seconds=CALL_SECONDS,
                everybody=everybody,
            )

        removed = await self._ask(work)
        await self.retry_lost()
        return removed

    async def retry_lost(self) -> None:
        """Retry failed removals; containers that are gone by now free their places."""
        for name in sorted(self._lost):
            try:
                await self.remove(name)
            except (DockerLost, DockerHung) as fault:
                logger.warning("%s", fault)
                return  # the others would fail too
            except Exception as error:
                logger.warning("%s", error)

    async def info(self) -> EngineInfo:
        return await self._ask(lambda client: describe(client, self.settings.target, ours=count_ours(client)))

    async def require(self, image: str) -> None:
        """Check that the engine has an image.

        Raises:
            ContainerStartFailed: If it has not, or does not answer.
        """
        await self._ask(lambda client: client.images.get(image), image)

    async def close(self) -> None:
        if self._closed is None:
            self._closing = True
            self._closed = asyncio.create_task(self._close(), name=f"close {self.settings.target}")
        await asyncio.shield(self._closed)

    async def __aenter__(self) -> DockerHost:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    # In threads.

    def _ready(self) -> Any:
        """Return a client, connecting if there is none."""
        with self._connect_lock:
            if self._client is None:
                self._client = self._connect(self.settings)
                return self._client
        self._check_reachable(self.settings)
        return self._client

    def _volume(self, client: Any, short: str) -> str:
        """Return the name of a volume that our containers share; create it if missing."""
        name = f"dartsim-{short}-{self.owner.token}"
        client.volumes.create(name=name, labels=owner_labels(self.owner, run=self.run))
        return name

    @contextmanager
    def _call_faults(self, container: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            fault = call_fault(error, engine=self.settings.target, container=container)
            if fault is None:
                raise
            raise fault from error

    # On the loop.

    async def _ask(self, function: Callable[[Any], T], image: str = "anything") -> T:
        """Call ``function`` with a client, in a thread; fail with a ``ContainerStartFailed`` if the engine fails."""

        def work() -> T:
            try:
                return function(self._ready())
            except Exception as error:
                fault = start_fault(error, engine=self.settings.target, image=image)
                if fault is None or fault is error:
                    raise
                raise fault from error

        return await self._in_thread(work)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        if self._closed is not None and self._closed.done():
            raise HostClosed(f"{self.settings.target}: the host was closed")
        return await asyncio.get_running_loop().run_in_executor(self._calls, work)

    def _launched(self, launch: Launch, future: Future[Started | None]) -> None:
        """Record that a launch has ended."""
        self._launches.pop(launch.name, None)
        failed = future.cancelled() or future.exception() is not None or future.result() is None
        if launch.left:
            self._lost.add(launch.name)
        elif failed:
            self._forget(launch.name)

    async def _abandon(self, launch: Launch, future: Future[Started | None]) -> None:
        """Clean up after a canceled launch; wait for that, but not forever."""
        if launch.abandon():
            waiting: asyncio.Future[Any] = asyncio.create_task(self._quietly(self.remove(launch.name)))
        elif future.done():
            return
        else:
            waiting = asyncio.wrap_future(future)
        waiting.add_done_callback(_retrieve)
        await asyncio.wait({waiting}, timeout=CANCEL_SECONDS)

    async def _remove(self, name: str) -> None:
        def work() -> None:
            with self._call_faults(name):
                remove_container(self._ready(), name, seconds=CALL_SECONDS)

        try:
            await asyncio.get_running_loop().run_in_executor(self._calls, work)
        except BaseException:
            self._lost.add(name)
            raise
        else:
            self._forget(name)
        finally:
            self._removals.pop(name, None)

    def _forget(self, name: str) -> None:
        self._held.discard(name)
        self._lost.discard(name)
        self.freed.set()

    async def _sweep_often(self) -> None:
        """Remove lost containers periodically."""
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            try:
                await self.reap()
            except Exception as error:  # the engine may be back at the next sweep
                logger.warning("could not look for lost containers on %s: %s", self.settings.target, error)

    async def _quietly(self, removing: Coroutine[Any, Any, None]) -> None:
        try:
            await removing
        except Exception as error:  # the container stays among the lost ones, whose removal is retried
            logger.warning("%s", error)

    async def _close(self) -> None:
        if self._sweeps is not None:
            self._sweeps.cancel()
            await asyncio.wait({self._sweeps})
        launches = list(self._launches.values())
        for launch, future in launches:
            launch.abandon()
            future.cancel()
        if launches:
            waiting = [asyncio.wrap_future(future) for _, future in launches]
            await asyncio.gather(*waiting, return_exceptions=True)
        if self._held or self._client is not None:
            await self._sweep()
        self._starts.shutdown(wait=False)
        self._calls.shutdown(wait=False)
        retire(self.owner)
        self.freed.set()
        if self._client is not None:
            self._client.close()

    async def _sweep(self) -> None:
        """Remove everything that is held, and everything else with this host's label."""
        for attempt in range(1, CLOSE_TRIES + 1):
            await asyncio.gather(*(self._quietly(self.remove(name)) for name in sorted(self._held)))
            if not self._held:
                break
            await asyncio.sleep(0.2 * attempt)
        try:
            await asyncio.get_running_loop().run_in_executor(self._calls, self._last_sweep)
        except Exception as error:
            logger.warning("left to the next reaper on %s: %s", self.settings.target, error)

    def _last_sweep(self) -> None:
        client = self._ready()
        reap(client, self.owner, mine=lambda: (), seconds=CALL_SECONDS)
        remove_volumes(client, self.owner)


def _call_soon(loop: asyncio.AbstractEventLoop, callback: Callable[..., None], *arguments: Any) -> None:
    """Call on the loop, from any thread, unless the loop is closed."""
    try:
        loop.call_soon_threadsafe(callback, *arguments)
    except RuntimeError:
        if not loop.is_closed():
            raise


def _retrieve(future: asyncio.Future[Any]) -> None:
    """Retrieve a result that no one may be waiting for, so that asyncio does not complain."""
    if not future.cancelled():
        future.exception()
