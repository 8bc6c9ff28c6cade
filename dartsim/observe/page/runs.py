"""The list of runs: those in given folders, or all below one."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from dartsim.core.errors import ConfigError
from dartsim.core.files import below
from dartsim.observe.page.run_state import plain_figures, read_status, shown_state
from dartsim.observe.rundir import CONFIG, EVALUATION, STATUS, SUMMARY

MAX_DEPTH = 4
MAX_RUNS = 1000


def find_runs(root: Path) -> list[Path]:
    """Return the folders of runs below a folder, newest first, without following links."""
    found = list(_runs_below(root, MAX_DEPTH))
    return sorted(found, key=lambda path: (-(path / STATUS).lstat().st_mtime, path))[:MAX_RUNS]


def _runs_below(folder: Path, depth: int) -> Iterator[Path]:
    with suppress(OSError):
        names = {entry.name: entry for entry in os.scandir(folder)}
        if CONFIG in names and STATUS in names and EVALUATION not in names:
            yield folder
        elif depth:
            for name, entry in names.items():
                if entry.is_dir(follow_symlinks=False) and not name.startswith("."):
                    yield from _runs_below(folder / name, depth - 1)


def runs_document(folders: Mapping[str, Path]) -> list[dict[str, Any]]:
    """Return a row for each run."""
    rows = []
    for name, folder in folders.items():
        try:
            rows.append(_row(name, folder))
        except ConfigError as error:
            rows.append({"id": name, "name": name, "state": "damaged", "error": str(error)})
    return rows


def _row(name: str, folder: Path) -> dict[str, Any]:
    status = read_status(folder)
    summary: dict[str, Any] = {}
    with suppress(OSError, ValueError, RecursionError):
        summary = dict(json.loads(below(folder, SUMMARY).read_text(encoding="utf-8")))
    return {
        "id": name,
        "name": status.get("name"),
        "state": shown_state(status, summary),
        "scheduler": status.get("preset"),
        "seed": status.get("seed"),
        "clock": "simulated" if status.get("clock") == "virtual" else "real",
        "seconds": status.get("run_seconds"),
        "success": summary.get("success_rate_final"),
        "figures": plain_figures(summary),
        "tags": [],
        "differs": {},
    }
