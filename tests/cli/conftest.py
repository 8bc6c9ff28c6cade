"""Every test of the command line is in a folder of its own, where what a command writes unasked is seen."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from dartsim.real.processes import end_with


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def long_run(tmp_path: Path) -> Callable[..., subprocess.Popen[str]]:
    """Return a function that starts a run of many hours into the folder ``cut``, and waits for its first update.

    The process ends with the tests', also when those are killed.
    """

    def start(*options: str, before: str = "") -> subprocess.Popen[str]:
        program = f"{before}from dartsim.cli.app import main; main()"
        process = subprocess.Popen(
            [sys.executable, "-c", program, "run", *options, "--hours", "2000", "--out", "cut"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=partial(end_with, os.getpid(), signal.SIGKILL),
        )
        started = tmp_path / "cut" / "metrics.jsonl"
        while not (started.exists() and started.stat().st_size):
            assert process.poll() is None, process.communicate()[1]
            time.sleep(0.05)
        return process

    return start
