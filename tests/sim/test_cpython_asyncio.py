"""CPython's own asyncio tests pass on SimLoop, in virtual time."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

MODULES = [
    "test_context",
    "test_locks",
    "test_pep492",
    "test_queues",
    "test_runners",
    "test_taskgroups",
    "test_threads",
    "test_timeouts",
    "test_waitfor",
]
RUNNER = Path(__file__).with_name("cpython_asyncio.py")
ROOT = Path(__file__).resolve().parents[2]


def shipped(module):
    try:
        return importlib.util.find_spec(f"test.test_asyncio.{module}") is not None
    except ModuleNotFoundError:
        return False


def test_cpythons_own_asyncio_tests_pass():
    modules = [module for module in MODULES if shipped(module)]
    if not modules:
        pytest.skip("this interpreter ships without CPython's own tests (test.test_asyncio)")
    done = subprocess.run(
        [sys.executable, str(RUNNER), *modules],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    counts = re.search(r"ran=(\d+) skipped=(\d+)", done.stdout)
    assert counts is not None
    ran, skipped = int(counts[1]), int(counts[2])
    assert ran - skipped >= 20 * len(modules)
