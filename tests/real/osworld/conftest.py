"""The modules beside this file as fixtures, and a real desktop."""

import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="session")
def standin(module_of) -> ModuleType:
    """The module ``standin.py``; a test that asks for it is skipped, by name, without httpx or Pillow."""
    pytest.importorskip("httpx")
    pytest.importorskip("PIL")
    return module_of(Path(__file__).with_name("standin.py"))


@pytest.fixture(scope="session")
def fakes(module_of, own_metrics) -> ModuleType:
    """The module ``fakes.py``: a client without a desktop, and our own metrics without a sandbox."""
    module = module_of(Path(__file__).with_name("fakes.py"))
    module.OwnMetrics = own_metrics
    return module


@pytest.fixture
def chromium_port() -> Iterator[int]:
    """The debugging port of a real Chromium on 127.0.0.1; skips, by name, where there is none."""
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("no chromium on this machine")
    profile = tempfile.mkdtemp()
    command = [program, "--headless=new", "--no-sandbox", "--remote-debugging-port=0", f"--user-data-dir={profile}"]
    browser = subprocess.Popen([*command, "about:blank"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield _debugging_port(Path(profile) / "DevToolsActivePort")
    finally:
        browser.kill()
        browser.wait()
        shutil.rmtree(profile, ignore_errors=True)


def _debugging_port(file: Path) -> int:
    for _ in range(200):
        if file.is_file() and (lines := file.read_text().split()):
            return int(lines[0])
        time.sleep(0.1)
    raise AssertionError("chromium did not start")


@pytest.fixture(scope="session")
def small_desktop(desktop_image):
    """What is started for a small desktop of our own."""
    pytest.importorskip("httpx")
    pytest.importorskip("PIL")
    from dartsim.config.schema import DesktopConfig
    from dartsim.real.desktop import desktop_spec

    return desktop_spec(DesktopConfig(width=640, height=480, image=desktop_image))


@pytest.fixture(scope="session")
def desktop_url(small_desktop) -> Iterator[str]:
    """The server of a small desktop that runs for the whole session; leave its screen as it is."""
    from anyio.from_thread import start_blocking_portal

    from dartsim.real.osworld.connect import DesktopOptions
    from dartsim.real.osworld.provider import Starter
    from dartsim.real.osworld.settings import DesktopSettings

    starter = Starter(small_desktop, DesktopOptions(settings=DesktopSettings(screen=(640, 480))))
    with start_blocking_portal() as portal:
        desktop = portal.call(starter)
        yield desktop.client.base_url
        portal.call(desktop.close)
        portal.call(starter.close)
