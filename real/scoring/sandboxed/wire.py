"""The format between the driver and a supervisor, and of the values that pass between getters and metrics.

A frame is a header, JSON after its length in 4 bytes, and then the bytes of its blobs, whose sizes the header has under
``blobs``. A value is JSON in which an object with one key that begins with "$" is special: ``{"$file": NAME}`` is the
path of a file of the call, ``{"$blob": [NUMBER, FOLDER]}`` a value that came as a blob and whose files are in a folder,
``{"$text": NUMBER}`` a text that came as a blob,
``{"$tuple": […]}``, ``{"$set": […]}``, ``{"$bytes": HEX}`` and ``{"$dict": [[key, value], …]}`` what JSON lacks.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Collection
from pathlib import PurePosixPath
from typing import Any

CAN_BE_SENT = (
    "import os, sys; path = os.path.expandvars(os.path.expanduser(sys.argv[1])); "
    "print(os.path.isfile(path) and os.access(path, os.R_OK) and os.path.getsize(path) <= int(sys.argv[2]))"
)
"""Code that prints, on a desktop, whether a path is a file that its server can send: if not, an agent left it so."""
HEADER_BYTES = 16 * 2**20
"""Longest header: a call's configuration and options are from the task file, and small."""


def pack(header: dict[str, Any], blobs: list[int]) -> bytes:
    """Return the first bytes of a frame whose blobs have these sizes."""
    data = json.dumps({**header, "blobs": blobs}).encode()
    if len(data) > HEADER_BYTES:
        raise ValueError(f"found a header of {len(data):,} bytes, wanted at most {HEADER_BYTES:,}")
    return len(data).to_bytes(4, "big") + data


def encode(value: Any, path_name: Callable[[str], str | None]) -> Any:
    """Return a value as JSON can hold it.

    Raises:
        TypeError: If it is of another type.
    """
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, str):
        name = path_name(value)
        return value if name is None else {"$file": name}
    if isinstance(value, bytes):
        return {"$bytes": value.hex()}
    if isinstance(value, list):
        return [encode(item, path_name) for item in value]
    if isinstance(value, tuple):
        return {"$tuple": [encode(item, path_name) for item in value]}
    if isinstance(value, (set, frozenset)):
        return {"$set": [encode(item, path_name) for item in sorted(value, key=repr)]}
    if isinstance(value, dict):
        if all(isinstance(key, str) for key in value) and not _special(value):
            return {key: encode(item, path_name) for key, item in value.items()}
        return {"$dict": [[encode(key, path_name), encode(item, path_name)] for key, item in value.items()]}
    raise TypeError(f"found a value of type {type(value).__name__}, wanted text, numbers, or lists and objects of them")


def decode(value: Any, file_path: Callable[[str], str], blob: Callable[[int], bytes]) -> Any:
    """Return the value that ``encode`` was given, or that the driver described."""
    if isinstance(value, list):
        return [decode(item, file_path, blob) for item in value]
    if not isinstance(value, dict):
        return value
    if not _special(value):
        return {key: decode(item, file_path, blob) for key, item in value.items()}
    ((kind, content),) = value.items()
    if kind == "$file":
        return file_path(content)
    if kind == "$blob":
        number, folder = content
        return decode(json.loads(blob(number)), lambda name: file_path(f"{folder}/{name}"), blob)
    if kind == "$text":
        return blob(content).decode("utf-8", "surrogatepass")
    if kind == "$bytes":
        return bytes.fromhex(content)
    items = [decode(item, file_path, blob) for item in content]
    return {"$tuple": tuple, "$set": set, "$dict": dict}[kind](items)


def check_file_name(name: str) -> str:
    """Return a name that stays inside a folder.

    Raises:
        ValueError: If it does not.
    """
    parts = PurePosixPath(name).parts
    if not parts or name.startswith("/") or ".." in parts or "\0" in name or len(name.encode()) > 1024:
        raise ValueError(f"found the file name {name!r}, wanted one inside the call's folder")
    return name


def free_name(name: str, taken: Collection[str]) -> str:
    """Return a name for a file beside others: in a folder of its own if it is one of them, or one is its folder."""
    names = itertools.chain([name], (f"{number}/{name}" for number in itertools.count(2)))
    return next(each for each in names if not any(_meet(each, other) for other in taken))


def _meet(one: str, other: str) -> bool:
    return all(a == b for a, b in zip(PurePosixPath(one).parts, PurePosixPath(other).parts, strict=False))


def _special(value: dict[str, Any]) -> bool:
    return len(value) == 1 and next(iter(value)).startswith("$")
