"""The pinned Python packages of the image, installed once into a folder of the user's cache."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from dartsim.core.errors import ConfigError
from dartsim.real.desktop.recipe import PYTHON_PACKAGES, Entry

_SECONDS = 300.0


def python_entries(on_line: Callable[[str], None]) -> list[Entry]:
    """Return the files of the packages, under ``/opt/dartsim/site``.

    Raises:
        ConfigError: If pip could not install them.
    """
    folder = _installed(on_line)
    paths = sorted(path for path in folder.rglob("*") if path.suffix != ".pyc" and path.name != "__pycache__")
    return [
        Entry(f"/opt/dartsim/site/{path.relative_to(folder)}", path.read_bytes(), mode=0o644)
        if path.is_file()
        else Entry(f"/opt/dartsim/site/{path.relative_to(folder)}")
        for path in paths
        if not path.relative_to(folder).parts[0].endswith(".dist-info") and path.relative_to(folder).parts[0] != "bin"
    ]


def _installed(on_line: Callable[[str], None]) -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dartsim"
    folder = cache / f"desktop-site-{hashlib.sha256(' '.join(PYTHON_PACKAGES).encode()).hexdigest()[:12]}"
    if folder.is_dir():
        return folder
    on_line("installing pyautogui for the desktops")
    cache.mkdir(parents=True, exist_ok=True)
    # Beside its place, and renamed when whole: an interrupted build leaves nothing that looks finished.
    with tempfile.TemporaryDirectory(dir=cache) as scratch:
        command = [sys.executable, "-m", "pip", "install", "--no-deps", "--no-compile", "--quiet"]
        command += ["--disable-pip-version-check", "--target", f"{scratch}/site", *PYTHON_PACKAGES]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
        except (OSError, subprocess.SubprocessError) as exc:
            raise ConfigError(f"pip could not install {', '.join(PYTHON_PACKAGES)}: {exc}") from exc
        if done.returncode:
            raise ConfigError(
                f"pip could not install {', '.join(PYTHON_PACKAGES)}, which the desktop's actions use: "
                f"{done.stderr.strip()[-500:]}; see whether `{sys.executable} -m pip download pyautogui` works"
            )
        try:
            Path(scratch, "site").rename(folder)
        except OSError:
            if not folder.is_dir():  # otherwise another process was quicker
                raise
            shutil.rmtree(Path(scratch, "site"))
    return folder
