"""The module beside this file as a fixture, and what is left on an engine."""

from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="session")
def rig(desktop_image, module_of) -> ModuleType:
    """The module ``rig.py``."""
    pytest.importorskip("httpx")
    pytest.importorskip("PIL")
    return module_of(Path(__file__).with_name("rig.py"))


@pytest.fixture
def left(docker_engine):
    """Return how many containers of an owner are left on the engine: ``left(owner)``."""
    from dartsim.real.containers.engine import connect

    def count(owner):
        client = connect(docker_engine)
        try:
            return len(client.api.containers(all=True, filters={"label": [f"dartsim.owner={owner}"]}))
        finally:
            client.close()

    return count
