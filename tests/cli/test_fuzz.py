"""``dartsim fuzz`` and ``dartsim fuzz --replay``: exit codes, figures, folders."""

import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from dartsim.cli.app import app
from dartsim.fuzz import Case, Chunk, run_case, search
from dartsim.fuzz.case_directory import write_case_directory
from experiments.planted_bugs import MUTATIONS

COMMAND = [sys.executable, "-c", "from dartsim.cli.app import main; main()"]
CASE = Case("drawn", 3, {"rollout.num_envs": 2})


def test_a_search_writes_its_figures(tmp_path):
    arguments = ["fuzz", "--seconds", "1", "--processes", "1", "--json", "figures.json"]
    done = subprocess.run([*COMMAND, *arguments], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert figures["seeds"] > 0
    assert figures["simulated_hours"] > 0.0
    assert figures["violations"] == 0
    assert done.stdout.startswith(f"no rule was broken: {figures['seeds']} runs")


def test_an_interrupted_search_tells_what_it_ran(monkeypatch, tmp_path):
    def one_chunk(self, function, items, on_progress=None):
        yield 0, function(items[0], lambda share: None)
        raise KeyboardInterrupt

    monkeypatch.setattr("dartsim.lab.sweep.InProcess.run", one_chunk)
    told = tmp_path / "told.json"
    arguments = ["fuzz", "--seconds", "1", "--processes", "1", "--json", str(told)]
    assert CliRunner().invoke(app, arguments).exit_code == 130
    figures = json.loads(told.read_text())
    assert (figures["interrupted"], figures["seeds"] > 0) == (True, True)
    with MUTATIONS["lost wake-up"].apply():
        result = CliRunner().invoke(app, [*arguments, "--seconds", "60"])  # it ends at the first failure
    assert result.exit_code == 1
    again = result.output.partition("dartsim fuzz --replay ")[2].split()[0]
    assert CliRunner().invoke(app, ["fuzz", "--replay", again]).exit_code == 0


def test_the_time_is_checked_after_each_run():
    now = iter(range(100))
    assert search(Chunk(0, 0, runs=50), clock=lambda: next(now), until=3).tally.runs == 3


@pytest.fixture
def folder(tmp_path):
    """A failure's folder."""
    return str(write_case_directory(tmp_path / "failure", run_case(CASE, keep=True)))


def test_a_replay_writes_its_folder(tmp_path, folder):
    result = CliRunner().invoke(app, ["fuzz", "--replay", folder, "--out", str(tmp_path / "a")])
    assert result.exit_code == 0, result.output
    assert json.loads((tmp_path / "a" / "summary.json").read_text())["rule"] is None


def test_a_replay_of_what_fails_exits_with_1(tmp_path, folder):
    with MUTATIONS["lost wake-up"].apply():
        results = [
            CliRunner().invoke(
                app,
                ["fuzz", "--replay", folder, "--out", str(tmp_path / name), "--json", f"{tmp_path}/{name}.json"],
            )
            for name in ("a", "b")
        ]
    assert [result.exit_code for result in results] == [1, 1]
    one, other = (json.loads((tmp_path / f"{name}.json").read_text()) for name in ("a", "b"))
    assert one["rule"] == "I8"
    assert one["event_hash"] == other["event_hash"]


def test_an_error_of_a_plug_in_is_reported_with_its_line(tmp_path):
    """It ends the attempts that run, which alone would look like a broken rule."""
    (tmp_path / "sick.py").write_text(
        "import dartsim\n\n\n"
        '@dartsim.register("router", "sick")\n'
        "class Sick(dartsim.Router):\n"
        "    def pick(self, last, group=0):\n"
        "        if group >= 2:\n"
        '            raise RuntimeError("no third group")\n'
        "        return self.least_loaded()\n"
    )
    (tmp_path / "sick.toml").write_text('preset = "areal-eta4"\n[rollout.routing]\nrule = "sick"\n')
    arguments = ["fuzz", "sick.toml", "--plugin", "sick", "--seconds", "5", "--processes", "1"]
    done = subprocess.run([*COMMAND, *arguments], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    assert "RuntimeError: no third group" in done.stdout
    assert "sick.py" in done.stdout
