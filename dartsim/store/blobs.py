"""``BlobStore``: screenshots as content-addressed files.

    <folder>/ab/ab12….png     SHA-256 of shape and pixels; a picture shown twice is one file
    <folder>/ef/ef56….png     SHA-256 of a desktop's own PNG file, stored as received and decoded by readers

A file appears whole or not at all: it is written under another name and then renamed. Readers verify the hash, so
a damaged file is detected.
"""

from __future__ import annotations

import asyncio
import errno
import os
import re
import shutil
from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import Any
from weakref import finalize, ref

import numpy as np

from dartsim.core.errors import StoreFault, StoreFull, TornFile
from dartsim.core.png import Screenshot, decode_png, png_of

PARTIAL = ".partial"
PICTURE = ".png"
_NAME = re.compile(r"[0-9a-f]{64}\.png")
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
RESERVE_BYTES = 64 * 2**20
"""Disk space that screenshots leave for the database."""


class FileUses:
    """Which files are needed: by rows, or by pictures until they are garbage-collected.

    Pictures begin and end in several threads, which only append to a deque: that is atomic.
    """

    def __init__(self) -> None:
        self._by_rows: set[str] = set()
        self._by_pictures: Counter[str] = Counter()
        self._changes: deque[tuple[str, int]] = deque()
        """Uses by pictures that began (1) or ended (-1), not yet counted."""

    def by_picture(self, name: str, picture: Any) -> None:
        """Note that a picture needs a file."""
        self._changes.append((name, 1))
        finalize(picture, self._changes.append, (name, -1)).atexit = False

    def by_rows(self, names: Iterable[str]) -> None:
        """Note that rows refer to these files."""
        self._by_rows.update(names)

    def ended(self, names: Iterable[str] = ()) -> list[str]:
        """Note that no row refers to these files; return the files that nothing needs any more."""
        maybe = dict.fromkeys(names)
        self._by_rows.difference_update(maybe)
        while self._changes:
            name, change = self._changes.popleft()
            self._by_pictures[name] += change
            if not self._by_pictures[name]:
                del self._by_pictures[name]
                maybe[name] = None
        return [name for name in maybe if name not in self._by_rows and name not in self._by_pictures]


