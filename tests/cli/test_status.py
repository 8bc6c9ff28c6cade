"""``dartsim status`` on runs that go on, ended and crashed; alarms' exit codes."""

from __future__ import annotations

import json
import os
import time

import pytest

from dartsim.config import load
from dartsim.observe.rundir import held
from dartsim.run.watch import STATUS, Watch

SMALL = ("--preset", "dart", "--hours", "0.5", "--set", "rollout.num_envs=8", "--set", "rollout.num_workers=2")


def test_status_of_a_finished_run(dartsim, capsys, tmp_path):
    folder = tmp_path / "run"
    assert dartsim("run", *SMALL, "--out", str(folder)) == 18, "too short to train"
    capsys.readouterr()
    assert dartsim("status", str(folder), "--json", "-") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["state"] == "finished"
    assert {one["component"] for one in found["components"]} >= {
        "slot 7",
        "engine 1",
        "trainer",
        "data manager",
        "store",
    }
    assert dartsim("status", str(folder)) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "dart, seed 0: finished at" in text
    assert dartsim("status", str(folder), "--each", "--follow") == 0, "a run that ended is shown once"
    assert "slot 7" in capsys.readouterr().out


def test_status_of_a_run_that_goes_on_and_of_one_whose_process_is_gone(dartsim, capsys, tmp_path):
    watch = Watch(load(preset_name="dart"), tmp_path)
    with held(tmp_path), watch:
        assert dartsim("status", str(tmp_path), "--json", "-") == 0
        assert json.loads(capsys.readouterr().out)["state"] == "starting"
        unfinished = (tmp_path / STATUS).read_bytes()
    (tmp_path / STATUS).write_bytes(unfinished)
    assert dartsim("status", str(tmp_path), "--json", "-") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["state"], found["error"]) == ("crashed", "its process is gone and has not written its end")


def test_what_is_no_run_is_refused(dartsim, capsys, tmp_path):
    assert dartsim("status", str(tmp_path)) == 2
    assert "has no status.json" in " ".join(capsys.readouterr().err.split())
    (tmp_path / STATUS).write_text("{")
    assert dartsim("status", str(tmp_path)) == 2
    (tmp_path / STATUS).write_text("[]")
    assert dartsim("status", str(tmp_path)) == 2


def test_a_strict_run_ends_with_the_exit_code_of_its_alarm(dartsim, capsys, tmp_path):
    starved = ("--set", "curation.batch.max_groups=500", "--set", "curation.batch.min_groups=500")
    arguments = ("run", *SMALL, *starved, "--set", "alarms.starved_seconds=300", "--out")
    assert dartsim(*arguments, str(tmp_path / "strict"), "--strict-alarms") == 10
    assert "alarm: trainer_starved since" in capsys.readouterr().err
    config = tmp_path / "strict" / "config.toml"
    config.write_text(config.read_text().replace("starved_seconds = 300.0", "starved_seconds = 1e6"))
    assert dartsim("resume", str(tmp_path / "strict")) == 18, "what it suffered from is over; it trained nothing"
    assert "alarm: trainer_starved since" in capsys.readouterr().err
    assert dartsim(*arguments, str(tmp_path / "lax")) == 18
    # As it was raised it was logged, which pytest keeps to itself; at the end all are told.
    assert capsys.readouterr().err.count("trainer_starved since") == 1


@pytest.mark.parametrize(
    ("clock", "age", "silent"), [("real", 300.0, True), ("real", 1.0, False), ("virtual", 300.0, False)]
)
def test_a_run_that_lives_and_writes_nothing_is_said_to_be_silent(dartsim, capsys, tmp_path, clock, age, silent):
    with held(tmp_path), Watch(load(preset_name="dart"), tmp_path):
        found = json.loads((tmp_path / STATUS).read_text()) | {"state": "running", "clock": clock}
        (tmp_path / STATUS).write_text(json.dumps(found))
        written = time.time() - age
        os.utime(tmp_path / STATUS, (written, written))
        assert dartsim("status", str(tmp_path), "--json", "-") == 0
        assert bool(json.loads(capsys.readouterr().out).get("silent_since")) is silent
        assert dartsim("status", str(tmp_path)) == 0
        assert ("silent: its process is alive" in " ".join(capsys.readouterr().out.split())) is silent
