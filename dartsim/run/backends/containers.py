"""Desktops in containers: our desktop image, and OSWorld's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from typing_extensions import override

from dartsim.core.registry import register
from dartsim.core.types import Task
from dartsim.run.backends import DesktopBackend

if TYPE_CHECKING:
    from dartsim.config import Config


@register("desktops", "desktop")
class ContainerDesktops(DesktopBackend):
    """Containers of our desktop image."""

    task_sources: ClassVar[tuple[str, ...]] = ("desktop", "osworld")
    boots = True
    packages = ("docker", "httpx")
    no_states = 'for containers it would take CRIU; desktop.variant = "vm" has virtual machines'

    @override
    def saves_states(self, config: Config) -> bool:
        return config.desktop.variant == "vm"

    @override
    def problems(self, config: Config) -> Iterator[str]:
        if config.desktop.own_disk:
            yield from _open_desktops(config)

    @override
    def plan(self, config: Config) -> dict[str, Any]:
        from dartsim.real.containers.plan import desktop_plan

        return desktop_plan(config)

    @override
    def memory_gib(self, config: Config) -> tuple[Sequence[float], float] | None:
        from dartsim.real.osworld.backend import memory_of_hosts
        from dartsim.real.ray_cluster.backend import placed

        # The driver cannot query container engines of other nodes.
        return None if placed(config, "desktops") else memory_of_hosts(config)

    @override
    def supported(self, config: Config, tasks: Sequence[Task]) -> Sequence[Task]:
        from dartsim.real.osworld.task_list import evaluator_facts, supported_tasks
        from dartsim.real.ray_cluster.backend import placed

        # Each node checks its own evaluator.
        facts = None if placed(config, "desktops") else evaluator_facts(config, tasks)
        return supported_tasks(config, tasks, facts)

    @override
    def check_hosts(self, config: Config) -> None:
        from dartsim.real.containers.fleet import require_image
        from dartsim.real.containers.plan import container_spec, docker_hosts
        from dartsim.real.ray_cluster.backend import placed

        if not placed(config, "desktops"):
            require_image(list(docker_hosts(config.desktop).values()), container_spec(config).image)

    @override
    def open_here(
        self, config: Config, tasks: Sequence[Task], on_call: Any = None, *, folder: Path | None = None
    ) -> AbstractAsyncContextManager[Any]:
        from dartsim.real.osworld.backend import open_desktops

        return open_desktops(config, tasks, on_call, folder=folder)


@register("desktops", "osworld")
class OSWorldDesktops(ContainerDesktops):
    """Containers of OSWorld's image, with a virtual machine in each."""

    task_sources: ClassVar[tuple[str, ...]] = ("osworld",)
    no_states = "the start script of OSWorld's image gives QEMU a CPU with migratable=no and a writable firmware file"

    @override
    def saves_states(self, config: Config) -> bool:
        return False

    @override
    def problems(self, config: Config) -> Iterator[str]:
        if config.desktop.disk is None:
            yield 'backend.desktops = "osworld" needs desktop.disk, the path of Ubuntu.qcow2.'
        yield from _open_desktops(config)


def _open_desktops(config: Config) -> Iterator[str]:
    """Yield each host whose desktops others reach without a token."""
    for name, host in config.desktop.hosts.items():
        if not host.without_token and not host.bind.startswith("127.") and host.bind not in ("::1", "localhost"):
            yield (
                f"desktop.hosts.{name}.bind = {host.bind!r} lets others reach desktops whose server requires no "
                f"token. Use 127.0.0.1 (with an ssh:// url), or set desktop.hosts.{name}.without_token = true in a "
                "network of your own."
            )
