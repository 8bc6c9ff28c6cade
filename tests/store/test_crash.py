"""Processes that are killed while they use the store: nothing is lost, nothing is trained twice, nothing goes back."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

LIFE = Path(__file__).with_name("crash_life.py")

WAYS = {
    "each": ["--each", "--at", "times"],
    "at-any-line": ["--each", "--at", "lines"],
    "batched": ["--at", "lines", "--every", "2"],
}


def kill(folder, *arguments):
    command = [sys.executable, LIFE, folder, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    print(done.stdout)
    return json.loads(done.stdout)


@pytest.mark.parametrize("each", [["--each"], []])
def test_a_run_that_is_killed_loses_and_doubles_nothing(tmp_path, each):
    found = kill(tmp_path, "--kills", 6, "--seed", 1, "--at", "lines", "--every", 2, *each)
    assert found["bad"] == {}
    assert found["kills"] == 6
    assert found["trained"] > 0


@pytest.mark.bench
@pytest.mark.parametrize("way", WAYS)
def test_a_hundred_kills(tmp_path, way):
    found = kill(tmp_path, "--kills", 110, "--seed", 2, *WAYS[way])
    assert found["bad"] == {}
    assert found["kills"] >= 100


@pytest.mark.bench
def test_the_search_finds_a_mark_that_is_set_before_the_weights_are_written(tmp_path):
    found = kill(tmp_path, "--kills", 200, "--seed", 1, "--at", "lines", "--bug", "--each")
    assert "trained but not in the weights" in found["bad"]
