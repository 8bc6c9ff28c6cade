"""Desktops in containers: ``start_desktop`` starts one, ``Starter`` also opens the engine.

``DesktopProvider`` starts those of a run.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dartsim.core.errors import ConfigError, EnvFault, EnvStartFailed
from dartsim.core.words import clean
from dartsim.real.containers.fleet import DesktopFleet
from dartsim.real.containers.spec import ContainerSpec
from dartsim.real.osworld.connect import DesktopOptions, connect
from dartsim.real.osworld.desktop import OnCall, OsworldDesktop
from dartsim.real.osworld.errors import WrongScreenAtStart
from dartsim.real.osworld.fetch import DesktopAddress
from dartsim.real.osworld.snapshots import DesktopSnapshots, SavedStates

if TYPE_CHECKING:
    from dartsim.real.containers.host import Container, DockerHost

logger = logging.getLogger(__name__)

LOOK_SECONDS = 2.0
"""Interval between checks of a booting desktop's container, seconds."""
GIVE_UP_SECONDS = 10.0
"""How long a failed or canceled start waits for its clean-up, which then continues in the background, because an engine
that hangs must not keep a slot past its deadline. Equal to ``DockerHost``'s limit."""

LINE_CHARACTERS = 200

_closing: set[asyncio.Task[None]] = set()
"""Running clean-ups, because asyncio itself keeps only weak references to tasks."""


def address_of(container: Container) -> DesktopAddress:
    """Return the addresses of a desktop in a container, by the names of its ports."""
    host = f"[{container.host}]" if ":" in container.host else container.host

    def url(name: str) -> str | None:
        return f"http://{host}:{container.ports[name]}" if name in container.ports else None

    server = url("server")
    if server is None:
        raise ValueError(f"{container} publishes {', '.join(container.ports) or 'no port'}, wanted one named 'server'")
    return DesktopAddress(server_url=server, chromium_url=url("chromium"), vlc_url=url("vlc"))


async def start_desktop(
    host: DockerHost | DesktopFleet,
    spec: ContainerSpec,
    options: DesktopOptions,
    *,
    slot: int = 0,
    on_call: OnCall | None = None,
    saved: SavedStates | None = None,
) -> OsworldDesktop:
    """Start a container and return its desktop, ready. If canceled or failed, nothing of it is left in the end.

    Reverting the desktop removes the container and starts another from the same image. A virtual machine whose states
    can be saved gets ``snapshots`` if ``saved``, the states of the run's desktops, is given.

    Raises:
        EnvStartFailed: If it did not become ready.
    """
    loop = asyncio.get_running_loop()

    async def up() -> Container:
        began = loop.time()
        try:
            return await host.start(spec, slot=slot)
        finally:
            if on_call is not None:
                on_call("start", loop.time() - began)

    container = await up()

    async def revert() -> DesktopAddress:
        nonlocal container
        await container.remove()
        container = await up()
        return address_of(container)

    desktop = connect(address_of(container), options, close=lambda: container.remove(), revert=revert, on_call=on_call)
    if saved is not None and spec.state_command is not None:
        desktop.snapshots = DesktopSnapshots(desktop, lambda: container, saved)
    try:
        await boot(desktop, container, options.consoles)
    except BaseException:
        await _give_up(desktop)
        raise
    return desktop


async def boot(desktop: OsworldDesktop, container: Container, consoles: Path | None) -> None:
    """Wait until the desktop of a container is ready.

    Raises:
        EnvStartFailed: If it did not become ready; it says what its console showed.
    """
    try:
        await _boot(desktop, container)
    except EnvStartFailed as fault:
        raise type(fault)(f"{fault.problem}; {await _console(container, consoles)}", fault.fix) from fault


async def _console(container: Container, folder: Path | None) -> str:
    """Return what the console of a container or its virtual machine showed last; keep all of it in the folder."""
    try:
        output = await container.logs()
    except EnvFault as fault:
        return f"its console cannot be read: {fault}"
    lines = [line.strip() for line in output.decode(errors="replace").splitlines() if line.strip()]
    if not lines:
        return "its console is empty"
    place = ""
    if folder is not None:
        path = folder / f"{container.name}.log"
        await asyncio.to_thread(_write, path, output)
        place = f" (all of it: {path})"
    return f"its console ends with {clean(lines[-1][-LINE_CHARACTERS:])!r}{place}"


