"""The example project of the docs: its tests pass, and its plug-in works on the command line."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def example(tmp_path):
    """Return what runs a module in a copy of the project, and returns its exit code and output."""
    folder = shutil.copytree(ROOT / "docs" / "group-affine", tmp_path / "group-affine")

    def run(*arguments):
        done = subprocess.run(
            [sys.executable, "-m", *arguments],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout

    run.folder = folder
    return run


def test_its_tests_pass(example):
    code, printed = example("pytest", "-q")
    assert (code, "3 passed" in printed) == (0, True), printed


def test_its_router_is_compared_in_other_processes_and_gates_a_build(example):
    arguments = ("--plugin", "group_affine", "--on", "cluster.toml", "--hours", "0.3", "--seeds", "2")
    gate = ("--fail-if", "generated_turns_per_minute > 0.1 * areal-eta4", "--junit", "gate.xml")
    code, printed = example("dartsim", "compare", "ours.toml", "areal-eta4", *arguments, *gate)
    assert code == 1, printed
    assert "dartsim run ours.toml --on cluster.toml --set run.hours=0.3 --seed 1" in printed
    assert ElementTree.parse(example.folder / "gate.xml").getroot().get("failures") == "1"


def test_the_search_for_failing_schedules_takes_it(example):
    code, printed = example(
        "dartsim", "fuzz", "--preset", "ours.toml", "--plugin", "group_affine", "--seconds", "1", "--processes", "1"
    )
    assert code == 0, printed
    code, printed = example("dartsim", "config", "show", "ours.toml")
    assert (code, "rollout.routing.rule = 'group-affine': wanted" in printed) == (2, True), printed
