"""How weights get into an engine: ``Transfer``, by loading a folder again or by vLLM's weight-transfer routes."""

from __future__ import annotations

import asyncio
import itertools
import os
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

from dartsim.core.errors import ConfigError, WorkerFault
from dartsim.core.types import Version, Weights
from dartsim.real.engines.client import EngineClient
from dartsim.real.engines.errors import EngineBadReply, WeightsRefused, WeightsTorn
from dartsim.real.engines.ledger import FileNow, file_now
from dartsim.real.engines.plugin import BACKEND, digest


class Transfer(Protocol):
    """Puts weights into a paused engine, and names them."""

    async def prepare(self, client: EngineClient) -> None:
        """Get a freshly started engine ready for transfers."""

    async def look(self, folder: Path) -> None:
        """Find out what has to be known of a folder, so that no engine is paused meanwhile.

        Raises:
            WeightsRefused: If it cannot be read.
        """

    async def put(self, client: EngineClient, folder: Path, version: Version) -> None:
        """Put the weights of a folder into the engine, and name them by the version.

        Raises:
            WeightsRefused: If the engine could not load them.
            WorkerFault: If the engine did not answer.
        """


class FolderReload:
    """The engine's workers load a folder again, as they did at their start. Works with every vLLM server.

    The folder must be on a disk that the engine's host reads under the same path. Missing tensors are no error for
    vLLM here; ``Ledger.inspect`` finds them before.
    """

    async def prepare(self, client: EngineClient) -> None:
        """Nothing to do."""

    async def look(self, folder: Path) -> None:
        """Nothing to find out."""

    async def put(self, client: EngineClient, folder: Path, version: Version) -> None:
        """Reload in place and name the weights."""
        where = folder.parent if folder.suffix == ".safetensors" else folder
        with _Refusing(version):
            await client.rpc("reload_weights", weights_path=str(where.absolute()))
        await client.label(version)


@dataclass(slots=True)
class RouteTransfer:
    """vLLM's weight-transfer routes: init (once), start, update, finish; the last one names the weights.

    The engine must have been started with the backend: ``EngineOptions.transfer``.

    Attributes:
        init_info: What the backend wants to know at first.
        update_info: What it wants to know of the weights in a folder.
        alongside: What this side does while the engine receives, such as a broadcast. It has the folder, too.
        known: The folder that was looked at last, with what is told of it.
    """

    init_info: Mapping[str, Any]
    update_info: Callable[[Path], Mapping[str, Any]]
    alongside: Callable[[Path], Awaitable[None]] | None = None
    known: tuple[Path, Mapping[str, Any]] | None = None

    async def prepare(self, client: EngineClient) -> None:
        """Make the engine's end of the connection."""
        with _Refusing(0):
            await client.transfer("init_weight_transfer_engine", {"init_info": dict(self.init_info)})

    async def look(self, folder: Path) -> None:
        """Ask ``update_info`` before; a checksum of 16 GB takes ten seconds and more."""
        self.known = (folder, await self._ask(folder))

    async def put(self, client: EngineClient, folder: Path, version: Version) -> None:
        """Take the steps. If a step fails, the update is closed, so that the next one can begin."""
        info = dict(await self._told(folder))
        with _Refusing(version):
            await self._start(client)
            try:
                await self._update(client, folder, info)
            except WorkerFault:
                await _quietly(client.transfer("finish_weight_update"))
                raise
            await client.transfer("finish_weight_update", {"weight_version": str(version)})

    async def _told(self, folder: Path) -> Mapping[str, Any]:
        known, self.known = self.known, None
        return known[1] if known is not None and known[0] == folder else await self._ask(folder)

    async def _ask(self, folder: Path) -> Mapping[str, Any]:
        try:
            return await asyncio.to_thread(self.update_info, folder)
        except OSError as error:  # newer versions took its place on the disk
            raise WeightsRefused(f"{str(folder)!r} cannot be read: {error}") from error

    async def _start(self, client: EngineClient) -> None:
        try:
            await client.transfer("start_weight_update")
        except EngineBadReply:
            # Whoever loaded before went away half-way: that update is still open.
            await _quietly(client.transfer("finish_weight_update"))
            await client.transfer("start_weight_update")

    async def _update(self, client: EngineClient, folder: Path, info: dict[str, Any]) -> None:
        receive = client.transfer("update_weights", {"update_info": info})
        if self.alongside is None:
            await receive
            return
        async with asyncio.TaskGroup() as both:
            both.create_task(receive)
            both.create_task(_run(self.alongside(folder)))


def file_transfer(root: Path = Path("/")) -> RouteTransfer:
    """Return the transfer by files: our backend in the engine reads them, checks their SHA-256, then loads them.

    Args:
        root: Of the paths sent; a folder that the engines' hosts see under the same path.
    """

    def info(folder: Path) -> dict[str, Any]:
        files = sorted(folder.glob("*.safetensors")) if folder.is_dir() else [folder]
        path = folder.resolve().relative_to(root.resolve())
        return {"path": str(path), "sha256": {file.name: _digest(file_now(file)) for file in files}}

    return RouteTransfer(init_info={"root": str(root.resolve())}, update_info=info)


@lru_cache(maxsize=64)  # once for all engines of a pool
def _digest(now: FileNow) -> str:
    """Return a file's SHA-256."""
    return digest(now.file)


