"""Temporary directories that are removed by their process, or by a later process if it was killed.

A directory is named ``dartsim-KIND-MACHINE-PID-START-NUMBER``. MACHINE is a hash of boot and pid namespace; with pid
and start time it identifies one process, so that a later process can check whether it has ended. Directories of another
machine or an earlier boot are left alone, because that cannot be checked.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from itertools import count
from pathlib import Path
from shutil import rmtree

from dartsim.real.processes import process_lives, process_scope, process_start

_NAME = re.compile(r"dartsim-[a-z]+-(?P<machine>[0-9a-f]{6})-(?P<pid>[0-9a-f]+)-(?P<start>[0-9a-f]+)-\d+")

_swept: set[tuple[str, Path]] = set()
"""Kinds and places that this process has swept already."""


def scratch(kind: str, base: str | Path | None = None) -> Path:
    """Make an empty directory that only its owner may read, and remove those of this kind whose process has ended.

    Args:
        kind: Its purpose: one word of lowercase letters.
        base: Its parent; the default is the system's directory for temporary files.
    """
    place = Path(base or tempfile.gettempdir())
    if (kind, place) not in _swept:
        _swept.add((kind, place))
        sweep(kind, place)
    machine, start = _machine(), process_start(os.getpid())
    if not machine or start is None:  # its owner cannot be identified, so it stays
        return Path(tempfile.mkdtemp(prefix=f"dartsim-{kind}-", dir=place))
    for number in count():  # short names: some contain sockets, whose paths have at most 107 characters
        folder = place / f"dartsim-{kind}-{machine}-{os.getpid():x}-{start:x}-{number}"
        with suppress(FileExistsError):
            folder.mkdir(mode=0o700)
            return folder
    raise AssertionError("unreachable: numbers do not end")


@contextmanager
def scratch_folder(kind: str, base: str | Path | None = None) -> Iterator[Path]:
    """Provide such a directory for the length of a block."""
    folder = scratch(kind, base)
    try:
        yield folder
    finally:
        rmtree(folder, ignore_errors=True)


@contextmanager
def replaced_folder(folder: Path) -> Iterator[Path]:
    """Provide an empty directory that replaces ``folder`` after the block, so that it appears whole or not at all."""
    partial = folder.with_name(folder.name + ".partial")
    rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    yield partial
    rmtree(folder, ignore_errors=True)
    partial.rename(folder)


def sweep(kind: str, base: Path) -> int:
    """Remove the directories of a kind whose process has ended, and return their number."""
    machine, removed = _machine(), 0
    for path in base.glob(f"dartsim-{kind}-*"):
        name = _NAME.fullmatch(path.name)
        if name is None or name["machine"] != machine or process_lives(int(name["pid"], 16), int(name["start"], 16)):
            continue
        rmtree(path, ignore_errors=True)  # another user's stays
        removed += not path.exists()
    return removed


def _machine() -> str:
    """Return six digits for this boot and pid namespace; empty if the system does not say."""
    scope = process_scope()
    return sha256(scope.encode()).hexdigest()[:6] if scope else ""
