"""The desktop's files: listed, read, written, fetched. Paths are the desktop's own and anything its user may touch."""

from __future__ import annotations

import os
import shutil
import sys
import urllib.request
from pathlib import Path
from typing import Any

from dartsim.real.desktop.server.wire import Reply, Request, as_json, as_text

_DOWNLOAD_TRIES = 3
_DOWNLOAD_SECONDS = 300.0


def expand(path: str) -> Path:
    """Return a path with ``~`` and ``$VARIABLES`` replaced by the desktop's."""
    return Path(os.path.expandvars(Path(path).expanduser()))


def list_directory(request: Request) -> Reply:
    """``/list_directory``: a folder's tree."""
    data = request.json()
    if "path" not in data:
        return as_json({"error": "Missing 'path' parameter"}, 400)
    if not Path(str(data["path"])).is_dir():
        return as_json({"error": "The provided path is not a directory"}, 400)
    return as_json({"directory_tree": _tree(Path(str(data["path"])))})


def _tree(folder: Path) -> dict[str, Any]:
    try:
        entries = sorted(folder.iterdir())
    except OSError as exc:
        return {"error": str(exc)}
    # A link to a folder above would lead round in circles.
    children = [
        _tree(entry) if entry.is_dir() and not entry.is_symlink() else {"type": "file", "name": entry.name}
        for entry in entries
    ]
    return {"type": "directory", "name": folder.name, "children": children}


def read(request: Request) -> Reply:
    """``/file``: a file's bytes."""
    fields, _ = request.form()
    if "file_path" not in fields:
        return as_json({"error": "file_path is required"}, 400)
    path = expand(fields["file_path"])
    try:
        return attachment(path, path.read_bytes())
    except FileNotFoundError:
        return as_json({"error": "File not found"}, 404)
    except OSError as exc:
        return as_json({"error": f"Failed to serve file: {exc}"}, 500)


def attachment(path: Path, data: bytes) -> Reply:
    """Return a file's bytes as something to be saved under its name."""
    name = path.name.encode("ascii", "replace").decode().replace('"', "_")
    headers = {"Content-Disposition": f'attachment; filename="{name}"', "Cache-Control": "no-cache"}
    return Reply(data, 200, "application/octet-stream", headers)


def upload(request: Request) -> Reply:
    """``/setup/upload``: write a file, whole or not at all."""
    fields, files = request.form()
    if "file_path" not in fields or "file_data" not in files:
        return as_json({"error": "file_path and file_data are required"}, 400)
    path, data = expand(fields["file_path"]), files["file_data"]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    except OSError as exc:
        _remove(path)
        return as_json({"error": f"Failed to upload file: {exc}"}, 500)
    return as_text(f"File Uploaded: {len(data)} bytes")


def download(request: Request) -> Reply:
    """``/setup/download_file``: fetch a URL into a file; three tries."""
    data = request.json()
    url, path = data.get("url"), data.get("path")
    if not url or not path:
        return as_text("Path or URL not supplied!", 400)
    target = expand(str(path))
    error: Exception | None = None
    for _ in range(_DOWNLOAD_TRIES):
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            num_bytes = _fetch(str(url), target)
        except (OSError, ValueError) as exc:
            error = exc
            _remove(target)
        else:
            return as_text(f"File downloaded successfully: {num_bytes} bytes")
    return as_text(f"Failed to download {url}. No retries left. Error: {error}", 500)


def _fetch(url: str, target: Path) -> int:
    with urllib.request.urlopen(url, timeout=_DOWNLOAD_SECONDS) as response, target.open("wb") as file:
        shutil.copyfileobj(response, file)
        expected = response.headers.get("Content-Length")
    num_bytes = target.stat().st_size
    if expected is not None and int(expected) != num_bytes:
        raise OSError(f"Download incomplete. Expected {expected} bytes, got {num_bytes} bytes")
    return num_bytes


def _remove(path: Path) -> None:
    """Remove what a failed write has left."""
    try:
        if path.is_file():
            path.unlink()
    except OSError as exc:
        print(f"{path} stays half written: {exc}", file=sys.stderr)  # noqa: T201  the container's log
