"""Settings of the whole test suite.

``async def`` tests run in virtual time by the pytest plugin that comes with the package.
"""

from __future__ import annotations

import asyncio
import functools
import gc
import importlib.util
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import settings

from dartsim.core.errors import ConfigError

# No deadline: a shared machine's pauses say nothing about the code. In CI the examples are the same every
# time, so that a red run is red again; elsewhere hypothesis goes on looking for new ones. Half of its usual number of
# examples is for every run of the tests; `--hypothesis-profile=thorough` looks further.
settings.register_profile("dev", max_examples=50, deadline=None, print_blob=True)
settings.register_profile("ci", max_examples=50, deadline=None, print_blob=True, derandomize=True)
settings.register_profile("thorough", max_examples=1_000, deadline=None, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "dev")

# A shell ignores Ctrl-C for what it starts in the background (`python -m pytest &`), and so would everything below:
# tests that send it would wait forever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# Every search for garbage would go through the half a million objects that the imports make: 0.4 s each.
gc.disable()


LONGEST = "test_the_loop_runs_on_containers_as_the_tutorial_tells"
"""Takes minutes by the clock: begun first, the others run beside it."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.name != LONGEST)


def pytest_collection_finish() -> None:
    """Look for garbage from here on, but not among what was imported."""
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session", autouse=True)
def one_core():
    """Run sweeps in the process of the test: a spawned process needs two seconds to import everything."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dartsim.real.machine.usable_cores", lambda: 1)
        yield


@pytest.fixture(scope="session")
def dartsim():
    """Return a function that runs the command in this process and returns its exit code."""
    import typer.main

    # Options and help of all commands, which typer puts together anew for every call: 0.05 s.
    built = functools.cache(typer.main.get_command)

    def run(*arguments: str) -> int:
        from dartsim.cli import app

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "argv", ["dartsim", *arguments])
            patch.setattr(typer.main, "get_command", built)
            with pytest.raises(SystemExit) as ended:
                app.main()
        return int(ended.value.code or 0)

    return run


@pytest.fixture(scope="session")
def module_of() -> Callable[[Path], ModuleType]:
    """Return a function that gives a file of the tests as a module, as tests are no packages that import each other."""

    def load(file: Path) -> ModuleType:
        name = "_".join(("tests", *file.relative_to(Path(__file__).parent).with_suffix("").parts))
        if name not in sys.modules:
            spec = importlib.util.spec_from_file_location(name, file)
            assert spec is not None
            assert spec.loader is not None
            sys.modules[name] = module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
        return sys.modules[name]

    return load


@pytest.fixture(scope="session")
def own_metrics(module_of):
    """The class ``OwnMetrics`` of ``own_metrics.py``: a pool of sandboxes without a sandbox."""
    return module_of(Path(__file__).with_name("own_metrics.py")).OwnMetrics


@pytest.fixture(scope="session")
def docker_engine():
    """Settings of a Docker engine that answers; without one the test is skipped, by name."""
    pytest.importorskip("docker", reason="needs the extra `real`")
    from dartsim.config.schema import DockerHostConfig
    from dartsim.real.containers.engine import connect
    from dartsim.real.containers.errors import EngineMissing

    settings = DockerHostConfig()
    try:
        connect(settings).close()
    except EngineMissing as missing:
        pytest.skip(f"no Docker engine: {str(missing)[:120]}")
    return settings


@pytest.fixture(scope="session")
def desktop_image(docker_engine):
    """Name of our desktop image, made if it is not there; skipped where its packages are missing."""
    from dartsim.real.desktop import build

    try:
        return asyncio.run(build("skeleton", docker_engine))
    except ConfigError as missing:
        pytest.skip(f"no desktop image: {str(missing)[:200]}")
