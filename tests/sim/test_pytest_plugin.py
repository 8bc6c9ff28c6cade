"""The pytest hook: `async def` tests run in virtual time, with fixtures, markers and hypothesis."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dartsim.core.rng import streams
from dartsim.sim import SimLoop

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def seconds():
    return 86400


async def test_an_async_test_runs_in_virtual_time_with_its_fixtures(seconds):
    await asyncio.sleep(seconds)
    assert isinstance(asyncio.get_running_loop(), SimLoop)
    assert asyncio.get_running_loop().time() == 86400.0


@pytest.mark.parametrize("delay", [1, 2])
async def test_parameters_work(delay):
    await asyncio.sleep(delay)
    assert asyncio.get_running_loop().time() == delay


@pytest.mark.sim(seed=7)
async def test_the_marker_sets_the_seed():
    assert asyncio.get_running_loop().rng("a").random() == streams(7).rng("a").random()


async def test_the_seed_is_0_without_a_marker():
    assert asyncio.get_running_loop().rng("a").random() == streams(0).rng("a").random()


class TestMethods:
    async def test_methods_work(self, seconds):
        await asyncio.sleep(seconds)


@given(st.integers(0, 5))
async def test_hypothesis_works(delay):
    assert asyncio.get_running_loop().time() == 0.0
    await asyncio.sleep(delay)
    assert asyncio.get_running_loop().time() == delay


def run_pytest(folder, source, *options):
    (folder / "test_it.py").write_text(source)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:hypothesispytest", *options],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": "", "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    )
    return done.stdout + done.stderr


def test_it_works_by_name_and_leaves_other_plugins_their_tests(tmp_path):
    output = run_pytest(
        tmp_path,
        "import asyncio, pytest\n"
        "async def test_passes():\n"
        "    await asyncio.sleep(1e9)\n"
        "@pytest.mark.sim(until=5)\n"
        "async def test_limit():\n"
        "    await asyncio.sleep(10)\n"
        "async def test_fails():\n"
        "    assert 1 + 1 == 3\n"
        "@pytest.mark.sim(3)\n"
        "async def test_positional():\n"
        "    pass\n"
        "@pytest.mark.anyio\n"
        "async def test_not_ours():\n"
        "    assert 'simulated' == 'by dartsim'\n",
        "-p",
        "dartsim.sim.pytest_plugin",
        "-W",
        "ignore",
    )
    assert "LimitReached" in output
    assert "assert (1 + 1) == 3" in output
    assert "takes options by name" in output
    assert "simulated" not in output  # pytest itself does not run asynchronous tests
    assert "1 passed" in output
