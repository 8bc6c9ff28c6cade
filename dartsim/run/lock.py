"""One process a run: a lock on its folder that ends with the process, however that ends."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

from dartsim.core.errors import ConfigError

try:
    import fcntl
except ImportError:  # no such locks there: the store still lets one process write only
    fcntl = None  # type: ignore[assignment]

LOCK = "run.lock"


def is_held(folder: Path) -> bool:
    """Whether a process holds a run's folder now; never, where there are no locks."""
    try:
        lock = (folder / LOCK).open("rb")
    except OSError:
        return False
    with lock:
        if fcntl is not None:
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
            except OSError:  # a file system without locks
                pass
    return False


def refuse_held(folder: Path) -> NoReturn:
    """Refuse a folder that another process holds.

    Raises:
        ConfigError: Always.
    """
    raise ConfigError(
        f"{folder} is held by a process that runs it now; wait until it has ended, or stop it (`dartsim status "
        f"{folder}` says how far it is)"
    ) from None


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Hold a run's folder, which is made if it is missing.

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
        if fcntl is not None:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                refuse_held(folder)
            except OSError:  # a file system without locks
                pass
        yield
