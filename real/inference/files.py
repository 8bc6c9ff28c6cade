"""A file as it is on the disk now: the key of what was read of it."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple


class FileNow(NamedTuple):
    """What tells a file from one that took its place, or that was written to since.

    Attributes:
        file: Its path.
        inode: Of the file that is there now.
        size: Bytes.
        changed_ns: When it was written last, nanoseconds.
    """

    file: Path
    inode: int
    size: int
    changed_ns: int


def file_now(file: Path) -> FileNow:
    """Return a file as it is.

    Raises:
        OSError: If it is not there.
    """
    found = file.stat()
    return FileNow(file, found.st_ino, found.st_size, found.st_mtime_ns)
