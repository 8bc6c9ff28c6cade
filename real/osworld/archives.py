"""Archives that come from a desktop, looked at before anything unpacks them: sizes, numbers, names, links.

A spreadsheet is a zip archive, and an agent may have made it: a few kilobytes that unpack to gigabytes must not end
the run's process.
"""

from __future__ import annotations

import stat
import zipfile
from io import BytesIO
from pathlib import PurePosixPath, PureWindowsPath

MAX_MEMBERS = 10_000
MAX_MEMBER_BYTES = 256 * 2**20
MAX_BYTES = 512 * 2**20
"""Unpacked, all members together."""
MAX_RATIO = 200.0
"""Unpacked to packed, of archives that unpack to more than ``SMALL_BYTES``; sheets of one number come to about 100."""
SMALL_BYTES = 16 * 2**20


class BadArchive(ValueError):
    """An archive that is not unpacked."""


def check_zip(data: bytes, *, what: str = "the archive") -> None:
    """Refuse a zip archive that unpacks to too much, or holds names or links that lead out of it.

    Raises:
        BadArchive: If so.
        zipfile.BadZipFile: If it is none.
    """
    with zipfile.ZipFile(BytesIO(data)) as archive:
        members = archive.infolist()
        _check_number(len(members), what)
        for member in members:
            _check_name(member.filename, what)
            if stat.S_ISLNK(member.external_attr >> 16):
                raise BadArchive(f"{what} holds the link {member.filename!r}, wanted files")
        _check_sizes([member.file_size for member in members], len(data), what)
        # The table of contents is the writer's word; what is read is counted.
        total = 0
        for member in members:
            with archive.open(member) as stream:
                while chunk := stream.read(2**20):
                    total += len(chunk)
                    _check_sizes([total], len(data), what)


def _check_number(number: int, what: str) -> None:
    if number > MAX_MEMBERS:
        raise BadArchive(f"{what} has {number:,} members or more, wanted at most {MAX_MEMBERS:,}")


def _check_name(name: str, what: str) -> None:
    posix, windows = PurePosixPath(name), PureWindowsPath(name)
    if posix.is_absolute() or windows.drive or "\\" in name or ".." in posix.parts or "\0" in name:
        raise BadArchive(f"{what} holds the name {name!r}, which leads out of it")


def _check_sizes(sizes: list[int], packed: int, what: str) -> None:
    total, largest = sum(sizes), max(sizes, default=0)
    if total > MAX_BYTES or (len(sizes) > 1 and largest > MAX_MEMBER_BYTES):
        raise BadArchive(f"{what} unpacks to {total:,} bytes, wanted at most {MAX_BYTES:,}")
    if total > SMALL_BYTES and total > MAX_RATIO * max(packed, 1):
        times = total / max(packed, 1)
        raise BadArchive(f"{what} unpacks to {times:,.0f} times its size, wanted at most {MAX_RATIO:g}")
