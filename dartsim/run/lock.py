"""One process a run: a lock on its directory that ends with the process, however that ends.

``filelock`` would not do: whoever only asks for the status of a run would need to write to its directory.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NoReturn

from dartsim.core.errors import ConfigError

LOCK = "run.lock"


def is_held(folder: Path) -> bool:
    """Return whether a process holds a run directory now; never, on a file system without locks."""
    try:
        lock = (folder / LOCK).open("rb")
    except OSError:
        return False
    with lock, suppress(OSError):
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def refuse_held(folder: Path) -> NoReturn:
    """Refuse a run directory that another process holds.

    Raises:
        ConfigError: Always.
    """
    raise ConfigError(
        f"{folder} is held by a process that runs it now; wait until it has ended, or stop it (`dartsim status "
        f"{folder}` says how far it is)"
    ) from None


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Hold a run directory, which is made if it is missing.

    Raises:
        ConfigError: If another process holds it, or it cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / LOCK).open("ab")
    except OSError as error:
        raise ConfigError(
            f"{folder} cannot be made a run's folder: {error.strerror}; name a folder that can be written to with --out"
        ) from None
    with lock:
        with suppress(OSError):
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                refuse_held(folder)
        yield
