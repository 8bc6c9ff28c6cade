"""vLLM servers on the nodes of a cluster: the actor that starts one, and its ``Engine`` for ``VllmWorker``.

Requests do not pass through Ray: the control plane talks HTTP with the server, at the address that the actor reports.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from pathlib import Path
from typing import Literal

from dartsim.core.errors import DartsimError
from dartsim.real.engines.errors import EngineLost, EngineStartFailed
from dartsim.real.engines.launcher import LocalEngine
from dartsim.real.engines.options import EngineOptions
from dartsim.real.ray_cluster.errors import ActorLost
from dartsim.real.ray_cluster.parts import READY_SECONDS, Part, node_address

logger = logging.getLogger(__name__)

Listen = Literal["loopback", "node"]

LOST = -9
"""Exit status of a server whose actor ended, which kills the server."""


class EngineHost:
    """In the actor: one server of this node."""

    def __init__(self, options: EngineOptions, folder: str, name: str, listen: Listen) -> None:
        host = "127.0.0.1" if listen == "loopback" else node_address()
        options = replace(options, host=host, exposed=listen == "node")
        self._engine = LocalEngine(options, Path(folder), name=name)

    async def start(self, model: str | None) -> str:
        folder = Path(model or self._engine.options.model)
        if folder.is_absolute() and not await asyncio.to_thread(folder.is_dir):
            raise EngineStartFailed(
                f"{self._engine.name}: there is no model at {str(folder)!r} on this node; set ray.folder to a folder "
                "of a disk that all nodes share"
            )
        await self._engine.start(None if model is None else folder)
        return self._engine.url

    async def stop(self) -> None:
        await self._engine.stop()

    async def ended(self) -> int:
        return await self._engine.ended()

    async def place_adapter(self, folder: str) -> None:
        await self._engine.place_adapter(Path(folder))


class RayEngine:
    """A server on some node; implements ``dartsim.real.engines.launcher.Engine``."""

    can_restart = True

    def __init__(self, part: Part, *, start_seconds: float = 600.0) -> None:
        self.part = part
        self.name = part.name
        self.running = False
        self._url = ""
        self._start_seconds = start_seconds

    @property
    def url(self) -> str:
        return self._url

    async def start(self, model: Path | None = None) -> None:
        seconds = self._start_seconds + READY_SECONDS
        try:
            async with asyncio.timeout(seconds):
                self._url = await self.part.call("start", None if model is None else str(model), again=True)
        except ActorLost as lost:
            raise EngineStartFailed(f"{self.name}: {lost}") from lost
        except TimeoutError:
            raise EngineStartFailed(f"{self.name}: no node started it within {seconds:g} s") from None
        self.running = True

    async def stop(self) -> None:
        """End the server, unless its actor has ended."""
        self.running = False
        try:
            await self.part.call("stop")
        except DartsimError as error:
            logger.warning("%s: %s", self.name, error)

    async def ended(self) -> int:
        """Wait until the server has ended by itself or with its actor; return the exit status."""
        try:
            status = int(await self.part.call("ended"))
        except ActorLost as lost:
            logger.warning("%s: %s", self.name, lost)
            status = LOST
        self.running = False
        return status

    async def place_adapter(self, folder: Path) -> None:
        try:
            await self.part.call("place_adapter", str(folder))
        except ActorLost as lost:
            raise EngineLost(f"{self.name}: {lost}") from lost

    def mark_unreachable(self) -> None:
        """Its process is watched."""
