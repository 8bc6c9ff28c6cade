"""A run is a directory with its configuration and measurements.

    config.toml     the resolved configuration
    summary.json    figures of the whole run, seed, event hash and configuration

Files are written whole or not at all.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

from dartsim.core.errors import ConfigError, DartsimError
from dartsim.core.files import below, refuse_links

LOCK = "run.lock"
CONFIG = "config.toml"
SUMMARY = "summary.json"
STATUS = "status.json"
METRICS, SNAPSHOTS = "metrics.jsonl", "snapshots.jsonl"
TOKENS = "tokens.json.gz"
FORMAT = 3
"""Version of a run's folder, which ``docs/run-directory.md`` describes; raised whenever one of its files changes."""
STUDY, STUDY_PAGE = "study.json", "study.html"
"""Files in the folder of a comparison or search: its document ``study``, and its page."""
EVALUATION = "evaluation.json"
"""File that marks the folder of an evaluation."""

KEYS = ("simulated_hours", "desktop_shares", "engine_shares", "trainer_shares")
"""Keys without which a summary is invalid."""


@dataclass(frozen=True)
class RunDir:
    """The directory of a finished run; its files are read when first asked for."""

    path: Path

    @cached_property
    def summary(self) -> dict[str, Any]:
        """Figures, seed, event hash, configuration."""
        file = self.path / SUMMARY
        try:
            value = json.loads(file.read_text(encoding="utf-8"))
        except OSError as error:
            raise ConfigError(f"{file} cannot be read ({error.strerror}); is {self.path} a run's folder?") from None
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"{file} is not JSON ({error}); the run has to be repeated") from None
        if not isinstance(value, dict) or not all(key in value for key in KEYS):
            raise ConfigError(f"{file} holds no {', '.join(KEYS)}; the run has to be repeated")
        return value

    @property
    def name(self) -> str:
        """The run's name in comparisons; by default its folder's."""
        return str(self.summary.get("name") or self.path.name)


def write_run(path: Path, *, config_toml: str, summary: Mapping[str, Any], meta: Mapping[str, Any]) -> RunDir:
    """Write a run's configuration and summary into ``path``.

    Args:
        path: A folder, created if needed; files of an earlier run in it are replaced.
        config_toml: The resolved configuration as TOML.
        summary: Figures, as ``dartsim.observe.figures.summary`` returns them, and the configuration as ``config``.
        meta: ``name``, ``preset``, ``seed``, ``event_hash``, ``surrogate``, versions, …
    """
    path.mkdir(parents=True, exist_ok=True)
    write_text(path / CONFIG, config_toml)
    # Written last: its presence marks the run as finished. A run killed earlier is resumed and rewrites it all.
    write_text(path / SUMMARY, json.dumps({"format": FORMAT, **meta, **summary}, indent=2, allow_nan=False) + "\n")
    return RunDir(path)


def refuse_evaluation(path: Path) -> None:
    """Refuse the folder of an evaluation, which is no run.

    Raises:
        ConfigError: If it is one.
    """
    if (path / EVALUATION).is_file():
        raise ConfigError(
            f"{path} is an evaluation and no run: its figures are in {SUMMARY}, and the command that began it, with "
            f"--out {path}, goes on with it"
        )


def refuse_format(path: Path, found: Mapping[str, Any]) -> None:
    """Refuse a folder whose status or summary says that another version wrote it.

    Raises:
        ConfigError: If it does.
    """
    if (version := found.get("format")) != FORMAT:
        raise ConfigError(
            f"{path} has format {version!r:.20}, and this dartsim reads format {FORMAT} only: use the version that "
            "wrote it"
        )


def refuse_other(path: Path) -> None:
    """Refuse what is no run's folder.

    Raises:
        ConfigError: If it is not.
    """
    refuse_evaluation(path)
    if not (path / CONFIG).is_file():
        raise ConfigError(f"{path} is no run's folder: it has no {CONFIG}; name a folder that `dartsim run` made")


def read_run(path: Path) -> RunDir:
    """Return the run in a folder.

    Raises:
        ConfigError: If the folder is not that of a finished run.
    """
    refuse_other(path)
    if not (path / SUMMARY).is_file():
        raise ConfigError(
            f"{path} is a run that has not ended: it has no {SUMMARY} yet; `dartsim show {path}` says whether it is "
            f"running or has crashed, and `dartsim run {path}` goes on with a crashed one"
        )
    refuse_links(path)
    run = RunDir(path)
    refuse_format(path, run.summary)
    return run


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Report invalid files of a run in one sentence, whatever code they make fail.

    Raises:
        ConfigError: In place of any other error, except ``DartsimError`` and ``OSError``.
    """
    try:
        yield
    except (DartsimError, OSError):
        raise
    except Exception as error:
        raise ConfigError(f"{path} holds something else than a run writes: {type(error).__name__}: {error}") from error


def write_text(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file whole or not at all."""
    unfinished = path.with_name(path.name + ".part")
    unfinished.unlink(missing_ok=True)
    with unfinished.open("xb") as file:  # creates the file, so a link of this name is not followed
        file.write(data)
    unfinished.replace(path)


# A ``flock`` ends with its process, however that ends. The package ``filelock`` does not fit: readers of a run's status
# would have to write to its directory.


def is_locked(folder: Path) -> bool:
    """Return whether a process has locked a run directory; always false on file systems without locks."""
    try:
        lock = below(folder, LOCK).open("rb") if (folder / LOCK).is_file() else None
    except (OSError, ConfigError):
        return False
    if lock is None:
        return False
    with lock, suppress(OSError):
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def refuse_locked(folder: Path) -> NoReturn:
    """Refuse a run directory that another process has locked.

    Raises:
        ConfigError: Always.
    """
    raise ConfigError(
        f"{folder} is held by a process that runs it now; wait until it has ended, or stop it (`dartsim show "
        f"{folder}` says how far it is)"
    ) from None


@contextmanager
def lock_run(folder: Path) -> Iterator[None]:
    """Lock a run directory, creating it if missing.

    Raises:
        ConfigError: If another process has locked it, it cannot be created, or it contains links.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        refuse_links(folder)
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
                refuse_locked(folder)
        yield
