"""``dartsim show`` of runs that go on, have ended or crashed; alarms' exit codes."""

from __future__ import annotations

import base64
import gzip
import json
import os
import re
import shutil
import time
from pathlib import Path

import pytest

from dartsim.config import load
from dartsim.observe.rundir import CONFIG, STATUS, lock_run
from dartsim.run.watch import Watch

SMALL = ("dart", "--hours", "0.5", "--set", "rollout.num_envs=8", "--set", "rollout.num_workers=2")


def documents_of(page):
    data = re.search(r'id="documents">([^<]*)<', page.read_text("utf-8"))[1]
    return json.loads(gzip.decompress(base64.b64decode(data)))


def test_a_finished_run_has_its_figures_and_a_cause_for_every_idle_second(dartsim, capsys, tmp_path):
    folder = tmp_path / "run"
    small = (*SMALL, "--set", "curation.batch.min_groups=1")
    assert dartsim("run", *small, "--out", str(folder)) == 0
    before = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    folder.chmod(0o555)
    capsys.readouterr()
    assert dartsim("show", str(folder), "--json", "-") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["state"], found["figures"]["seed"]) == ("finished", 0)
    length = found["idle"]["end_seconds"] - found["idle"]["start_seconds"]
    for population in found["idle"]["populations"].values():
        assert sum(population["seconds"].values()) == pytest.approx(population["size"] * length, rel=1e-4)
    assert dartsim("show", str(folder), "--html", str(tmp_path / "page.html")) == 0
    text = capsys.readouterr().out
    assert re.match(r"dart, seed 0: finished after 30\.\d min of simulated time", text)
    assert "the task is being set up on it" in text
    assert documents_of(tmp_path / "page.html")["run/now"]["state"] == "finished"
    assert {path.name: path.stat().st_mtime_ns for path in folder.iterdir()} == before, "it only reads"


def test_a_run_that_ends_before_any_attempt_has_no_rate_of_attempts(dartsim, capsys):
    assert dartsim("run", *SMALL[:1], "--hours", "0.005", *SMALL[3:], "--out", "run") == 18
    figures = json.loads(Path("run/summary.json").read_text())
    assert set(figures["endings"]) == {"cancelled"}
    assert figures["trajectories_per_minute"] is None
    assert dartsim("show", "run", "--html", "page.html") == 0
    shown = capsys.readouterr().out
    (row,) = [line for line in shown.splitlines() if line.startswith("Trajectories")][-1:]
    said = shown[shown.index("failed after") :].splitlines()
    assert len([line for line in said if line.startswith("Nothing was trained")]) == 1
    assert row.split()[-1] == "–"


def test_a_run_of_another_format_is_listed_beside_the_others_with_the_reason(dartsim, capsys):
    assert dartsim("run", *SMALL[:1], "--hours", "0.005", *SMALL[3:], "--out", "runs/new") == 18
    shutil.copytree("runs/new", "runs/old")
    file = Path("runs/old", STATUS)
    file.write_text(json.dumps(json.loads(file.read_text()) | {"format": 0}))
    for options in ((), ("runs/new", "runs/old"), ("--html", "page.html", "--json", "runs.json")):
        capsys.readouterr()
        assert dartsim("show", *options) == 0
        captured = capsys.readouterr()
        assert "runs/old has format 0, and this dartsim reads format" in captured.err
        assert "new" in captured.out
    assert dartsim("show", "runs/old", "--trace", "trace.json.gz") == 2
    assert documents_of(Path("page.html"))["runs%2Fnew/now"]["state"] == "failed"


def test_the_page_of_a_run_is_served_before_the_run_has_a_status(dartsim, capsys, monkeypatch):
    served = []
    monkeypatch.setattr("dartsim.cli.live.serve", lambda folders, **_: served.extend(folders))
    for folder in ("run", "other"):
        Path(folder).mkdir()
    Path("run", CONFIG).touch()
    with lock_run(Path("run")):
        assert dartsim("show", "run", "--live") == 0
        assert dartsim("show", "run") == 2
    assert "run is starting" in capsys.readouterr().err
    assert dartsim("show", "other", "--live") == 2
    assert served == [Path("run")]


def test_somebody_s_changed_figures_are_shown_or_refused_in_a_sentence(dartsim, capsys):
    assert dartsim("run", *SMALL, "--set", "curation.batch.min_groups=1", "--out", "run") == 0
    file = Path("run/summary.json")
    whole = json.loads(file.read_text())
    for number, key in enumerate(whole):
        file.write_text(json.dumps(whole | {key: [None, "x", -1, [], {}, [[{}]], {"a": {}}][number % 7]}))
        code = dartsim("show", "run", *(("--html", "page.html") if number % 7 == 0 else ()))
        captured = capsys.readouterr()
        assert code in (0, 2), key
        assert "Traceback" not in captured.err, key
        assert code == 0 or "error: run" in captured.err, captured.err


