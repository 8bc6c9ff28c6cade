"""Entries as a tar file, the same bytes every time."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterable, Sequence

from dartsim.real.desktop.recipe import Entry


def to_tar(entries: Iterable[Entry]) -> bytes:
    """Return entries as a tar file: parents before children, no times, owners by number."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for entry in with_parents(entries):
            info = tarfile.TarInfo(entry.path.lstrip("/"))
            info.uid = info.gid = entry.owner
            info.mode = entry.mode
            if entry.link is not None:
                info.type, info.linkname = tarfile.SYMTYPE, entry.link
            elif entry.data is None:
                info.type = tarfile.DIRTYPE
            else:
                info.size = len(entry.data)
            tar.addfile(info, io.BytesIO(entry.data) if entry.data is not None else None)
    return buffer.getvalue()


def with_parents(entries: Iterable[Entry]) -> Sequence[Entry]:
    """Return entries by path, each folder above them added where it is missing; of two with one path the last wins."""
    found = {entry.path: entry for entry in entries}
    for path in list(found):
        parts = path.split("/")
        for depth in range(2, len(parts)):
            parent = "/".join(parts[:depth])
            found.setdefault(parent, Entry(parent))
    return sorted(found.values(), key=lambda entry: entry.path)
