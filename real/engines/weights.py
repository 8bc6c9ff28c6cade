"""How weights get into an engine: ``Transfer``, by reloading a folder or by vLLM's weight-transfer routes."""

from __future__ import annotations

import asyncio
import itertools
import os
import shutil
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

from dartsim.core.errors import ConfigError, WorkerFault
from dartsim.core.types import Version, Weights
from dartsim.real.engines.client import EngineClient
from dartsim.real.engines.errors import EngineBadReply, WeightsRefused, WeightsTorn
from dartsim.real.engines.ledger import FileState, file_state, is_adapter_folder
from dartsim.real.engines.plugin import BACKEND, digest


class Transfer(Protocol):
    """Puts weights into a paused engine and names them."""

    async def prepare(self, client: EngineClient) -> None:
        """Prepare a freshly started engine for transfers."""

    async def look(self, folder: Path) -> None:
        """Find out what has to be known of a folder before an engine is paused for it.

        Raises:
            WeightsRefused: If it cannot be read.
        """

    async def put(self, client: EngineClient, folder: Path, version: Version) -> None:
        """Put the weights of a folder into the engine and name them by the version.

        Raises:
            WeightsRefused: If the engine could not load them.
            WorkerFault: If the engine did not answer.
        """


class FolderReload:
    """The engine's workers load a folder again, as they did at their start. Works with every vLLM server.

    The folder must be on a disk that the engine's host reads under the same path. vLLM ignores missing tensors here;
    ``WeightsLedger.inspect`` finds them before.
    """

    async def prepare(self, client: EngineClient) -> None:
        """Nothing to do."""

    async def look(self, folder: Path) -> None:
        """Nothing to find out."""

    async def put(self, client: EngineClient, folder: Path, version: Version) -> None:
        root = folder.parent if folder.suffix == ".safetensors" else folder
        with _refusing(version):
            await client.rpc("reload_weights", weights_path=str(root.absolute()))
        await client.label(version)


@dataclass(slots=True)
class RouteTransfer:
    """vLLM's weight-transfer routes: init (once), start, update, finish; the last one names the weights.

    The engine must have been started with the backend: ``EngineOptions.transfer``.
    """

    init_info: Mapping[str, Any]
    update_info: Callable[[Path], Mapping[str, Any]]
    known: tuple[Path, Mapping[str, Any]] | None = None

    async def prepare(self, client: EngineClient) -> None:
        """Open the engine's end of the transfer."""
        with _refusing(0):
            await client.transfer("init_weight_transfer_engine", {"init_info": dict(self.init_info)})

    async def look(self, folder: Path) -> None:
        """Compute the update information early; a checksum of 16 GB takes ten seconds and more."""
        self.known = (folder, await self._info(folder))

    async def put(self, client: EngineClient, folder: Path, version: Version) -> None:
        """Take the steps. If a step fails, the update is closed, so that the next one can begin."""
        known, self.known = self.known, None
        info = known[1] if known is not None and known[0] == folder else await self._info(folder)
        with _refusing(version):
            try:
                await client.transfer("start_weight_update")
            except EngineBadReply:
                # Another client left half-way: its update is still open.
                await _close_update(client)
                await client.transfer("start_weight_update")
            try:
                await client.transfer("update_weights", {"update_info": dict(info)})
            except WorkerFault:
                await _close_update(client)
                raise
            await client.transfer("finish_weight_update", {"weight_version": str(version)})

    async def _info(self, folder: Path) -> Mapping[str, Any]:
        try:
            return await asyncio.to_thread(self.update_info, folder)
        except OSError as error:  # newer versions replaced it on the disk
            raise WeightsRefused(f"{str(folder)!r} cannot be read: {error}") from error


def file_transfer(root: Path = Path("/")) -> RouteTransfer:
    """Return the transfer by files: our backend in the engine reads them, checks their SHA-256, then loads them.

    Args:
        root: Paths are sent relative to this folder, which the engines' hosts see under the same path.
    """

    def info(folder: Path) -> dict[str, Any]:
        files = sorted(folder.glob("*.safetensors")) if folder.is_dir() else [folder]
        path = folder.resolve().relative_to(root.resolve())
        return {"path": str(path), "sha256": {file.name: _digest(file_state(file)) for file in files}}

    return RouteTransfer(init_info={"root": str(root.resolve())}, update_info=info)


