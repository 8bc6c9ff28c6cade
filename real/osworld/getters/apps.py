"""Getters that know where applications keep their settings. Linux only, as OSWorld's own tasks."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dartsim.real.osworld.errors import Unscored, VmMissing
from dartsim.real.osworld.getters.desktop import vm_command_line
from dartsim.real.osworld.getters.files import vm_file

if TYPE_CHECKING:
    from dartsim.real.osworld.client import VmClient
    from dartsim.real.osworld.fetch import TaskFolder

VLC_SECONDS = 10.0
VSCODE_SECONDS = 1.0
"""Until an extension has written its file, as OSWorld."""
VIDEO_TYPES = ("mp4", "x-matroska", "x-msvideo", "webm", "mpeg", "quicktime", "ogg", "x-flv", "x-ms-wmv", "3gpp")


async def gimp_config_file(client: VmClient, where: TaskFolder, config: Mapping[str, Any]) -> str | None:
    """Fetch a file of GIMP's settings (2.10); None if there is none or it is empty."""
    return await _settings(client, where, f"~/.config/GIMP/2.10/{config['file_name']}", config["dest"], empty=False)


async def vlc_config(client: VmClient, where: TaskFolder, config: Mapping[str, Any]) -> str | None:
    """Fetch VLC's settings; None if it has written none."""
    return await _settings(client, where, "~/.config/vlc/vlcrc", config["dest"])


async def _settings(client: VmClient, where: TaskFolder, path: str, dest: str, *, empty: bool = True) -> str | None:
    # The server itself expands "~".
    try:
        data = await client.file(path)
    except VmMissing:
        return None
    return str(await where.write(dest, data)) if data or empty else None


async def vlc_playing_info(client: VmClient, where: TaskFolder, config: Mapping[str, Any]) -> str | None:
    """Fetch what VLC says it plays, XML; None if no VLC answers, because it was closed."""
    import httpx

    desk = where.desk
    if desk.vlc_url is None:
        raise Unscored("the desktop publishes no web interface of VLC; publish its port 8080", cause="getter_failed")
    try:
        async with httpx.AsyncClient(auth=("", desk.vlc_password), timeout=VLC_SECONDS) as web:
            reply = await web.get(f"{desk.vlc_url.rstrip('/')}/requests/status.xml")
    except (httpx.ConnectError, httpx.RemoteProtocolError, httpx.ReadError):
        return None
    except httpx.HTTPError as exc:
        raise Unscored(f"VLC's web interface failed: {type(exc).__name__}: {exc}", cause="getter_failed") from exc
    return str(await where.write(config["dest"], reply.content)) if reply.status_code == 200 else None


async def default_video_player(client: VmClient, where: TaskFolder, config: Mapping[str, Any]) -> str:
    """Return the application that opens most kinds of video, ``unknown`` if none opens any."""
    kinds = [f"video/{kind}" for kind in VIDEO_TYPES]
    answers = [
        await vm_command_line(client, where, {"command": ["xdg-mime", "query", "default", kind]}) for kind in kinds
    ]
    counted = Counter(answer for answer in answers if answer)
    return counted.most_common(1)[0][0] if counted else "unknown"


async def vscode_config(client: VmClient, where: TaskFolder, config: Mapping[str, Any]) -> Any:
    """Let an extension of VS Code write a file, by its command, and fetch that file."""
    code = (
        "import pyautogui; pyautogui.FAILSAFE = False; pyautogui.PAUSE = 0.5; pyautogui.hotkey('ctrl', 'shift', 'p'); "
        f"pyautogui.typewrite({config['vscode_extension_command']!r}); pyautogui.press('enter')"
    )
    await client.execute(["python", "-c", code])
    await asyncio.sleep(VSCODE_SECONDS)
    return await vm_file(client, where, {"path": config["path"], "dest": config["dest"]})
