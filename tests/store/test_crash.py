"""Processes that are killed while they use the store: nothing is lost, nothing is trained twice, nothing goes back."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

LIFE = Path(__file__).with_name("crash_life.py")


def kill(folder, *arguments):
    command = [sys.executable, LIFE, folder, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    print(done.stdout)
    return json.loads(done.stdout)


@pytest.mark.parametrize("each", [["--each"], []])
def test_a_run_that_is_killed_loses_and_doubles_nothing(tmp_path, each):
    found = kill(tmp_path, "--kills", 6, "--seed", 1, *each)
    assert found["bad"] == {}
    assert found["kills"] == 6
    assert found["trained"] > 0
