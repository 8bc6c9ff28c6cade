"""``ScoreArchive``: the inputs of each metric, by hash, so that stored attempts can be scored again.

A call is a JSON file that refers to its files by SHA-256; each file is stored once. Large inputs, and all inputs once
the archive is full, are only hashed, because an agent must not fill the disk.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dartsim.real.scoring.sandbox import LONG_TEXT, FileInput, GetterValue, encoded_parts

logger = logging.getLogger(__name__)

SCORES = "scores"
"""The archive's folder in a run directory."""
MAX_FILE_BYTES = 16 * 2**20
MAX_BYTES = 4 * 2**30
_DIGEST = re.compile(r"[0-9a-f]{64}")

Content = Path | bytes | str
Call = tuple[str, list[Any], dict[str, Any]]
"""A metric's name, its arguments and its options."""


class ScoreArchive:
    """A folder of calls. Its methods block."""

    def __init__(self, folder: Path | None, *, max_bytes: int = MAX_BYTES) -> None:
        self._folder = folder
        self._max_bytes = max_bytes
        self._bytes = sum(path.stat().st_size for path in folder.iterdir()) if folder and folder.is_dir() else 0

    def keep(
        self, name: str, arguments: Sequence[Any], options: Mapping[str, Any]
    ) -> tuple[tuple[str, ...], str | None]:
        """Keep a call; return the hashes of its inputs, and its own name, None if it is not kept."""
        inputs: list[str] = []
        stored: list[bool] = []

        def hashed(content: Content) -> str:
            digest, there = self._store(content)
            inputs.append(digest)
            stored.append(there)
            return digest

        described = {
            "metric": name,
            "arguments": [_described(argument, hashed) for argument in arguments],
            "options": dict(options),
        }
        digest, there = self._store(json.dumps(described, sort_keys=True))
        return tuple(inputs), digest if there and all(stored) else None

    def load(self, call: str) -> Call:
        described = json.loads(self._path(call).read_text(encoding="utf-8", errors="surrogatepass"))
        return described["metric"], [self._value(value) for value in described["arguments"]], described["options"]

    def _store(self, content: Content) -> tuple[str, bool]:
        """Return the hash of a content, and whether it is in the archive now."""
        if isinstance(content, Path):
            with content.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            size = content.stat().st_size
        else:
            hasher, size = hashlib.sha256(), 0
            for chunk in encoded_parts(content):
                hasher.update(chunk)
                size += len(chunk)
            digest = hasher.hexdigest()
        if self._folder is None:
            return digest, False
        path = self._path(digest)
        if path.is_file():
            return digest, True
        if size > MAX_FILE_BYTES or self._bytes + size > self._max_bytes:
            logger.info("the inputs of a score are not kept: %d bytes", size)
            return digest, False
        self._folder.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part")
        if isinstance(content, Path):
            shutil.copyfile(content, part)
        else:
            with part.open("wb") as file:
                file.writelines(encoded_parts(content))
        part.replace(path)
        self._bytes += size
        return digest, True

    def _value(self, described: Any) -> Any:
        kind, content = described
        if kind == "file":
            digest, name = content
            return FileInput(self._path(digest), name)
        if kind == "getter":
            digest, files, missing, some_missing = content
            read = {name: self._path(file).read_bytes() for name, file in files.items()}
            return GetterValue(self._path(digest).read_bytes(), read, missing, some_missing)
        if kind == "text":
            return self._path(content).read_bytes().decode("utf-8", "surrogatepass")
        return [self._value(item) for item in content] if kind == "list" else content

    def _path(self, digest: str) -> Path:
        assert self._folder is not None, "nothing is kept without a folder"
        if not _DIGEST.fullmatch(digest):  # an untrusted database may name another file
            raise FileNotFoundError(f"{self._folder} has no file {digest!r}: files are named by hashes")
        return self._folder / digest


def _described(value: Any, hashed: Callable[[Content], str]) -> list[Any]:
    """Return an argument as JSON: its kind and its content."""
    if isinstance(value, FileInput):
        return ["file", [hashed(value.path), value.name]]
    if isinstance(value, GetterValue):
        files = {name: hashed(content) for name, content in value.files.items()}
        return ["getter", [hashed(value.data), files, value.missing, value.some_missing]]
    if isinstance(value, list) and any(isinstance(item, FileInput) for item in value):
        return ["list", [_described(item, hashed) for item in value]]
    if isinstance(value, str) and len(value) > LONG_TEXT:
        return ["text", hashed(value)]
    hashed(json.dumps(value, sort_keys=True, default=repr))
    return ["value", value]
