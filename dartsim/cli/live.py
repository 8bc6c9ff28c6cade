"""Serves the page of runs: for ``dartsim show --live``, and beside a run for ``dartsim run --show``."""

from __future__ import annotations

import json
import os
import secrets
import sys
import webbrowser
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dartsim.cli.console import errors
from dartsim.core.errors import ConfigError
from dartsim.observe.rundir import STUDY, STUDY_PAGE, write_text

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess

    from dartsim.observe.page.runs import Site
    from dartsim.observe.page.server import PageServer


def site_of(folders: Sequence[Path], root: Path) -> Site:
    """Return the pages of runs, or of all runs below the root if none are named."""
    from dartsim.observe.page.runs import Site

    document = root / STUDY
    return Site(folders, root, drawn_actions, study=(lambda: _json(document)) if document.is_file() else None)


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is not the document of a study ({error})") from None


def write_study(folder: Path, document: Mapping[str, Any], runs: Sequence[Path]) -> Path:
    """Write the document of a study and its page, which shows these runs, too, but no turns; return the page's path."""
    from dartsim.observe.page.file import page_file, site_documents
    from dartsim.observe.page.runs import Site

    write_text(folder / STUDY, json.dumps(document, default=str, allow_nan=False))
    site = Site(runs, folder, drawn_actions, study=lambda: document)
    write_text(folder / STUDY_PAGE, page_file(site_documents(site, turns=False)))
    return folder / STUDY_PAGE


def drawn_actions(text: str, policy: Mapping[str, Any], width: int, height: int) -> list[dict[str, Any]]:
    """Return what to draw for an action of a run with this section ``policy``."""
    from dartsim.envs.actions.drawn import drawn_actions as operations

    if policy.get("kind") != "vlm":
        return operations(text, "pyautogui", {}, width, height)
    if policy.get("grammar") == "ui_tars":
        return operations(text, "ui_tars", {"absolute": policy.get("family") == "qwen2_5_vl"}, width, height)
    grid = policy.get("grid")
    return operations(text, "compact", {"columns": grid, "rows": grid} if isinstance(grid, int) else {}, width, height)


def serve(folders: Sequence[Path], *, root: Path, host: str = "127.0.0.1", port: int = 0) -> None:
    """Serve the page until Ctrl-C."""
    with closing(open_server(site_of(folders, root), host, port)) as server, suppress(KeyboardInterrupt):
        server.serve_forever()


def open_server(site: Site, host: str, port: int) -> PageServer:
    """Return a server whose address was announced and opened in the browser, if there is a screen.

    Raises:
        ConfigError: If the address cannot be used.
    """
    from dartsim.observe.page.server import PageServer, is_loopback

    token = None if is_loopback(host) else secrets.token_urlsafe(16)
    try:
        server = PageServer(site, host=host, port=port, token=token)
    except (OSError, OverflowError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise ConfigError(f"--host {host} --port {port}: the page cannot be served there: {why}") from None
    errors.say(f"page: {server.url} (until Ctrl-C)")
    if os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY") or sys.platform == "darwin":
        webbrowser.open(server.url)
    return server


def serve_beside(folder: Path) -> BaseProcess:
    """Serve a run's page in a process of its own, which ends with this one, and return the process."""
    from multiprocessing import get_context

    process = get_context("spawn").Process(target=_serve_for_parent, args=(folder,), daemon=True)
    process.start()
    return process


def _serve_for_parent(folder: Path) -> None:
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the run
    parent = os.getppid()
    with closing(open_server(site_of([folder], folder.parent), "127.0.0.1", 0)) as server:
        server.timeout = 1.0
        while os.getppid() == parent:
            server.handle_request()
