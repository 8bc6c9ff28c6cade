"""The runs that a page shows, and their documents by path, such as ``runs``, ``study``, ``ID/now``."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

from dartsim.core.errors import ConfigError
from dartsim.core.files import below
from dartsim.observe.page.documents import DrawnActions, RunDocuments
from dartsim.observe.page.run_state import own_summary, plain_figures, read_status
from dartsim.observe.rundir import CONFIG, EVALUATION, STATUS, SUMMARY

MAX_DEPTH = 4
MAX_RUNS = 1000
UNREADABLE = "unreadable"
"""State of a run that is damaged or of another format; its row has the ``error``."""


class Site:
    """Runs by id, which is a folder's name, or its path below the root.

    Args:
        folders: The runs; empty: all that are below the root, looked for whenever the list is asked for.
        root: Where runs are looked for.
        drawn_actions: See ``DrawnActions``.
        study: Returns the document ``study``, if there is one.
    """

    def __init__(
        self,
        folders: Sequence[Path],
        root: Path,
        drawn_actions: DrawnActions,
        study: Callable[[], Any] | None = None,
    ) -> None:
        self._root = root
        self._named = {} if not folders else named(folders)
        self._drawn_actions = drawn_actions
        self.study = study
        self._runs: dict[str, RunDocuments] = {}

    def folders(self) -> Mapping[str, Path]:
        """Return the folder of each run."""
        return self._named or {path.relative_to(self._root).as_posix(): path for path in find_runs(self._root)}

    def get(self, parts: Sequence[str]) -> Any:
        """Return a document by the parts of its path.

        Raises:
            KeyError: If there is none.
            DartsimError: If the files that it needs are damaged.
        """
        if list(parts) == ["runs"]:
            return runs_document(self.folders())
        if list(parts) == ["study"] and self.study is not None:
            return self.study()
        return self.run(parts[0]).get("/".join(parts[1:]))

    def revision(self, parts: Sequence[str]) -> str:
        """Return a text that changes whenever the document does."""
        if list(parts) in (["study"], ["runs"]):
            text = repr(self.get(parts))
        else:
            text = self.run(parts[0]).revision("/".join(parts[1:]))
        return sha256(text.encode("utf-8", "replace")).hexdigest()[:16]

    def revisions(self, parts: Sequence[str]) -> dict[str, str]:
        """Return the revisions of a run's documents, or with no id that of the list of runs."""
        if not parts:
            return {"runs": self.revision(["runs"])}
        (name,) = parts
        return {path: self.revision([name, path]) for path in self.run(name).names}

    def screen(self, name: str, file: str) -> bytes:
        """Return a screenshot; raises as ``RunDocuments.screen``."""
        return self.run(name).screen(file)

    def run(self, name: str) -> RunDocuments:
        """Return the documents of a run; raises ``KeyError`` if there is none of this id."""
        if name not in self._runs:
            self._runs[name] = RunDocuments(self.folders()[name], self._drawn_actions)
        return self._runs[name]


def named(folders: Sequence[Path]) -> dict[str, Path]:
    """Return folders by name; those of the same name get a number."""
    by_name: dict[str, Path] = {}
    for folder in folders:
        name, number = folder.resolve().name, 1
        while name in by_name:
            number += 1
            name = f"{folder.resolve().name} ({number})"
        by_name[name] = folder
    return by_name


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
    rows: list[dict[str, Any]] = []
    for name, folder in folders.items():
        try:
            row = _row(name, folder)
        except ConfigError as error:
            row = {"id": name, "name": name, "state": UNREADABLE, "error": str(error), "figures": {}}
        rows.append({**row, "differs": {}})
    for key, values in differences([_config(folder) for folder in folders.values()]):
        if key not in ("run.seed", "run.name"):  # the list has them as columns
            for row, value in zip(rows, values, strict=True):
                row["differs"][key] = value
    return rows


def _config(folder: Path) -> dict[str, Any]:
    """Return a run's configuration; empty if it cannot be read."""
    try:
        return tomllib.loads(below(folder, CONFIG).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError, ConfigError):
        return {}


def _row(name: str, folder: Path) -> dict[str, Any]:
    status = read_status(folder)
    summary: Mapping[str, Any] = {}
    with suppress(OSError, ValueError, RecursionError):
        summary = own_summary(status, dict(json.loads(below(folder, SUMMARY).read_text(encoding="utf-8"))))
    return {
        "id": name,
        "name": status.get("name"),
        "state": status["state"],
        "scheduler": status.get("preset"),
        "seed": status.get("seed"),
        "clock": "simulated" if status.get("clock") == "virtual" else "real",
        "seconds": status.get("run_seconds"),
        "success": summary.get("success_rate_final"),
        "figures": plain_figures(summary),
    }


def differences(configs: Sequence[Mapping[str, Any]]) -> list[tuple[str, list[str]]]:
    """Return the settings in which configurations differ, by dotted key, with each one's value as text."""
    flat = [dict(_flat(config)) for config in configs]
    keys = sorted(set().union(*flat))
    table = [(key, [config.get(key, "–") for config in flat]) for key in keys]
    return [(key, values) for key, values in table if len(set(values)) > 1]


def _flat(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for key, value in config.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{prefix}{key}.")
        else:
            text = "none" if value is None else value if isinstance(value, str) else json.dumps(value, default=str)
            yield prefix + key, text
