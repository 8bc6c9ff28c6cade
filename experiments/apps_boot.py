"""Costs of a desktop with OSWorld's applications: start, memory, idle CPU, time to open an application.

``measured(count, say)`` is called by ``experiments.osworld_apps``, or on its own: ``python -m experiments.apps_boot``.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from dartsim.config.schema import DesktopConfig, DockerHostConfig
from dartsim.real.containers import Container, DockerHost
from dartsim.real.containers.engine import connect
from dartsim.real.desktop import build, desktop_spec
from dartsim.real.osworld.client import VmClient
from dartsim.real.osworld.ready import Readiness, wait_booted
from dartsim.real.osworld.transport import OWN_SERVER
from experiments.desktop_work import PATIENT, percentiles

MIB = 2**20
CONFIG = DesktopConfig(variant="apps", memory_mib=4096)
BOOTED = Readiness(quiet_seconds=0.0, poll_seconds=0.05)
APPLICATIONS = {
    "chrome": ("google-chrome", "New Tab - Google Chrome"),
    "calc": ("libreoffice --calc", "LibreOffice Calc"),
    "writer": ("libreoffice --writer", "LibreOffice Writer"),
    "impress": ("libreoffice --impress", "LibreOffice Impress"),
    "gimp": ("gimp", "GNU Image Manipulation Program"),
    "vlc": ("vlc", "VLC media player"),
    "thunderbird": ("thunderbird", "Home - Mozilla Thunderbird"),
    "terminal": ("gnome-terminal", "Terminal"),
}
"""By name: what starts it, and a part of its window's title."""
IDLE_SECONDS = 20.0
MEMORY_SHARE = 0.85
"""Of a machine's memory, the share that desktops may take."""


async def _measured(boots: int, together: int, say: Callable[[str], None]) -> dict[str, Any]:
    image = await build("apps", on_line=lambda _: None)
    async with DockerHost() as host:
        await _boot_seconds(host, 0)  # the engine has read the image once
        boot = [await _boot_seconds(host, 0) for _ in range(boots)]
        say(f"{boots} starts: {percentiles(boot)}")
        begun = time.monotonic()
        many = await asyncio.gather(*(_boot_seconds(host, slot) for slot in range(together)))
        say(f"{together} at once: {percentiles(many)}, all removed after {time.monotonic() - begun:.1f} s")
        async with _desktop(host, 0) as (container, client):
            await asyncio.sleep(IDLE_SECONDS / 2)
            before, _ = _use(container)
            await asyncio.sleep(IDLE_SECONDS)
            after, memory_mib = _use(container)
            idle = (after - before) / IDLE_SECONDS
            say(f"idle: {memory_mib:.0f} MiB, {idle:.1%} of a core")
            opened = {}
            for name, (command, title) in APPLICATIONS.items():
                opened[name] = await _open_seconds(client, command, title)
                say(f"{name}: {opened[name]:.1f} s, {_use(container)[1]:.0f} MiB")
            _, all_open_mib = _use(container)
    each = memory_mib + (all_open_mib - memory_mib) / len(APPLICATIONS)
    return {
        "boot_seconds": percentiles(boot),
        "boot_seconds_together": {**percentiles(many), "desktops": together},
        "memory_mib": round(memory_mib),
        "memory_all_open_mib": round(all_open_mib),
        "idle_cores": round(idle, 4),
        "open_seconds": {name: round(seconds, 2) for name, seconds in opened.items()},
        "image_mib": round(_image_bytes(image) / MIB),
        "desktops_in_24_gib": int(24 * 1024 * MEMORY_SHARE / each),
    }


def measured(boots: int = 10, together: int = 8, say: Callable[[str], None] = print) -> dict[str, Any]:
    """Measure on the engine of DOCKER_HOST, or this machine's."""
    return asyncio.run(_measured(boots, together, say))


@asynccontextmanager
async def _desktop(host: DockerHost, slot: int) -> AsyncIterator[tuple[Container, VmClient]]:
    container = await host.start(desktop_spec(CONFIG), slot=slot)
    try:
        url = f"http://{container.host}:{container.ports['server']}"
        async with VmClient(url, server=OWN_SERVER, timeouts=PATIENT) as client:
            await wait_booted(client, BOOTED)
            yield container, client
    finally:
        await container.remove()


async def _boot_seconds(host: DockerHost, slot: int) -> float:
    """Return the seconds from the call of the engine to a good screenshot at rest."""
    begun = time.monotonic()
    async with _desktop(host, slot):
        return time.monotonic() - begun


async def _open_seconds(client: VmClient, command: str, title: str) -> float:
    """Return the seconds from a command to its window."""
    begun = time.monotonic()
    await client.launch(command, shell=True)
    until = f"for i in $(seq 600); do wmctrl -l | grep -q '{title}' && exit; sleep 0.05; done; exit 1"
    done = await client.execute(until, shell=True, seconds=60.0)
    if done.returncode:
        raise RuntimeError(f"{command} opened no window {title!r}")
    return time.monotonic() - begun


def _use(container: Container) -> tuple[float, float]:
    """Return the seconds of CPU that a container has used, and the memory that its programs take, MiB."""
    client = connect(DockerHostConfig())
    try:
        stats = client.api.stats(container.id, stream=False, one_shot=True)
    finally:
        client.close()
    memory = stats["memory_stats"]["stats"]
    programs = memory.get("anon", memory.get("total_rss", 0)) + memory.get("shmem", memory.get("total_shmem", 0))
    return stats["cpu_stats"]["cpu_usage"]["total_usage"] / 1e9, programs / MIB


def _image_bytes(image: str) -> int:
    client = connect(DockerHostConfig())
    try:
        return int(client.images.get(image).attrs["Size"])
    finally:
        client.close()


if __name__ == "__main__":
    print(json.dumps(measured(), indent=1))
