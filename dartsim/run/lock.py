"""One process a run: a lock on its folder that ends with the process, however that ends."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dartsim.errors import ConfigError

try:
    import fcntl
except ImportError:  # no such locks there: the store still lets one process write only
    fcntl = None  # type: ignore[assignment]

LOCK = "run.lock"


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
        raise ConfigError(f"{folder} cannot be made a run's folder: {error.strerror}") from None
    with lock:
        if fcntl is not None:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ConfigError(
                    f"{folder} is held by a process that runs it now; wait until it has ended, or stop it"
                ) from None
            except OSError:  # a file system without locks
                pass
        yield
