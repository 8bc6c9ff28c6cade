"""The pytest plugin: `async def` tests run in virtual time where they ask for it, with fixtures and hypothesis."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dartsim.core.rng import Streams
from dartsim.sim import SimLoop

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def seconds():
    return 86400


async def test_an_async_test_runs_in_virtual_time_with_its_fixtures(seconds):
    await asyncio.sleep(seconds)
    assert isinstance(asyncio.get_running_loop(), SimLoop)
    assert asyncio.get_running_loop().time() == 86400.0


@pytest.mark.sim(seed=7)
async def test_the_marker_sets_the_seed():
    assert asyncio.get_running_loop().rng("a").random() == Streams(7).rng("a").random()


@given(st.integers(0, 5))
async def test_hypothesis_works(delay):
    assert asyncio.get_running_loop().time() == 0.0
    await asyncio.sleep(delay)
    assert asyncio.get_running_loop().time() == delay


FOREIGN = """
import asyncio
import pytest
from hypothesis import given, strategies as st
from dartsim.sim import SimLoop

def virtual():
    return isinstance(asyncio.get_running_loop(), SimLoop)

@pytest.fixture
def number():
    return 3

async def test_foreign(number):
    assert number == 3
    assert not virtual()
    await asyncio.to_thread(int)  # a real loop

class TestForeign:
    async def test_method(self):
        assert not virtual()

@given(st.booleans())
async def test_foreign_hypothesis(flag):
    assert not virtual()

def test_plain(number):
    assert number == 3

@pytest.mark.sim(until=1e7)
async def test_ours(number):
    assert virtual()
    await asyncio.sleep(1e6)

@pytest.mark.sim
class TestOurs:
    async def test_method(self, number):
        assert virtual()

@pytest.mark.sim
@given(st.booleans())
async def test_ours_hypothesis(flag):
    assert virtual()
"""


def run_pytest(folder, source, *plugins, settings=""):
    """Run pytest in a project of its own, with these plugins and ours; return its whole output."""
    (folder / "test_it.py").write_text(source)
    (folder / "pytest.ini").write_text(f"[pytest]\nfilterwarnings = error\n{settings}\n")
    loaded = [word for name in ("dartsim.sim.pytest_plugin", *plugins) for word in ("-p", name)]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", *loaded],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": "", "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    )
    return done.stdout + done.stderr


def ended(output, word):
    """Return the tests that ended so, once for each time that they ran."""
    lines = [line for line in output.splitlines() if line.startswith("test_it.py::") and f" {word}" in line]
    return sorted(line.partition("::")[2].split()[0] for line in lines)


OURS = ["TestOurs::test_method", "test_ours", "test_ours_hypothesis"]
FOREIGN_NAMES = ["TestForeign::test_method", "test_foreign", "test_foreign_hypothesis"]


def test_a_project_that_asks_for_nothing_gets_nothing(tmp_path):
    output = run_pytest(tmp_path, FOREIGN)
    assert ended(output, "PASSED") == sorted([*OURS, "test_plain"])
    assert ended(output, "FAILED") == FOREIGN_NAMES  # pytest itself does not run asynchronous tests
    assert "async def functions are not natively supported" in output


def test_beside_pytest_asyncio_in_auto_mode_each_test_runs_where_it_belongs(tmp_path):
    pytest.importorskip("pytest_asyncio.plugin", reason="needs the extra `dev`")
    settings = "asyncio_mode = auto\nasyncio_default_fixture_loop_scope = function"
    output = run_pytest(tmp_path, FOREIGN, "pytest_asyncio.plugin", settings=settings)
    assert ended(output, "PASSED") == sorted([*OURS, *FOREIGN_NAMES, "test_plain"]), output


def test_beside_anyio_in_auto_mode_each_test_runs_where_it_belongs(tmp_path):
    pytest.importorskip("anyio", reason="needs the extra `dev`")
    conftest = (
        "import pytest\n@pytest.fixture(params=['asyncio'])\ndef anyio_backend(request):\n    return request.param\n"
    )
    (tmp_path / "conftest.py").write_text(conftest)
    output = run_pytest(tmp_path, FOREIGN, "anyio.pytest_plugin", settings="anyio_mode = auto")
    foreign = [f"{name}[asyncio]" for name in FOREIGN_NAMES]
    assert ended(output, "PASSED") == sorted([*OURS, *foreign, "test_plain"]), output


def test_a_setting_asks_for_every_test_that_is_not_another_plugin_s(tmp_path):
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
        settings="virtual_time = true\nmarkers = anyio",
    )
    assert ended(output, "PASSED") == ["test_passes"]
    assert "LimitReached" in output
    assert "assert (1 + 1) == 3" in output
    assert "takes options by name" in output
    assert "'by dartsim'" not in output
