"""``Spool``: weights of any source as folders that engines can read."""

from __future__ import annotations

import asyncio
import itertools
import os
import shutil
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from dartsim.core.types import Version, Weights
from dartsim.real.engines.errors import WeightsRefused, WeightsTorn
from dartsim.real.engines.ledger import is_adapter_folder


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
                except OSError as error:  # such as a full disk, which may be temporary
                    raise WeightsRefused(f"version {weights.version} cannot be written: {error}") from error
            folder = self._written.pop(weights.version)
            self._written[weights.version] = folder  # asked for last
            while len(self._written) > self._keep:
                oldest = self._written.pop(next(iter(self._written)))
                await asyncio.to_thread(shutil.rmtree, oldest, ignore_errors=True)
            return folder

    @asynccontextmanager
    async def stable_copy(self, folder: Path) -> AsyncIterator[Path]:
        """Provide a copy of a folder (hard links) that remains when newer versions replace the folder.

        A starting engine does not read its folder until half a minute later.

        Raises:
            WeightsTorn: If the folder is gone.
            WeightsRefused: If there is no room for it.
        """
        copy = self._folder / f"start-{next(self._starts):06d}"
        try:
            try:
                await asyncio.to_thread(link_files, folder, copy)
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


def link_files(folder: Path, target: Path) -> None:
    """Link the files of a folder into another one, in place of those there; copy them if that is on another disk."""
    target.mkdir(parents=True, exist_ok=True)
    for file in folder.iterdir():
        if file.is_file():
            partial = target / f"{file.name}.partial"
            partial.unlink(missing_ok=True)
            try:
                os.link(file, partial)
            except FileNotFoundError:
                raise
            except OSError:
                shutil.copy2(file, partial)
            partial.replace(target / file.name)
