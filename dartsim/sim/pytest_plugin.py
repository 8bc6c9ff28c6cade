"""pytest plugin: runs ``async def`` tests in virtual time on request.

A test marked ``@pytest.mark.sim`` runs in virtual time. Options of the marker go to ``run_virtual``, for example
``@pytest.mark.sim(seed=3, until=60)``. With ``virtual_time = true`` in pytest's settings, every ``async def`` test runs
in virtual time, except those marked for another asynchronous plugin. Other tests are unaffected.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Generator
from typing import Any

import pytest

OTHER_PLUGINS = ("asyncio", "anyio", "trio", "curio", "tornasync")
"""Markers of other plugins that run ``async def`` tests."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Register the setting."""
    parser.addini("virtual_time", "run every `async def` test in dartsim's virtual time", type="bool", default=False)


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.addinivalue_line(
        "markers", "sim(**options): run an `async def` test in virtual time, with these options of run_virtual()"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Remove the backends that anyio, in its mode `auto`, adds to each ``async def`` test."""
    if "anyio_backend" in metafunc.fixturenames and _is_ours(metafunc.definition):
        metafunc.parametrize("anyio_backend", [None], ids=[getattr(pytest, "HIDDEN_PARAM", "sim")])  # since pytest 8.4


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """While such a test is called, replace its coroutine function with a plain function."""
    if not _is_ours(pyfuncitem):
        return (yield)
    # @given has turned it into a plain function that calls the inner test once per example.
    hypothesis = getattr(pyfuncitem.obj, "hypothesis", None)
    holder, name = (pyfuncitem, "obj") if hypothesis is None else (hypothesis, "inner_test")
    test = getattr(holder, name)
    if type(pyfuncitem) is not pytest.Function:  # pytest-asyncio's own class, which has wrapped the coroutine function
        test = inspect.unwrap(test, stop=inspect.iscoroutinefunction)
    if not inspect.iscoroutinefunction(test):
        return (yield)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(holder, name, _in_virtual_time(test, _options(pyfuncitem)))
        return (yield)


def _is_ours(item: pytest.Function) -> bool:
    """Return whether a test runs in virtual time, provided that it is an ``async def``."""
    if item.get_closest_marker("sim"):
        return True
    return bool(item.config.getini("virtual_time")) and not any(map(item.get_closest_marker, OTHER_PLUGINS))


def _options(item: pytest.Item) -> dict[str, Any]:
    """Return the options of all ``sim`` markers of a test, the closest ones last."""
    options: dict[str, Any] = {}
    for marker in reversed(list(item.iter_markers("sim"))):
        if marker.args:
            raise pytest.UsageError(f"{item.nodeid}: the sim marker takes options by name, got {marker.args}")
        options.update(marker.kwargs)
    return options


def _in_virtual_time(test: Callable[..., Any], options: dict[str, Any]) -> Callable[..., None]:
    # Imported here, because pytest loads this module wherever dartsim is installed.
    from dartsim.sim.run_virtual import run_virtual

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        run_virtual(test(*args, **kwargs), **options)

    return run