class BlobStore:
    """Stores screenshots as files. Only ``prepare`` may go on during other calls.

    Args:
        folder: Created if missing.
        durable: Whether files survive a loss of power, at the cost of an fsync per file. They survive the end of the
            process in any case.
        reserve_bytes: The store is full when less than this is free on the disk, so that the run's last rows still fit.
        moves: Whether desktops' PNG files that were prepared, put or got are no longer kept in memory; only this store
            may then remove or rename files.
    """

    def __init__(
        self, folder: Path, *, durable: bool = False, reserve_bytes: int = RESERVE_BYTES, moves: bool = False
    ) -> None:
        self.folder = folder
        self._durable = durable
        self._reserve_bytes = reserve_bytes
        self._moves = moves
        self._numbers = count()
        self._names: dict[int, tuple[ref[Any], str]] = {}
        self._uses = FileUses()
        folder.mkdir(parents=True, exist_ok=True)

    def put(self, picture: Any) -> str:
        """Store a screenshot: a uint8 array [height, width, 3], which must not change afterwards, or a ``Screenshot``.

        Returns:
            The name of its file.

        Raises:
            ValueError: If it is not a screenshot.
            StoreFull: If the disk is full.
            StoreFault: If the disk failed.
        """
        name = self._name(picture)
        self._uses.by_rows((name,))
        self.remove(())
        if not self._path(name).exists():
            self._new(name, png_of(picture))
        self._move(picture, name)
        return name

    async def prepare(self, picture: Any) -> None:
        """Write the file of a picture in a thread, ahead of ``put``.

        If the picture is garbage-collected before it is put, the next ``put`` removes the file. Errors as ``put``.
        """
        await asyncio.to_thread(self._prepare, picture)
        # Another picture's file may have been removed as this one found it. No file is removed meanwhile: all that
        # remove files run on this thread.
        if self._path(name := self._name(picture)).exists():
            self._move(picture, name)

    def _prepare(self, picture: Any) -> None:
        name = self._name(picture)
        self._uses.by_picture(name, picture)
        if not self._path(name).exists():
            self._new(name, png_of(picture))

    def get(self, name: str) -> Any:
        """Return the screenshot with this name, as it was put.

        Raises:
            TornFile: If its file is missing or damaged.
        """
        data = self._read(name)
        if f"{sha256(data).hexdigest()}{PICTURE}" == name:
            screenshot = Screenshot(data)
            self._move(screenshot, name)
            return screenshot
        try:
            picture = decode_png(data)
        except ValueError as error:
            raise self._torn(name, str(error)) from None
        if f"{picture_digest(picture)}{PICTURE}" != name:
            raise self._torn(name, "other pixels than were kept")
        return picture

    def remove(self, names: Iterable[str]) -> None:
        """Remove files to which no row refers: at once, or when no picture needs them any more."""
        for name in self._uses.ended(names):
            self._path(name).unlink(missing_ok=True)

    def names(self) -> Iterator[str]:
        for path in self._files():
            if not path.name.endswith(PARTIAL):
                yield path.name

    def _files(self) -> Iterator[Path]:
        """Yield the files of the store and half-written ones, without following links."""
        for part in self.folder.glob("??"):
            if not part.is_symlink():
                yield from (path for path in part.glob("*") if _NAME.match(path.name) or path.suffix == PARTIAL)

    def sweep(self, keep: Collection[str]) -> None:
        """Remove all files but these, to which rows refer, while nothing writes."""
        self._uses.by_rows(keep)
        for path in self._files():
            if path.name not in keep:
                path.unlink()

    def _name(self, picture: Any) -> str:
        """Return the name of a screenshot; each object is hashed only once."""
        if isinstance(picture, Screenshot):
            return f"{picture.digest.hex()}{PICTURE}"
        key = id(picture)
        known = self._names.get(key)
        if known is not None and known[0]() is picture:
            return known[1]
        name = f"{picture_digest(picture)}{PICTURE}"
        self._names[key] = (ref(picture, lambda _: self._names.pop(key, None)), name)
        return name

    def _move(self, picture: Any, name: str) -> None:
        """Let a desktop's PNG file be read from the disk, where it is by now."""
        if self._moves and isinstance(picture, Screenshot) and picture.move_to(self._path(name)):
            self._uses.by_picture(name, picture)

    def _new(self, name: str, content: bytes) -> None:
        path = self._path(name)
        try:
            free = shutil.disk_usage(self.folder).free
            if free < self._reserve_bytes + len(content):
                raise OSError(errno.ENOSPC, f"{free} bytes are free, and {self._reserve_bytes} are kept for rows")
            self._write(path, content)
        except OSError as error:
            if error.errno in NO_ROOM:
                raise StoreFull(
                    f"{self.folder} has no room for another file: {error.strerror}; make room, then resume the run"
                ) from None
            raise StoreFault(f"{path} could not be written: {error.strerror}") from error

    def _write(self, path: Path, content: bytes) -> None:
        path.parent.mkdir(exist_ok=True)
        partial = path.with_name(f"{path.name}.{os.getpid()}-{next(self._numbers)}{PARTIAL}")
        try:
            with partial.open("wb") as file:
                file.write(content)
                if self._durable:
                    file.flush()
                    os.fsync(file.fileno())
            partial.rename(path)
        except OSError:
            partial.unlink(missing_ok=True)
            raise
        if self._durable:
            sync_folder(path.parent)

    def _read(self, name: str) -> bytes:
        try:
            return self._path(name).read_bytes()
        except OSError as error:
            raise self._torn(name, error.strerror or "unreadable") from None

    def _torn(self, name: str, what: str) -> TornFile:
        return TornFile(f"{self._path(name)} does not hold what was kept: {what}")

    def _path(self, name: str) -> Path:
        if not _NAME.fullmatch(name):  # names may come from a stranger's database
            raise TornFile(f"{self.folder} has no file {name!r}: files are named by hashes")
        if (self.folder / name[:2]).is_symlink():
            raise TornFile(f"{self.folder / name[:2]} is a link")
        return self.folder / name[:2] / name


def picture_digest(picture: Any) -> str:
    """Return the SHA-256 of an array's shape and pixels, in hexadecimal digits.

    Raises:
        ValueError: If it is not a screenshot.
    """
    array = np.ascontiguousarray(picture)
    if array.dtype != np.uint8 or array.ndim != 3 or array.shape[2] != 3 or not array.size:
        raise ValueError(f"a screenshot is {array.dtype} {list(array.shape)}, wanted uint8 [height, width, 3]")
    digest = sha256(np.array(array.shape[:2], dtype="<i8").tobytes())
    digest.update(array.data)
    return digest.hexdigest()


def sync_folder(folder: Path) -> None:
    """Flush a folder's directory entries to disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
