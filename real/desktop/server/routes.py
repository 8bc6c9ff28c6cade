"""The table of routes: OSWorld's 26, by method and path."""

from __future__ import annotations

from dartsim.real.desktop.server import files
from dartsim.real.desktop.server.commands import Commands
from dartsim.real.desktop.server.desktop import Desktop
from dartsim.real.desktop.server.recording import Recording
from dartsim.real.desktop.server.wire import Route


def table(desktop: Desktop, commands: Commands, recording: Recording) -> dict[tuple[str, str], Route]:
    """Return the function of every (method, path)."""
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
        ("POST", "/setup/download_file"): files.download,
        ("POST", "/setup/open_file"): desktop.open_file,
        ("POST", "/setup/activate_window"): desktop.activate_window,
        ("POST", "/setup/close_window"): desktop.close_window,
        ("POST", "/setup/change_wallpaper"): desktop.change_wallpaper,
        ("POST", "/start_recording"): recording.start,
        ("POST", "/end_recording"): recording.end,
        ("POST", "/run_python"): commands.run_python,
        ("POST", "/run_bash_script"): commands.run_bash_script,
    }
