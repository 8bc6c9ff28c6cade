"""``BlobStore``: screenshots and accessibility trees as content-addressed files.

    <folder>/ab/ab12….png     SHA-256 of shape and pixels; a picture shown twice is one file
    <folder>/ef/ef56….png     SHA-256 of a desktop's own PNG file, stored as received and decoded by readers
    <folder>/cd/cd34….xml.z   SHA-256 of the text, compressed

A file appears whole or not at all: it is written under another name and then renamed. Readers verify the hash, so
a damaged file is detected.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import zlib
from collections import deque
from collections.abc import Callable, Collection, Iterator
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
TEXT = ".xml.z"
_NAME = re.compile(r"[0-9a-f]{64}(\.png|\.xml\.z)")
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
RESERVE_BYTES = 64 * 2**20
"""Disk space that screenshots leave for the database."""


class Claims:
    """The files that were written ahead for a picture, each until it is put or its picture is garbage-collected.

    Called from several threads; every step is one operation of a dict or deque, which are atomic.
    """

    def __init__(self) -> None:
        self._claims: dict[str, object] = {}
        self._collected: deque[tuple[str, object]] = deque()

    def add(self, name: str, picture: Any) -> object | None:
        """Claim a file for a picture; return the claim, or None if the file is claimed already."""
        claim = object()
        if self._claims.setdefault(name, claim) is not claim:
            return None
        finalize(picture, self._collected.append, (name, claim)).atexit = False
        return claim

    def end(self, name: str, claim: object | None = None) -> bool:
        """End the claim on a file, if any, or only a certain one; return whether it was ended."""
        return (claim is None or self._claims.get(name) is claim) and self._claims.pop(name, None) is not None

    def abandoned(self) -> list[str]:
        """End the claims of garbage-collected pictures, and return their files, which nothing refers to."""
        found = []
        while self._collected:
            name, claim = self._collected.popleft()
            if self.end(name, claim):
                found.append(name)
        return found


class BlobStore:
    """Stores arrays and texts as files. Only ``prepare`` may be called concurrently.

    Args:
        folder: Created if missing.
        durable: Whether files survive a loss of power, at the cost of an fsync per file. They survive the end of the
            process in any case.
        reserve_bytes: The store is full when less than this is free on the disk, so that the run's last rows still fit.
    """

    def __init__(self, folder: Path, *, durable: bool = False, reserve_bytes: int = RESERVE_BYTES) -> None:
        self.folder = folder
        self._durable = durable
        self._reserve_bytes = reserve_bytes
        self._numbers = count()
        self._names: dict[int, tuple[ref[Any], str]] = {}
        self._claims = Claims()
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
        return self._put(self._name(picture), lambda: png_of(picture))

    def put_text(self, text: str) -> str:
        return self._put(*_text_file(text))

    def prepare(self, picture: Any, text: str | None = None) -> None:
        """Write the files of a picture and its text ahead of ``put``, from any thread.

        If the picture is garbage-collected before it is put, the next ``put`` removes them. Errors as ``put``.
        """
        files: list[tuple[str, Callable[[], bytes]]] = [(self._name(picture), lambda: png_of(picture))]
        if text is not None:
            files.append(_text_file(text))
        for name, data in files:
            # Claimed before the file is looked for, so that a ``put`` in between takes it over and it stays.
            claim = self._claims.add(name, picture)
            if claim is None:
                continue  # another thread is preparing it
            if not self._path(name).exists():
                self._new(name, data())
            else:
                self._claims.end(name, claim)  # rows may refer to it

    def get(self, name: str) -> Any:
        """Return the screenshot with this name, as it was put.

        Raises:
            TornFile: If its file is missing or damaged.
        """
        data = self._read(name)
        if f"{sha256(data).hexdigest()}{PICTURE}" == name:
            return Screenshot(data)
        try:
            picture = decode_png(data)
        except ValueError as error:
            raise self._torn(name, str(error)) from None
        if f"{picture_digest(picture)}{PICTURE}" != name:
            raise self._torn(name, "other pixels than were kept")
        return picture

    def get_text(self, name: str) -> str:
        try:
            data = zlib.decompress(self._read(name))
        except zlib.error as error:
            raise self._torn(name, str(error)) from None
        if f"{sha256(data).hexdigest()}{TEXT}" != name:
            raise self._torn(name, "another text than was kept")
        return data.decode("utf-8", "surrogatepass")

    def remove(self, names: Collection[str]) -> None:
        for name in names:
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

    def sweep(self, keep: Collection[str]) -> int:
        """Remove all files but these, and half-written ones, while nothing writes; return how many."""
        unwanted = [path for path in self._files() if path.name not in keep]
        for path in unwanted:
            path.unlink()
        return len(unwanted)

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

    def _put(self, name: str, data: Callable[[], bytes]) -> str:
        self._claims.end(name)
        self.remove(self._claims.abandoned())
        if not self._path(name).exists():
            self._new(name, data())
        self._claims.end(name)  # a preparation that began meanwhile has the same file
        return name

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


def _text_file(text: str) -> tuple[str, Callable[[], bytes]]:
    """Return the name of a text's file, and a function that returns its content."""
    data = text.encode("utf-8", "surrogatepass")
    return f"{sha256(data).hexdigest()}{TEXT}", lambda: zlib.compress(data, 6)


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