def _write(path: Path, output: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(output)


async def _give_up(desktop: OsworldDesktop) -> None:
    """Close an unused desktop; wait for that, but not forever."""
    closing = asyncio.create_task(desktop.close(), name="close a desktop that did not start")
    _closing.add(closing)
    closing.add_done_callback(_closing.discard)
    await asyncio.wait({closing}, timeout=GIVE_UP_SECONDS)


async def _boot(desktop: OsworldDesktop, container: Container) -> None:
    """Wait for a good screenshot, but not from a container that has ended."""
    booting = asyncio.create_task(desktop.boot())
    try:
        while not (await asyncio.wait({booting}, timeout=LOOK_SECONDS))[0]:
            await _still_runs(container)
    except BaseException:
        booting.cancel()
        await asyncio.wait({booting})
        raise
    await booting


async def _still_runs(container: Container) -> None:
    from dartsim.real.containers.errors import ContainerExited, ContainerFault, ContainerGone

    try:
        state = await container.state()
    except ContainerGone as fault:
        raise ContainerExited(f"{container} was removed while its desktop booted: {fault}") from fault
    except ContainerFault:
        return  # the engine may answer at the next look
    if state["Status"] in ("exited", "dead"):
        raise ContainerExited(
            f"{container.spec.image} ended with exit code {state.get('ExitCode')} before its desktop was ready"
            f"{', out of memory' if state.get('OOMKilled') else ''}"
        )


class Starter:
    """Starts one desktop after the other on the engine of DOCKER_HOST or this machine, opened when first called."""

    def __init__(self, spec: ContainerSpec, options: DesktopOptions) -> None:
        self._spec = spec
        self._options = options
        self._host: DockerHost | None = None

    async def __call__(self) -> OsworldDesktop:
        """Start a desktop, and return it ready."""
        from dartsim.real.containers.host import DockerHost

        if self._host is None:
            self._host = DockerHost(run="gymnasium")
        return await start_desktop(self._host, self._spec, self._options)

    async def close(self) -> None:
        if self._host is not None:
            await self._host.close()
            self._host = None


@dataclass(slots=True)
class _Slot:
    """The slot that a desktop serves."""

    number: int = 0


class DesktopProvider:
    """Starts desktops; implements ``dartsim.core.ports.EnvProvider``."""

    def __init__(
        self, fleet: DesktopFleet, spec: ContainerSpec, options: DesktopOptions, *, saved: SavedStates | None = None
    ) -> None:
        self._fleet = fleet
        self._spec = spec
        self._options = options
        self._saved = saved
        self._first: tuple[_Slot, OsworldDesktop] | None = None

    @asynccontextmanager
    async def checked(self, seconds: float) -> AsyncIterator[DesktopProvider]:
        """Start one desktop before the run does, so that a screen of the wrong size ends the run before any attempt.

        The first ``start`` returns this desktop. Other failures are only logged: the run tries again.

        Raises:
            ConfigError: If its screen has another size than configured.
        """
        slot = _Slot()
        try:
            async with asyncio.timeout(seconds):
                self._first = slot, await self._start(slot)
        except WrongScreenAtStart as fault:
            raise ConfigError(f"no attempt can run: {fault}") from fault
        except EnvStartFailed as fault:
            logger.warning("the first desktop did not start, and is tried again: %s", fault)
        except TimeoutError:
            logger.warning("the first desktop was not ready after %g s, and is tried again", seconds)
        try:
            yield self
        finally:
            if self._first is not None:
                await self._first[1].close()

    async def start(self, slot: int) -> OsworldDesktop:
        if self._first is not None:
            (taken, desktop), self._first = self._first, None
            taken.number = slot
            return desktop
        return await self._start(_Slot(slot))

    async def _start(self, slot: _Slot) -> OsworldDesktop:
        options = self._options

        def tell(what: str, seconds: float) -> None:
            if options.on_call is not None:
                options.on_call(slot.number, what, seconds)

        return await start_desktop(self._fleet, self._spec, options, slot=slot.number, on_call=tell, saved=self._saved)
