"""The modules beside this file as fixtures, as tests are no packages that import each other; and a real desktop."""

from __future__ import annotations

import asyncio
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest


@pytest.fixture(scope="session")
def standin() -> ModuleType:
    """The module ``standin.py``; a test that asks for it is skipped, by name, without httpx or Pillow."""
    pytest.importorskip("httpx")
    pytest.importorskip("PIL")
    name = "tests_real_osworld_standin"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name("standin.py"))
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return sys.modules[name]


@pytest.fixture(scope="session")
def fakes() -> ModuleType:
    """The module ``fakes.py``: a client without a desktop."""
    name = "tests_real_osworld_fakes"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name("fakes.py"))
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return sys.modules[name]


@pytest.fixture(scope="session")
def small_desktop() -> Any:
    """What is started for a small desktop of our own; skips, by name, where there is no engine or no package."""
    pytest.importorskip("docker")
    pytest.importorskip("httpx")
    pytest.importorskip("PIL")
    from dartsim.errors import DartsimError
    from real.containers.engine import HostSettings, connect
    from real.desktop import build, desktop_spec, missing_packages

    try:
        connect(HostSettings()).close()
    except DartsimError as error:
        pytest.skip(f"no Docker engine: {error}")
    missing = missing_packages()
    if missing:
        pytest.skip(f"packages of a skeleton desktop are missing: {', '.join(missing)}")
    return desktop_spec("skeleton", width=640, height=480, image=asyncio.run(build("skeleton")))


@pytest.fixture(scope="session")
def desktop_url(small_desktop: Any) -> Iterator[str]:
    """The server of a small desktop that runs for the whole session; leave its screen as it is."""
    from anyio.from_thread import start_blocking_portal

    from real.osworld.boot import Starter
    from real.osworld.settings import DesktopSettings

    starter = Starter(small_desktop)
    with start_blocking_portal() as portal:
        desktop = portal.call(starter, DesktopSettings(screen=(640, 480)))
        yield desktop.client.base_url
        portal.call(desktop.close)
        portal.call(starter.close)
