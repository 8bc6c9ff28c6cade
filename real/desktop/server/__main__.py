"""Serve one desktop: ``python -m dartsim.real.desktop.server``, inside the container.

Environment: ``DISPLAY``; ``PORT`` (5000); ``WARM_ACTIONS`` (1), whether actions run in forked warm interpreters,
with a fifth of pyautogui's pause after each call; ``SIBLINGS`` (0), whether other containers of the same network may
connect; ``DESKTOP_TOKEN``, which every request must contain, and which is hidden from all programs started here.
"""

from __future__ import annotations

import os
from pathlib import Path

from dartsim.real.desktop.server import files
from dartsim.real.desktop.server.actions import WarmPythons
from dartsim.real.desktop.server.app import View, make_app, serve
from dartsim.real.desktop.server.commands import CommandRoutes
from dartsim.real.desktop.server.desktop import DesktopRoutes
from dartsim.real.desktop.server.x11 import Screen, Windows, XConnection


def routes(desktop: DesktopRoutes, commands: CommandRoutes) -> dict[tuple[str, str], View]:
    """Return the function of every (method, path): the routes of OSWorld's server that a client calls."""
    return {
        ("GET", "/screenshot"): desktop.screenshot,
        ("POST", "/execute"): commands.execute,
        ("POST", "/setup/execute"): commands.execute,
        ("POST", "/execute_with_verification"): commands.execute_with_verification,
        ("POST", "/setup/execute_with_verification"): commands.execute_with_verification,
        ("POST", "/setup/launch"): commands.launch,
        ("GET", "/accessibility"): desktop.accessibility,
        ("GET", "/terminal"): desktop.terminal,
        ("POST", "/screen_size"): desktop.screen_size,
        ("POST", "/window_size"): desktop.window_size,
        ("GET", "/cursor_position"): desktop.cursor_position,
        ("GET", "/platform"): desktop.platform,
        ("POST", "/desktop_path"): desktop.desktop_path,
        ("POST", "/wallpaper"): desktop.wallpaper,
        ("POST", "/list_directory"): files.list_directory,
        ("POST", "/file"): files.read,
        ("POST", "/setup/upload"): files.upload,
        ("POST", "/setup/open_file"): desktop.open_file,
        ("POST", "/setup/activate_window"): desktop.activate_window,
        ("POST", "/setup/close_window"): desktop.close_window,
        ("POST", "/setup/change_wallpaper"): desktop.change_wallpaper,
    }


def main() -> None:
    """Serve until killed."""
    token = os.environ.pop("DESKTOP_TOKEN", "")
    setting = os.environ.get
    connection = XConnection(setting("DISPLAY", ":99"))
    screen, windows = Screen(connection), Windows(connection)
    warm = None
    if setting("WARM_ACTIONS", "1") != "0":
        warm = WarmPythons(Path(setting("XDG_RUNTIME_DIR", "/tmp")) / "actions.socket")
        warm.start()
    commands = CommandRoutes(lambda: [window.title for window in windows.all()], warm)
    desktop = DesktopRoutes(connection, screen, windows, commands)
    desktop.show_background()
    views = routes(desktop, commands)
    app = make_app(views, siblings=setting("SIBLINGS", "0") != "0", token=token)
    serve(app, "0.0.0.0", int(setting("PORT", "5000"))).run()


if __name__ == "__main__":
    main()