@lru_cache(maxsize=64)  # once for all engines of a pool
def _digest(state: FileState) -> str:
    return digest(state.file)


def transfer_for(backend: str | None) -> Transfer:
    """Return the transfer for an engine that was started with a backend; a folder reload without one.

    Raises:
        ConfigError: If the backend is not ours.
    """
    if backend is None:
        return FolderReload()
    if backend == BACKEND:
        return file_transfer()
    raise ConfigError(f"the transfer backend {backend!r} is unknown; wanted {BACKEND!r} or none, or a RouteTransfer")


class Spool:
    """Weights of any source as folders, each written once.

    Args:
        folder: Where snapshots are written.
        like: The model's folder, whose other files are copied beside the weights; engines can start from the result.
        keep: Snapshots kept on disk, at least 1: those that were asked for last. An engine that restarts may ask for
            an older one than all of them.
        dtype: Of the written weights, by torch's name; None: as they are.
        adapters: Whether engines take adapters; if not, they are merged into the weights of ``like``.
    """

    def __init__(
        self,
        folder: Path,
        *,
        like: Path | None = None,
        keep: int = 4,
        dtype: str | None = None,
        adapters: bool = True,
    ) -> None:
        self._folder = folder
        self._like = like
        self._keep = keep
        self._dtype = dtype
        self._adapters = adapters
        self._lock = asyncio.Lock()
        self._written: dict[Version, Path] = {}
        self._starts = itertools.count()

    async def folder(self, weights: Weights) -> Path:
        """Return the folder, or file, of published weights; a snapshot is written to one.

        Raises:
            WeightsRefused: If there is nothing to load, or it cannot be written.
        """
        source = weights.source
        if isinstance(source, str | Path) and (self._adapters or not is_adapter_folder(Path(source))):
            return Path(source)
        if not isinstance(source, str | Path | Mapping):
            raise WeightsRefused(
                f"version {weights.version} came as {type(source).__name__}; wanted a folder of safetensors, or tensors"
            )
        async with self._lock:
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
    async def stable_copy(self, folder: Path) -> AsyncIterator[Path]:
        """Provide a copy of a folder (hard links) that stays when newer versions replace the folder.

        A starting engine reads its folder only after half a minute or more.

        Raises:
            WeightsTorn: If the folder is gone.
            WeightsRefused: If there is no room for it.
        """
        copy = self._folder / f"start-{next(self._starts):06d}"
        try:
            try:
                await asyncio.to_thread(_link_files, folder, copy)
            except FileNotFoundError as error:
                raise WeightsTorn(f"{str(folder)!r} is gone: newer weights took its place") from error
            except OSError as error:
                raise WeightsRefused(f"{str(folder)!r} cannot be kept for a start: {error}") from error
            yield copy
        finally:
            await asyncio.to_thread(shutil.rmtree, copy, ignore_errors=True)

    def _write(self, version: Version, source: str | Path | Mapping[str, Any]) -> None:
        from dartsim.real.vlm.export import export_weights, read_weights, with_adapter
        from dartsim.real.vlm.lora import is_adapter

        tensors = source if isinstance(source, Mapping) else read_weights(Path(source), ())
        if not self._adapters and is_adapter(tensors):
            assert self._like is not None, "adapters are for a model"
            tensors = with_adapter(self._like, tensors)
        folder = self._folder / f"version-{version:06d}"
        self._written[version] = export_weights(tensors, folder, like=self._like, dtype=self._dtype)


@contextmanager
def _refusing(version: Version) -> Iterator[None]:
    """Turn an error status of a weight route into ``WeightsRefused``; other faults pass."""
    try:
        yield
    except EngineBadReply as error:
        raise WeightsRefused(f"version {version}: {error}") from error


async def _close_update(client: EngineClient) -> None:
    with suppress(WorkerFault):
        await client.transfer("finish_weight_update")


def _link_files(folder: Path, target: Path) -> None:
    """Link the files of a folder into another one; copy them if that is on another disk."""
    target.mkdir(parents=True)
    for file in folder.iterdir():
        if file.is_file():
            try:
                os.link(file, target / file.name)
            except FileNotFoundError:
                raise
            except OSError:
                shutil.copy2(file, target / file.name)