def test_status_of_a_run_that_goes_on_and_of_one_whose_process_is_gone(dartsim, capsys, tmp_path):
    watch = Watch(load("dart"), tmp_path)
    with lock_run(tmp_path), watch:
        assert dartsim("show", str(tmp_path), "--json", "-") == 0
        assert json.loads(capsys.readouterr().out)["state"] == "starting"
        unfinished = json.loads((tmp_path / STATUS).read_text())
    waits = {"waits_for": "its update to end", "woken_by": "the learner", "detail": ""}
    waits |= {"component": "trainer", "state": "training", "since_seconds": 60.0}
    (tmp_path / STATUS).write_text(json.dumps(unfinished | {"components": [waits]}))
    assert dartsim("show", str(tmp_path), "--json", "-") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["state"], found["error"]) == ("crashed", "its process is gone and has not written its end")
    assert dartsim("show", str(tmp_path)) == 0
    assert "trainer: training since 60.0 s, waits for its update to end" in " ".join(capsys.readouterr().out.split())


def test_what_is_no_run_is_refused(dartsim, capsys, tmp_path):
    assert dartsim("show", str(tmp_path)) == 2
    assert "has no status.json" in " ".join(capsys.readouterr().err.split())
    for torn in ("{", "[]"):
        (tmp_path / STATUS).write_text(torn)
        assert dartsim("show", str(tmp_path)) == 2
        said = capsys.readouterr().err
        assert "holds no status of a run" in " ".join(said.split())
        assert "JSON" not in said
        assert "delimiter" not in said


@pytest.mark.parametrize("command", ["run", "show", "show --attempt 1 --gif a.gif", "eval", "eval --rescore"])
def test_the_folder_of_an_evaluation_is_no_run(dartsim, capsys, tmp_path, command):
    for name in ("config.toml", "summary.json", "evaluation.json"):
        (tmp_path / name).write_text("")
    name, *options = command.split()
    assert dartsim(name, str(tmp_path), *options) == 2
    assert "is an evaluation and no run" in " ".join(capsys.readouterr().err.split())


def test_a_strict_run_ends_with_the_exit_code_of_its_alarm(dartsim, capsys, tmp_path, monkeypatch):
    starved = ("--set", "curation.batch.max_groups=500", "--set", "curation.batch.min_groups=500")
    arguments = ("run", *SMALL, *starved, "--out")
    monkeypatch.setattr("dartsim.observe.alarm_rules.STARVED_SECONDS", 300.0)
    assert dartsim(*arguments, str(tmp_path / "strict"), "--set", "run.fail_on_alarm=true") == 10
    assert "alarm: trainer_starved since" in capsys.readouterr().err
    monkeypatch.setattr("dartsim.observe.alarm_rules.STARVED_SECONDS", 1e6)
    assert dartsim("run", str(tmp_path / "strict")) == 18, "what it suffered from is over; it trained nothing"
    assert "alarm: trainer_starved since" in capsys.readouterr().err
    monkeypatch.setattr("dartsim.observe.alarm_rules.STARVED_SECONDS", 300.0)
    assert dartsim(*arguments, str(tmp_path / "lax")) == 18
    # As it was raised it was logged, which pytest keeps to itself; at the end all are told.
    assert capsys.readouterr().err.count("trainer_starved since") == 1


@pytest.mark.parametrize(
    ("clock", "age", "silent"), [("real", 300.0, True), ("real", 1.0, False), ("virtual", 300.0, False)]
)
def test_a_run_that_lives_and_writes_nothing_is_said_to_be_silent(dartsim, capsys, tmp_path, clock, age, silent):
    with lock_run(tmp_path), Watch(load("dart"), tmp_path):
        found = json.loads((tmp_path / STATUS).read_text()) | {"state": "running", "clock": clock}
        (tmp_path / STATUS).write_text(json.dumps(found))
        written = time.time() - age
        os.utime(tmp_path / STATUS, (written, written))
        assert dartsim("show", str(tmp_path), "--json", "-") == 0
        assert (json.loads(capsys.readouterr().out)["state"] == "silent") is silent
        assert dartsim("show", str(tmp_path)) == 0
        assert (
            "its process is alive, and has written nothing since" in " ".join(capsys.readouterr().out.split())
        ) is silent
