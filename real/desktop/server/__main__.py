"""Serve one desktop: ``python -m dartsim.real.desktop.server``, inside the container.

Environment: ``DISPLAY``; ``FRAMEBUFFER``, the file of Xvfb's pixels; ``PORT`` (5000); ``WARM_ACTIONS`` (1), whether
actions run in forked warm interpreters; ``ACTION_PAUSE_SECONDS``, pyautogui's pause after each call in those;
``SIBLINGS`` (0), whether other containers of the same network may connect; ``DESKTOP_TOKEN``, which every request has
to bring, and which no program that is started here gets to see in its environment.
"""

from __future__ import annotations

import os
from pathlib import Path

from dartsim.real.desktop.server.actions import WarmPythons
from dartsim.real.desktop.server.commands import Commands
from dartsim.real.desktop.server.desktop import Desktop
from dartsim.real.desktop.server.display import XConnection
from dartsim.real.desktop.server.recording import Recording
from dartsim.real.desktop.server.routes import table
from dartsim.real.desktop.server.screen import Screen
from dartsim.real.desktop.server.windows import Windows
from dartsim.real.desktop.server.wire import Server


def main() -> None:
    """Serve until killed."""
    token = os.environ.pop("DESKTOP_TOKEN", "")
    setting = os.environ.get
    connection = XConnection(setting("DISPLAY", ":99"))
    screen, windows = Screen(connection, Path(setting("FRAMEBUFFER", "/dev/shm/Xvfb_screen0"))), Windows(connection)
    warm = None
    if setting("WARM_ACTIONS", "1") != "0":
        warm = WarmPythons(Path(setting("XDG_RUNTIME_DIR", "/tmp")) / "actions.socket")
        warm.start()
    commands = Commands(lambda: [window.title for window in windows.all()], warm)
    desktop = Desktop(connection, screen, windows, commands)
    desktop.show_background()
    routes = table(desktop, commands, Recording(screen))
    port = int(setting("PORT", "5000"))
    Server(("0.0.0.0", port), routes, siblings=setting("SIBLINGS", "0") != "0", token=token).serve_forever()


if __name__ == "__main__":
    main()
