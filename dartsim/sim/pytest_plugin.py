"""pytest: ``async def`` tests run in virtual time.

``@pytest.mark.sim(seed=3, until=60)`` hands options to ``simulate``. Tests that are marked for another
asynchronous plugin are left alone.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import pytest

from dartsim.sim.simulate import simulate

OTHER_PLUGINS = ("asyncio", "anyio", "trio", "curio", "tornasync")
"""Markers of plugins that run ``async def`` tests in their own way."""


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.addinivalue_line("markers", "sim(**options): options of simulate() for an `async def` test")


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run an ``async def`` test with ``simulate``; let pytest run all others."""
    if any(pyfuncitem.get_closest_marker(name) for name in OTHER_PLUGINS):
        return None
    test = pyfuncitem.obj
    options = _options(pyfuncitem)
    hypothesis = getattr(test, "hypothesis", None)
    if hypothesis is not None and inspect.iscoroutinefunction(hypothesis.inner_test):
        # @given has made a plain function of it, which calls the inner test once an example.
        hypothesis.inner_test = _in_virtual_time(hypothesis.inner_test, options)
        return None
    if not inspect.iscoroutinefunction(test):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    _in_virtual_time(test, options)(**arguments)
    return True


def _options(item: pytest.Item) -> dict[str, Any]:
    """Return the options of all ``sim`` markers of a test, the closest ones last."""
    options: dict[str, Any] = {}
    for marker in reversed(list(item.iter_markers("sim"))):
        if marker.args:
            raise pytest.UsageError(f"{item.nodeid}: the sim marker takes options by name, got {marker.args}")
        options.update(marker.kwargs)
    return options


def _in_virtual_time(test: Callable[..., Any], options: dict[str, Any]) -> Callable[..., None]:
    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        simulate(test(*args, **kwargs), **options)

    return run
