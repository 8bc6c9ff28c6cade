"""How commands end that something else ends, and what they say off a terminal."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dartsim.observe.rundir import CONFIG

SMALL = ("dart", "--set", "rollout.num_envs=4", "--set", "rollout.num_workers=1")
COMMAND = [sys.executable, "-c", "from dartsim.cli.app import main; main()"]


def interrupt(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def terminate(*_: object, **__: object) -> None:
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(10.0)  # the signal's handler ends it


def test_sigterm_writes_the_report_so_far_where_the_shell_ignores_ctrl_c(long_run, tmp_path):
    process = long_run(*SMALL, before="import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); ")
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGTERM)
    said = process.communicate(timeout=120)[1]
    assert process.returncode == 143, said
    assert "resume it with: dartsim run cut" in said
    assert json.loads((tmp_path / "cut" / "summary.json").read_text())["interrupted"] is True


@pytest.mark.parametrize(("ended", "code"), [(interrupt, 130), (terminate, 143)])
def test_what_is_interrupted_ends_with_its_code(dartsim, monkeypatch, capsys, ended, code):
    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr("dartsim.run.execute.execute", ended)
    assert dartsim("run", "dart", "--out", "new") == code
    Path("begun").mkdir()
    (Path("begun") / CONFIG).write_text("")
    capsys.readouterr()
    assert dartsim("run", "dart", "--out", "begun") == code
    assert "dartsim run begun" in capsys.readouterr().err
    monkeypatch.setattr("dartsim.lab.compared_runs.make_runs", ended)
    assert dartsim("compare", "dart", "coupled", "--out", "both") == code
    monkeypatch.setattr("dartsim.lab.sweep.InProcess.run", ended)
    assert dartsim("fuzz", "--processes", "1") == code
    monkeypatch.setattr("dartsim.config.presets", ended)
    assert dartsim("config") == code
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_a_full_disk_is_an_error_of_one_line_and_a_reader_that_has_gone_is_none():
    asked = [*COMMAND, "config", "--list", "faults", "--json", "-"]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(asked, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == "error: the output could not be written: No space left on device\n"
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as gone:
        done = subprocess.run(asked, stdout=gone, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_file_for_json_is_tried_before_anything_runs(dartsim, monkeypatch):
    monkeypatch.setattr("dartsim.run.execute.execute", interrupt)
    kept = Path("kept.json")
    kept.write_text("{}")
    for name, code in (("/proc/x.json", 2), ("kept.json", 130), ("new.json", 130)):
        assert dartsim("run", "dart", "--json", name) == code
    assert (kept.read_text(), Path("new.json").exists()) == ("{}", False)
