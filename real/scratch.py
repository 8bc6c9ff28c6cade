"""Folders for what a process writes while it runs: gone when it is done, or by a later one's hand if it was killed.

A folder is named ``dartsim-KIND-MACHINE-PID-START-NUMBER``. The machine's boot and pid namespace, as a few digits, and
the process's number and start time name a process that existed once, so that whoever comes later can tell whether it is
gone. Folders of another machine, or of an earlier boot, are left alone: nobody here can tell.
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

from dartsim.real.containers.owner import machine, process_lives, process_start

_NAME = re.compile(r"dartsim-[a-z]+-(?P<machine>[0-9a-f]{6})-(?P<pid>[0-9a-f]+)-(?P<start>[0-9a-f]+)-\d+")

_swept: set[tuple[str, Path]] = set()
"""Kinds and places that this process has looked at already."""


def scratch(kind: str, base: str | Path | None = None) -> Path:
    """Make an empty folder, which only its owner may read, and remove those of this kind whose process is gone.

    Args:
        kind: What it is for: one word of small letters.
        base: Where; by default where temporary files are kept.
    """
    place = Path(base or tempfile.gettempdir())
    if (kind, place) not in _swept:
        _swept.add((kind, place))
        sweep(kind, place)
    here, start = _here(), process_start(os.getpid())
    if not here or start is None:  # nobody will be able to tell whose it is, so it stays
        return Path(tempfile.mkdtemp(prefix=f"dartsim-{kind}-", dir=place))
    for number in count():  # short: sockets are made in some of them, whose paths have 107 characters at most
        folder = place / f"dartsim-{kind}-{here}-{os.getpid():x}-{start:x}-{number}"
        with suppress(FileExistsError):
            folder.mkdir(mode=0o700)
            return folder
    raise AssertionError("unreachable: numbers do not end")


@contextmanager
def scratch_folder(kind: str, base: str | Path | None = None) -> Iterator[Path]:
    """Provide such a folder for the length of a block."""
    folder = scratch(kind, base)
    try:
        yield folder
    finally:
        rmtree(folder, ignore_errors=True)


def sweep(kind: str, base: Path) -> int:
    """Remove the folders of a kind whose process is gone, and return how many there were."""
    here, gone = _here(), 0
    for path in base.glob(f"dartsim-{kind}-*"):
        found = _NAME.fullmatch(path.name)
        if found is None or found["machine"] != here or _lives(found):
            continue
        rmtree(path, ignore_errors=True)  # what is another user's stays
        gone += not path.exists()
    return gone


def _lives(found: re.Match[str]) -> bool:
    return process_lives(int(found["pid"], 16), int(found["start"], 16))


def _here() -> str:
    """Return a few digits for this machine's boot and pid namespace; empty where the system does not tell."""
    found = machine()
    return sha256(found.encode()).hexdigest()[:6] if found else ""
