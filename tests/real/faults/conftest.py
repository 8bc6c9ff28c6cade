"""The modules beside this file as fixtures, as tests are no packages that import each other."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest


def _module(name: str) -> ModuleType:
    full = f"tests_real_faults_{name}"
    if full not in sys.modules:
        spec = importlib.util.spec_from_file_location(full, Path(__file__).with_name(f"{name}.py"))
        assert spec is not None
        assert spec.loader is not None
        sys.modules[full] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return sys.modules[full]


@pytest.fixture(scope="session")
def rig(desktop_image: str) -> ModuleType:
    """The module ``rig.py``."""
    pytest.importorskip("httpx")
    pytest.importorskip("PIL")
    return _module("rig")


@pytest.fixture
def left():
    """Return how many containers of an owner are left on an engine: ``left(owner, settings)``."""
    from real.containers.engine import HostSettings, connect

    def count(owner: str, settings: HostSettings | None = None) -> int:
        client = connect(settings or HostSettings())
        try:
            return len(client.api.containers(all=True, filters={"label": [f"dartsim.owner={owner}"]}))
        finally:
            client.close()

    return count
