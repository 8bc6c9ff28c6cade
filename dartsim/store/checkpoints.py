"""Checkpoint folders that appear whole or not at all, and name the update they contain.

    <folder>/update-00000012.partial   being written
    <folder>/update-00000012           whole; manifest.json lists every file with its size and SHA-256

The store's transaction that marks the update's trajectories as trained follows the folder. So a folder without its
transaction belongs to an update that did not happen, and is removed when the run resumes.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import file_digest, sha256
from pathlib import Path

from dartsim.core.errors import ConfigError, TornFile
from dartsim.core.files import below
from dartsim.store.blobs import sync_folder

MANIFEST = "manifest.json"
PREFIX = "update-"
PARTIAL = ".partial"
KEEP_CHECKPOINTS = 2
"""How many of the newest are kept: if the last one is damaged, the run resumes from the one before."""
_NAME = re.compile(rf"{PREFIX}\d{{8,}}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A whole checkpoint."""

    update: int
    folder: Path
    digest: str


def write_checkpoint(root: Path, update: int, fill: Callable[[Path], None]) -> Checkpoint:
    """Write the checkpoint of an update; on return it survives a loss of power."""
    folder = root / f"{PREFIX}{update:08d}"
    partial = folder.with_name(folder.name + PARTIAL)
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    fill(partial)
    files = {str(path.relative_to(partial)): _file_entry(path) for path in _files(partial)}
    text = json.dumps({"update": update, "files": files}, indent=1, sort_keys=True) + "\n"
    (partial / MANIFEST).write_text(text, encoding="utf-8")
    _sync(partial)
    if folder.exists():  # left by an update that did not happen
        shutil.rmtree(folder)
    partial.rename(folder)
    sync_folder(root)
    return read_checkpoint(folder, check_files=False)


def read_checkpoint(folder: Path, *, check_files: bool = True) -> Checkpoint:
    """Return a checkpoint, as described by its manifest.

    Raises:
        TornFile: If it is incomplete or damaged.
    """
    try:
        data = (folder / MANIFEST).read_bytes()
        manifest = json.loads(data)
        update, files = int(manifest["update"]), dict(manifest["files"])
        for name in files:
            below(folder, name)
    except (OSError, ValueError, KeyError, TypeError, RecursionError, ConfigError) as error:
        raise TornFile(f"{folder} is no whole checkpoint: its {MANIFEST} cannot be read ({error})") from None
    for name, expected in files.items():
        path = folder / name
        present = None
        if path.is_file():
            present = _file_entry(path) if check_files else {**expected, "bytes": path.stat().st_size}
        if present != expected:
            raise TornFile(f"{path} is not what the checkpoint's {MANIFEST} says: found {present}, wanted {expected}")
    return Checkpoint(update=update, folder=folder, digest=sha256(data).hexdigest())


def checkpoint_folder(root: Path, name: str) -> Path:
    """Return a checkpoint's folder by its name, which may come from a stranger's database.

    Raises:
        TornFile: If no checkpoint has such a name, or it is a link.
    """
    folder = root / name
    if not _NAME.fullmatch(name) or root.is_symlink() or folder.is_symlink():
        raise TornFile(f"{root} has no checkpoint {name!r}")
    return folder


def checkpoint_folders(root: Path) -> list[Path]:
    """Return the folders of checkpoints, whole or partial, oldest first; none if the root is missing."""
    if root.is_symlink():
        return []
    found = (path for path in root.glob(f"{PREFIX}*") if _NAME.fullmatch(path.name.removesuffix(PARTIAL)))
    return sorted(path for path in found if path.is_dir() and not path.is_symlink())


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*")) if path.is_file())


def _file_entry(path: Path) -> dict[str, object]:
    with path.open("rb") as file:
        return {"bytes": path.stat().st_size, "sha256": file_digest(file, "sha256").hexdigest()}


def _sync(folder: Path) -> None:
    for path in _files(folder):
        with path.open("rb") as file:
            os.fsync(file.fileno())
    for path in (*(p for p in folder.rglob("*") if p.is_dir()), folder):
        sync_folder(path)
