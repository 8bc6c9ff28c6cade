"""The state of a run from its directory: starting, running, silent, or how it ended."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from dartsim.core.errors import ConfigError
from dartsim.core.files import below
from dartsim.observe.rundir import CONFIG, STATUS, SUMMARY, is_locked, refuse_evaluation, refuse_format

SILENT_SECONDS = 60.0
"""Time after which a real-time run, which writes its status every few seconds, is reported as silent."""
ENDED = ("finished", "interrupted", "failed", "crashed")
SILENT = (
    "its process is alive, and has written nothing since {written}: a call does not return. Likely: the database "
    "(curation.store) or the disk of the run's folder does not answer, or the process or its machine was paused. It "
    "continues once that is over; otherwise kill it, and `dartsim run` its folder"
)
NUMBER = int | float
WANTED: Mapping[str, Any] = {
    "components": list,
    "name": str,
    "state": str,
    "run_seconds": NUMBER,
    "of_seconds": NUMBER,
    "as_of_seconds": NUMBER,
}
"""Keys without which a status is damaged, and the types of their values."""


def read_status(folder: Path) -> dict[str, Any]:
    """Return a run's ``status.json``, with the state ``crashed`` if its process is gone, ``silent`` if it is overdue.

    Raises:
        ConfigError: If there is none, or it cannot be read.
    """
    if not folder.is_dir():
        raise ConfigError(f"{folder} is not a folder; a run's folder is wanted, as `dartsim run` prints it")
    refuse_evaluation(folder)
    running = is_locked(folder)  # checked before reading, because a run updates the file when it ends
    path = below(folder, STATUS)
    try:
        if path.exists() and not path.is_file():
            raise ConfigError(f"{path} is not a file")
        status = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        if (folder / CONFIG).is_file() and not (folder / SUMMARY).is_file():
            begun = "is starting" if running else f"ended before it had a status; `dartsim run {folder}` begins it"
            raise ConfigError(f"{folder} {begun}") from None
        raise ConfigError(f"{folder} has no {STATUS}; a run's folder is wanted, as `dartsim run` prints it") from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError):
        status = None
    if not isinstance(status, dict) or not all(isinstance(status.get(name), kind) for name, kind in WANTED.items()):
        raise ConfigError(
            f"{path} is damaged or from elsewhere: it holds no status of a run. A running run writes it again in "
            f"seconds; otherwise remove it, and `dartsim run {folder}` goes on with the run"
        )
    refuse_format(folder, status)
    if status["state"] not in ENDED and not running:
        status |= {"state": "crashed", "error": "its process is gone and has not written its end"}
    elif status["state"] == "running" and status.get("clock") == "real" and is_overdue(path.stat().st_mtime):
        written = datetime.fromtimestamp(path.stat().st_mtime).astimezone().isoformat(timespec="seconds")
        status |= {"state": "silent", "error": SILENT.format(written=written)}
    return status


def own_summary(status: Mapping[str, Any], summary: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a run's summary; empty if an earlier life wrote it: the run was resumed and has not ended so since."""
    ended = status["state"] in ("finished", "interrupted", "failed")
    return summary if ended and summary.get("failure") == status.get("error") else {}


def plain_figures(summary: Mapping[str, Any]) -> dict[str, float]:
    """Return the figures of a summary that are one number."""
    return {name: value for name, value in summary.items() if isinstance(value, int | float)}


def is_overdue(written: float) -> bool:
    """Return whether a run in real time would have written a status again since, seconds since 1970."""
    return time.time() - written >= SILENT_SECONDS