def nccl_transfer(
    *,
    master_address: str,
    master_port: int,
    world_size: int,
    rank_offset: int,
    describe: Callable[[Path], Mapping[str, Any]],
    broadcast: Callable[[Path], Awaitable[None]],
    packed: bool = True,
) -> RouteTransfer:
    """Return the transfer by NCCL broadcast from the trainer, as configuration of the same routes.

    Not run here: it takes GPUs on both sides. A group spans the trainer and all engines in it; engines that are
    changed k at a time need a group each, so a ``rank_offset`` of 1 and a port each.

    Args:
        master_address: Of the trainer's rendezvous.
        master_port: Of the trainer's rendezvous.
        world_size: Of the group: the trainer and every GPU of the engine.
        rank_offset: Rank of the engine's first GPU in the group.
        describe: Returns ``names``, ``dtype_names`` and ``shapes`` of what is sent, in order.
        broadcast: Sends it (vLLM's ``NCCLTrainerWeightTransferEngine`` on the trainer's side).
        packed: Many tensors a message; both sides must agree.
    """
    init_info = {
        "master_address": master_address,
        "master_port": master_port,
        "rank_offset": rank_offset,
        "world_size": world_size,
        "packed": packed,
    }
    return RouteTransfer(init_info=init_info, update_info=describe, alongside=broadcast)


def transfer_for(backend: str | None, *, root: Path = Path("/")) -> Transfer:
    """Return the transfer for an engine that was started with a backend; a folder reload without one.

    Raises:
        ConfigError: If the backend wants more than files.
    """
    if backend is None:
        return FolderReload()
    if backend == BACKEND:
        return file_transfer(root)
    raise ConfigError(f"the transfer backend {backend!r} wants a sender; build it with nccl_transfer or RouteTransfer")


class Spool:
    """Weights of any source as folders, each written once, whoever asks first.

    Args:
        folder: Where snapshots are written.
        like: The model's folder, whose other files go beside the weights; engines can be started from the result.
        keep: Snapshots kept on disk, at least 1: those that were asked for last. An engine that is started again may
            ask for an older one than all that are there.
    """

    def __init__(self, folder: Path, *, like: Path | None = None, keep: int = 4) -> None:
        self._folder = folder
        self._like = like
        self._keep = keep
        self._one = asyncio.Lock()
        self._written: dict[Version, Path] = {}
        self._starts = itertools.count()

    async def folder(self, weights: Weights) -> Path:
        """Return the folder, or file, of published weights; a snapshot is written to one.

        Raises:
            WeightsRefused: If there is nothing to load, or it cannot be written.
        """
        source = weights.source
        if isinstance(source, str | Path):
            return Path(source)
        if not isinstance(source, Mapping):
            raise WeightsRefused(
                f"version {weights.version} came as {type(source).__name__}; wanted a folder of safetensors, or tensors"
            )
        async with self._one:
            if weights.version not in self._written:
                try:
                    await asyncio.to_thread(self._write, weights.version, source)
                except OSError as error:  # a full disk, say: that may pass
                    raise WeightsRefused(f"version {weights.version} cannot be written: {error}") from error
            folder = self._written.pop(weights.version)
            self._written[weights.version] = folder  # asked for last
            while len(self._written) > self._keep:
                oldest = self._written.pop(next(iter(self._written)))
                await asyncio.to_thread(shutil.rmtree, oldest, ignore_errors=True)
            return folder

    @asynccontextmanager
    async def held(self, folder: Path) -> AsyncIterator[Path]:
        """Provide a folder's files under a name of their own, which stay while newer versions take its place.

        An engine that starts reads its folder after half a minute and more.

        Raises:
            WeightsTorn: If the folder is gone.
            WeightsRefused: If there is no room for it.
        """
        own = self._folder / f"start-{next(self._starts):06d}"
        try:
            try:
                await asyncio.to_thread(_named_again, folder, own)
            except FileNotFoundError as error:
                raise WeightsTorn(f"{str(folder)!r} is gone: newer weights took its place") from error
            except OSError as error:
                raise WeightsRefused(f"{str(folder)!r} cannot be kept for a start: {error}") from error
            yield own
        finally:
            await asyncio.to_thread(shutil.rmtree, own, ignore_errors=True)

    def _write(self, version: Version, source: Mapping[str, Any]) -> None:
        from dartsim.real.vlm.export import export_weights

        self._written[version] = export_weights(source, self._folder / f"version-{version:06d}", like=self._like)


class _Refusing:
    """Turns an error status of a weight route into ``WeightsRefused``; other faults pass."""

    def __init__(self, version: Version) -> None:
        self._version = version

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, recorder: object) -> None:
        if isinstance(error, ExceptionGroup):
            error = error.exceptions[0]
        if isinstance(error, EngineBadReply):
            raise WeightsRefused(f"version {self._version}: {error}") from error


def _named_again(folder: Path, target: Path) -> None:
    """Give the files of a folder second names in another one; copies where that is another disk."""
    target.mkdir(parents=True)
    for file in folder.iterdir():
        if file.is_file():
            try:
                os.link(file, target / file.name)
            except FileNotFoundError:
                raise
            except OSError:
                shutil.copy2(file, target / file.name)


async def _quietly(step: Awaitable[None]) -> None:
    try:
        await step
    except WorkerFault:
        return


async def _run(awaitable: Awaitable[None]) -> None:
    await awaitable
