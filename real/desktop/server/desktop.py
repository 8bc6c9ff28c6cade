# mypy: disable-error-code="import-not-found,import-untyped"
"""The routes about the screen: pixels, sizes, cursor, windows, wallpaper, accessibility."""

from __future__ import annotations

import json
import platform
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flask import Response, abort, make_response, request
from PIL import Image

from dartsim.real.desktop.server.app import json_body
from dartsim.real.desktop.server.commands import CommandRoutes, failed, run
from dartsim.real.desktop.server.files import expand
from dartsim.real.desktop.server.x11 import Screen, Windows, XConnection, XWindow

if TYPE_CHECKING:
    from flask.typing import ResponseReturnValue

_TREE_SECONDS = 60.0
_OPEN_SECONDS = 1_800.0
_OPEN_INTERVAL_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class DesktopRoutes:
    """Routes over one X display."""

    connection: XConnection
    screen: Screen
    windows: Windows
    commands: CommandRoutes

    def screenshot(self) -> ResponseReturnValue:
        return Response(self.screen.png(), mimetype="image/png", headers={"Cache-Control": "no-cache"})

    def screen_size(self) -> ResponseReturnValue:
        width, height = self.screen.size()
        return {"width": width, "height": height}

    def cursor_position(self) -> ResponseReturnValue:
        return list(self.screen.pointer())

    def platform(self) -> ResponseReturnValue:
        return platform.system()

    def desktop_path(self) -> ResponseReturnValue:
        path = Path.home() / "Desktop"
        if not path.exists():
            return {"error": "Unsupported operating system or desktop path not found"}, 404
        return {"desktop_path": str(path)}

    def window_size(self) -> ResponseReturnValue:
        """``/window_size``: of the oldest window of a class."""
        name = request.form.get("app_class_name")
        if name is None:
            return {"error": "app_class_name is required"}, 400
        size = self.windows.size_of_class(name)
        if size is None:
            return {"error": f"no window has the class {name}"}, 404
        return {"width": size[0], "height": size[1]}

    def activate_window(self) -> ResponseReturnValue:
        """``/setup/activate_window``: a success even if there is no such window, as in the original."""
        window = self._named(json_body())
        if window is not None:
            self.windows.activate(window)
        return "Window activated successfully"

    def close_window(self) -> ResponseReturnValue:
        """``/setup/close_window``: a success even if there is no such window, as in the original."""
        window = self._named(json_body())
        if window is not None:
            self.windows.close(window)
        return "Window closed successfully."

    def open_file(self) -> ResponseReturnValue:
        """``/setup/open_file``: open a file or start a program, and wait until a window has its name."""
        path = json_body().get("path")
        if not path:
            return "Path not supplied!", 400
        file = expand(str(path))
        if not file.exists() and not shutil.which(str(path)):
            return f"Application/file not found: {path}", 404
        try:
            self.commands.start(["xdg-open", str(file)] if file.exists() else [str(path)])
        except OSError as exc:
            return f"Failed to open {path}. Error: {exc}", 500
        name = file.name if file.exists() else str(path)
        if not self._activate_when_there(name, Path(name).stem):
            return f"Failed to find window for {name} within {_OPEN_SECONDS:g} seconds.", 500
        return "File opened and window activated successfully"

    def wallpaper(self) -> ResponseReturnValue:
        """``/wallpaper``: the picture that was set last."""
        try:
            path = Path(_wallpaper_note().read_text())
        except OSError:
            abort(404, "Wallpaper file not found")
        try:
            return Response(path.read_bytes(), mimetype="image/png")
        except OSError:
            abort(500, "Unable to serve the wallpaper file")

    def change_wallpaper(self) -> ResponseReturnValue:
        """``/setup/change_wallpaper``: show a picture behind the windows."""
        path = json_body().get("path")
        if not path:
            return "Path not supplied!", 400
        file = expand(str(path))
        if not file.exists():
            return f"File not found: {file}", 404
        try:
            with Image.open(file) as image:
                self._paint(image.convert("RGB"))
            note = _wallpaper_note()
            note.parent.mkdir(parents=True, exist_ok=True)
            note.write_text(str(file))
        except (OSError, ValueError) as exc:
            return f"Failed to change wallpaper. Error: {exc}", 500
        return "Wallpaper changed successfully"

    def show_background(self) -> None:
        """Paint the empty desktop, unless a picture was set before this server restarted."""
        if not _wallpaper_note().exists():
            self.screen.paint_background()

    def accessibility(self) -> ResponseReturnValue:
        return {"AT": _accessibility()}

    def terminal(self) -> ResponseReturnValue:
        try:
            return {"output": _accessibility("--terminal"), "status": "success"}
        except (OSError, RuntimeError, ValueError, subprocess.SubprocessError) as exc:
            return failed(exc)

    def _named(self, data: dict[str, Any]) -> XWindow | None:
        name = data.get("window_name")
        if not name:
            abort(make_response("window_name required", 400))
        return self.windows.find(str(name), strict=bool(data.get("strict")), by_class=bool(data.get("by_class")))

    def _activate_when_there(self, *names: str) -> bool:
        begun = time.monotonic()
        while time.monotonic() - begun < _OPEN_SECONDS:
            for window in self.windows.all():
                if any(name in window.title for name in names):
                    self.windows.activate(window)
                    return True
            time.sleep(_OPEN_INTERVAL_SECONDS)
        return False

    def _paint(self, image: Image.Image) -> None:
        with self.connection.use() as display:
            screen = display.screen()
            size = (screen.width_in_pixels, screen.height_in_pixels)
            pixmap = screen.root.create_pixmap(*size, screen.root_depth)
            context = pixmap.create_gc()
            pixmap.put_pil_image(context, 0, 0, image.resize(size))
            screen.root.change_attributes(background_pixmap=pixmap)
            screen.root.clear_area(0, 0, 0, 0)
            context.free()
            pixmap.free()  # the root window keeps its own reference
            display.sync()


def _wallpaper_note() -> Path:
    return Path.home() / ".config" / "dartsim-wallpaper"


def _accessibility(*flags: str) -> Any:
    """Return the output of ``accessibility.py``.

    Raises:
        RuntimeError: If it failed.
        subprocess.TimeoutExpired: If it took too long.
    """
    done = run([sys.executable, "-m", "dartsim.real.desktop.server.accessibility", *flags], seconds=_TREE_SECONDS)
    if done.returncode:
        raise RuntimeError(f"the accessibility tree could not be read: {done.error.strip().splitlines()[-1:]}")
    return json.loads(done.output)
