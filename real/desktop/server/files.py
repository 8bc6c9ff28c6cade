"""The desktop's files: listed, read, written, fetched. Paths are the desktop's own and anything its user may touch."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flask import Response, request, send_file

from dartsim.real.desktop.server.app import json_body

if TYPE_CHECKING:
    from flask.typing import ResponseReturnValue


def expand(path: str) -> Path:
    """Return a path with ``~`` and the desktop's ``$VARIABLES`` expanded."""
    return Path(os.path.expandvars(Path(path).expanduser()))


def list_directory() -> ResponseReturnValue:
    """``/list_directory``: a folder's tree."""
    data = json_body()
    if "path" not in data:
        return {"error": "Missing 'path' parameter"}, 400
    if not Path(str(data["path"])).is_dir():
        return {"error": "The provided path is not a directory"}, 400
    return {"directory_tree": _tree(Path(str(data["path"])))}


def _tree(folder: Path) -> dict[str, Any]:
    try:
        entries = sorted(folder.iterdir())
    except OSError as exc:
        return {"error": str(exc)}
    # A link to a parent folder would lead to an endless recursion.
    children = [
        _tree(entry) if entry.is_dir() and not entry.is_symlink() else {"type": "file", "name": entry.name}
        for entry in entries
    ]
    return {"type": "directory", "name": folder.name, "children": children}


def read() -> ResponseReturnValue:
    """``/file``: a file's bytes."""
    if "file_path" not in request.form:
        return {"error": "file_path is required"}, 400
    path = expand(request.form["file_path"])
    try:
        return attachment(path)
    except FileNotFoundError:
        return {"error": "File not found"}, 404
    except OSError as exc:
        return {"error": f"Failed to serve file: {exc}"}, 500


def attachment(path: Path) -> Response:
    """Return a file's bytes as a download with its name."""
    # Read completely, not streamed, because files of /proc do not report their size.
    data = io.BytesIO(path.read_bytes())
    return send_file(data, "application/octet-stream", as_attachment=True, download_name=path.name)


def upload() -> ResponseReturnValue:
    """``/setup/upload``: write a file atomically."""
    if "file_path" not in request.form or "file_data" not in request.files:
        return {"error": "file_path and file_data are required"}, 400
    path = expand(request.form["file_path"])
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        request.files["file_data"].save(path)
        num_bytes = path.stat().st_size
    except OSError as exc:
        _remove(path)
        return {"error": f"Failed to upload file: {exc}"}, 500
    return f"File Uploaded: {num_bytes} bytes"


def _remove(path: Path) -> None:
    """Remove the remains of a failed write."""
    try:
        if path.is_file():
            path.unlink()
    except OSError as exc:
        print(f"{path} stays half written: {exc}", file=sys.stderr)  # noqa: T201  the container's log
