"""The runs that a page shows, and their documents by path, such as ``runs``, ``study``, ``ID/now``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from dartsim.observe.page.documents import DrawnActions, RunDocuments
from dartsim.observe.page.runs import find_runs, runs_document


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
