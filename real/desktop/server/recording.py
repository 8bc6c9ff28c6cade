"""Recordings of the screen by ffmpeg, if the image has it."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from flask import abort

from dartsim.real.desktop.server.commands import failed
from dartsim.real.desktop.server.files import attachment
from dartsim.real.desktop.server.x11 import Screen

if TYPE_CHECKING:
    from flask.typing import ResponseReturnValue

_START_SECONDS = 2.0
_END_SECONDS = 15.0
_FRAMES_PER_SECOND = 30


class Recording:
    """The two routes of the recording; one recording at a time."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._path = Path(tempfile.gettempdir()) / "recording.mp4"
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def start(self) -> ResponseReturnValue:
        """``/start_recording``: answers once ffmpeg has been recording for two seconds."""
        with self._lock:
            if self._process is not None and self._process.poll() is None:
                return failed("Recording is already in progress.", 400)
            if shutil.which("ffmpeg") is None:
                return failed("ffmpeg is required for recording but was not found in PATH.")
            self._path.unlink(missing_ok=True)
            self._process = process = self._begin()
            try:
                process.wait(_START_SECONDS)
            except subprocess.TimeoutExpired:
                return {"status": "success", "message": "Started recording successfully."}
            errors = process.stderr.read().decode(errors="replace") if process.stderr is not None else ""
            return failed(f"Failed to start recording. ffmpeg terminated unexpectedly. Error: {errors}")

    def end(self) -> ResponseReturnValue:
        """``/end_recording``: the film."""
        with self._lock:
            process, self._process = self._process, None
            if process is None or process.poll() is not None:
                return failed("No recording in progress to stop.", 400)
            try:
                _, errors = process.communicate(b"q\n", _END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                _, errors = process.communicate()
                return failed(f"Recording process was unresponsive and had to be killed. Stderr: {errors.decode()}")
            if not self._path.exists() or not self._path.stat().st_size:
                abort(500, f"Recording failed. The output file is missing or empty. {errors.decode()}")
            return attachment(self._path)

    def _begin(self) -> subprocess.Popen[bytes]:
        width, height = self._screen.size()
        grab = ["-f", "x11grab", "-draw_mouse", "1", "-s", f"{width}x{height}", "-i", os.environ["DISPLAY"]]
        # yuv420p, which every player shows, needs even sides.
        code = ["-vf", "crop=trunc(iw/2)*2:trunc(ih/2)*2", "-c:v", "libx264", "-pix_fmt", "yuv420p"]
        return subprocess.Popen(
            ["ffmpeg", "-y", "-loglevel", "error", *grab, *code, "-r", str(_FRAMES_PER_SECOND), str(self._path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
