"""How commands end that something else ends, and what they say off a terminal."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dartsim.cli import compare, console
from dartsim.cli.signals import sigterm_as_ctrl_c, undisturbed
from dartsim.config import load, to_toml
from dartsim.core.errors import ConfigError
from dartsim.observe.rundir import CONFIG, lock_run, read_run
from dartsim.run.execute import refuse_used
from dartsim.run.resume import refuse_hours

SMALL = ("--preset", "dart", "--set", "rollout.num_envs=4", "--set", "rollout.num_workers=1")
COMMAND = [sys.executable, "-c", "from dartsim.cli.app import main; main()"]


def interrupt(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def terminate(*_: object, **__: object) -> None:
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(10.0)  # the signal's handler ends it


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_waits_for_what_must_not_be_disturbed(number):
    done = []

    def work():
        with sigterm_as_ctrl_c():
            with undisturbed():
                signal.raise_signal(number)
                signal.raise_signal(number)
                done.append("whole")
            done.append("never")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == ["whole"]


def test_sigterm_writes_the_report_so_far_where_the_shell_ignores_ctrl_c(long_run, tmp_path):
    process = long_run(*SMALL, before="import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); ")
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGTERM)
    said = process.communicate(timeout=120)[1]
    assert process.returncode == 143, said
    assert "resume it with: dartsim run cut" in said
    assert json.loads((tmp_path / "cut" / "summary.json").read_text())["interrupted"] is True


@pytest.mark.parametrize(("ended", "code"), [(interrupt, 130), (terminate, 143)])
def test_what_is_interrupted_says_so_and_what_to_do(dartsim, monkeypatch, capsys, ended, code):
    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr("dartsim.run.execute.execute", ended)
    assert dartsim("run", "--preset", "dart", "--out", "new") == code
    assert "interrupted before the run began" in capsys.readouterr().err
    Path("begun").mkdir()
    (Path("begun") / CONFIG).write_text("")
    assert dartsim("run", "--preset", "dart", "--out", "begun") == code
    assert "resume it with: dartsim run begun" in capsys.readouterr().err
    monkeypatch.setattr(compare, "make_runs", ended)
    assert dartsim("compare", "dart", "coupled", "--out", "both") == code
    assert "interrupted: 0 of 2 runs were finished" in capsys.readouterr().err
    monkeypatch.setattr("dartsim.lab.sweep.InProcess.run", ended)
    assert dartsim("fuzz", "--processes", "1") == code
    told = capsys.readouterr()
    assert "interrupted: these are the finished runs" in told.err
    assert "no rule was broken: 0 runs" in told.out
    monkeypatch.setattr("dartsim.config.presets", ended)
    assert dartsim("config") == code
    assert "interrupted" in capsys.readouterr().err
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


def test_off_a_terminal_nothing_is_wrapped_unless_columns_says_so(monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    path = "a/long/path" * 30
    written = io.StringIO()
    console._Console(file=written).print(f"error: {path} is no run's folder")
    assert written.getvalue() == f"error: {path} is no run's folder\n"
    monkeypatch.setenv("COLUMNS", "40")
    written = io.StringIO()
    console._Console(file=written).print("word " * 30)
    assert max(map(len, written.getvalue().splitlines())) <= 40


def test_names_to_be_typed_are_whole_in_narrow_tables(dartsim, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    assert dartsim("config", "--list", "profiles") == 0
    assert "desktop-small" in capsys.readouterr().out
    assert dartsim("config") == 0
    first = [line.split("│")[0].strip() for line in capsys.readouterr().out.splitlines()]
    assert {"areal-eta0", "dart-measured", "osworld-16gpu"} <= set(first)


def test_choices_and_flags_are_told_in_the_users_words(dartsim, capsys):
    assert dartsim("run", "--faults", "hostil") == 2
    said = capsys.readouterr().err
    assert "'hostil' is not one of 'none'" in said
    assert "Value error" not in said
    assert dartsim("run", "--help") == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "--real-time" in line and "Run" in line]
    assert "bool" not in line


def test_a_file_for_json_is_tried_before_anything_runs(dartsim, monkeypatch, capsys):
    monkeypatch.setattr("dartsim.run.execute.execute", interrupt)
    kept = Path("kept.json")
    kept.write_text("{}")
    assert dartsim("run", "--preset", "dart", "--json", "/proc/x.json") == 2
    assert "--json /proc/x.json cannot be written" in capsys.readouterr().err
    assert dartsim("run", "--preset", "dart", "--json", "kept.json") == 130
    assert dartsim("run", "--preset", "dart", "--json", "new.json") == 130
    assert (kept.read_text(), Path("new.json").exists()) == ("{}", False)


def test_status_of_a_run_of_which_nothing_has_happened(dartsim, monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(console.out, "width", 500)  # nothing is wrapped
    (tmp_path / CONFIG).write_text(to_toml(load(preset_name="dart")))
    with lock_run(tmp_path):
        assert dartsim("show", str(tmp_path), "--json", "-") == 0
        assert json.loads(capsys.readouterr().out)["state"] == "starting"
        with pytest.raises(ConfigError, match="is held by a process that runs it now"):
            refuse_used(tmp_path)
    assert dartsim("show", str(tmp_path)) == 0
    assert f"`dartsim run {tmp_path}` begins it" in capsys.readouterr().out
    with pytest.raises(ConfigError, match="did not come to its end"):
        refuse_used(tmp_path)
    with pytest.raises(ConfigError, match=r"has not ended.*dartsim run"):
        read_run(tmp_path)


def test_too_few_hours_are_told_what_would_be_enough():
    with pytest.raises(ConfigError, match=r"is at 134\.81 h of 400 h; .*above that, not 134\.4, or be left out"):
        refuse_hours(Path("crashed"), 134.4, 134.814, 400.0)
    with pytest.raises(ConfigError, match=r"has finished its 4 hours; .*--hours 8$"):
        refuse_hours(Path("done"), 4.0, 4.00285, 4.0)
    refuse_hours(Path("done"), 4.1, 4.00285, 4.0)
