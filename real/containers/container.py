"""``Container``: one of our running containers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from dartsim.real.containers.spec import ContainerSpec

if TYPE_CHECKING:
    from dartsim.real.containers.host import DockerHost

T = TypeVar("T")


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
