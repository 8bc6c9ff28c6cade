"""The command line, as a user types it: results, files, errors, exit codes."""

from __future__ import annotations

import json
import logging
import signal
import subprocess
import sys
import time
from pathlib import Path
from xml.etree import ElementTree

import pytest

from dartsim.cli import compare
from dartsim.config import to_toml
from dartsim.lab.compared_runs import named_handler
from dartsim.run.execute import execute

SIZES = ("rollout.num_envs=8", "rollout.num_workers=2", "curation.batch.min_groups=1")  # it trains in half an hour
SMALL = ("--preset", "dart", "--hours", "0.5", *(word for size in SIZES for word in ("--set", size)))

COMMAND = [sys.executable, "-c", "from dartsim.cli.app import main; main()"]


def test_a_run_leaves_its_folder_and_its_figures(dartsim, capsys, tmp_path):
    assert dartsim("run", *SMALL, "--json", "figures.json") == 0
    figures = json.loads(Path("figures.json").read_text())
    wanted = {
        "success_rate_initial",
        "success_rate_final",
        "cpu_seconds",
        "wall_seconds",
        "num_updates",
        "simulated_hours",
        "env_utilization",
        "gpu_utilization",
        "trained_turns_per_minute",
        "event_hash",
        "run_dir",
    }
    assert wanted <= set(figures)
    assert 0.5 <= figures["simulated_hours"] < 0.51  # the last desktops are torn down in the end
    folder = Path(figures["run_dir"])
    written = {path.name for path in folder.iterdir()}
    assert written >= {
        "config.toml",
        "summary.json",
        "series.json",
        "timeline.json",
        "trace.json.gz",
        "report.html",
        "metrics.jsonl",
        "run.db",
        "tensorboard",
    }
    printed = capsys.readouterr().out
    assert "Environment utilization" in printed
    assert "nothing was learned" in printed
    assert "report.html" in printed


def test_a_run_is_repeated_by_its_seed_and_its_written_configuration(dartsim):
    hashes = []
    for number, arguments in enumerate((SMALL, SMALL, (*SMALL, "--seed", "1"))):
        assert dartsim("run", *arguments, "--out", f"run{number}", "--json", "f.json") == 0
        hashes.append(json.loads(Path("f.json").read_text())["event_hash"])
    assert hashes[0] == hashes[1] != hashes[2]
    assert dartsim("run", "run0/config.toml", "--json", "f.json") == 0
    assert json.loads(Path("f.json").read_text())["event_hash"] == hashes[0]


def test_a_run_of_a_file_has_the_file_s_name_and_keeps_it(dartsim, capsys):
    Path("mine.toml").write_text('preset = "dart"\n')
    assert dartsim("run", "mine.toml", *SMALL[2:]) == 0
    assert capsys.readouterr().out.splitlines()[0].split()[-1] == "mine"
    assert json.loads(Path("runs/mine-seed0/summary.json").read_text())["preset"] == "dart"
    assert dartsim("show", "runs/mine-seed0") == 0
    assert capsys.readouterr().out.startswith("mine, seed 0: finished")
    assert dartsim("run", "runs/mine-seed0/config.toml", "--seed", "1") == 0
    assert Path("runs/mine-seed1").is_dir()
    assert dartsim("run", "mine.toml", *SMALL[2:], "--set", "run.name=other") == 0
    assert Path("runs/other-seed0").is_dir()


def test_json_to_standard_output_is_nothing_but_json(dartsim, capsys):
    assert dartsim("run", *SMALL, "--json", "-") == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["preset"] == "dart"
    assert printed.err == "run: runs/dart-seed0 (while it runs: dartsim show runs/dart-seed0)\n"


STEADY = (
    "tasks.count=5",
    "rollout.num_envs=4",
    "rollout.num_workers=2",
    "rollout.max_turns=5",
    "curation.attempts.group_size=2",
    "curation.groups.min_size=1",
    "curation.batch.min_groups=1",
    "curation.batch.max_groups=2",
    "cluster.learner.fixed_seconds=60.0",
    "cluster.engine.reload_seconds=30.0",
)
"""A small cluster, whose updates are short."""


def test_a_run_that_is_steady_ends_and_a_longer_one_starts_a_new_observation(dartsim, capsys):
    small = [word for setting in STEADY for word in ("--set", setting)]
    assert dartsim("run", "dart", *small, "--hours", "12", "--until-steady", "40%", "--json", "f.json") == 0
    figures = json.loads(Path("f.json").read_text())
    steady = figures["steady"]
    assert steady["reached"]
    assert steady["hours"] == figures["simulated_hours"] < 11.0
    folder, said = figures["run_dir"], f"steady after {steady['hours']:.1f} of 12 h: Trained turns "
    assert said in capsys.readouterr().out
    assert said in Path(folder, "report.html").read_text("utf-8")
    assert dartsim("run", folder) == 2
    assert "was steady after" in capsys.readouterr().err
    assert dartsim("run", folder, "--hours", f"{steady['hours'] + 0.2}", "--json", "-") == 0
    again = json.loads(capsys.readouterr().out)
    assert not again["steady"]["reached"]
    assert steady["hours"] < again["simulated_hours"] < steady["hours"] + 0.3


def test_a_comparison_shows_one_table_and_one_page(dartsim, capsys):
    arguments = ("compare", "coupled", "dart", *SMALL[2:], "--out", "both", "--json", "rows.json")
    assert dartsim(*arguments) == 0
    rows = json.loads(Path("rows.json").read_text())
    assert [row["preset"] for row in rows] == ["coupled", "dart"]
    assert set(rows[0]) >= {
        "preset",
        "seed",
        "workload",
        "staleness_definitions",
        "hours_to_updates",
        "classes",
        "trained_turns_per_minute",
        "generated_turns_per_minute",
        "env_utilization",
        "gpu_utilization",
        "staleness_mean",
        "staleness_max",
        "wasted_share",
        "prefix_hit_share",
        "bound_trained_turns_per_minute",
    }
    assert Path("both/comparison.html").stat().st_size > 100_000
    printed = capsys.readouterr().out
    assert "ratio" in printed
    assert all(row["updates"] > 0 for row in rows)
    assert "Diamonds" in Path("both/comparison.html").read_text("utf-8")
    assert "prefix hits, %" in printed
    assert all(0.0 < row["prefix_hit_share"] < 1.0 for row in rows)
    page = Path("both/comparison.html").read_text("utf-8")
    assert "<td>prefix hits, %</td>" in page
    assert page.count("<h2>Figures</h2>") == 0, "one table"
    assert "ranking, one seed" in printed
    assert [row["verdict"][:7] for row in rows] == ["unknown", "best"]
    assert dartsim(*arguments) == 2
    assert "both already exists" in capsys.readouterr().err


def test_a_comparison_over_seeds_shows_means_and_on_a_workload_nothing_published(dartsim, capsys):
    arguments = (
        "--processes",
        "1",
        "--on",
        "laptop",
        "--hours",
        "0.2",
        "--seeds",
        "2",
        "--out",
        "both",
        "--json",
        "rows.json",
    )
    assert dartsim("compare", "coupled", *arguments) == 0
    rows = json.loads(Path("rows.json").read_text())
    lines = [Path(f"both/coupled-seed{seed}/metrics.jsonl").read_text().splitlines() for seed in (0, 1)]
    times = [[json.loads(line)["time"] / 3600.0 for line in own] for own in lines]
    number = min(map(len, times))
    assert number > 1
    assert [row["hours_to_updates"] for row in rows] == [found[number - 1] for found in times]
    page, printed = Path("both/comparison.html").read_text("utf-8"), capsys.readouterr().out
    assert f"hours to update {number}" in printed
    trained = [row["trained_turns_per_minute"] for row in rows]
    told = f"{sum(trained) / 2:.1f} ±{12.7062 * abs(trained[0] - trained[1]) / 2:.1f}"
    assert told in printed
    assert f"<td>{told}</td>" in page
    assert "means over 2 seeds" in page
    assert "Diamonds" not in page


@pytest.mark.parametrize(
    ("out", "folder"), [(("--out", "both"), "both"), ((), "runs/compare-coupled-dart-measured")], ids=["named", "new"]
)
def test_the_same_command_finishes_an_interrupted_comparison(dartsim, monkeypatch, out, folder):
    arguments = ("compare", "coupled", "dart-measured", "--on", "laptop", "--hours", "0.5", *out, "--json", "rows.json")

    def first_only(runs, *_):
        execute(runs[0].config, runs[0].path)
        runs[1].path.mkdir()
        (runs[1].path / "config.toml").write_text(to_toml(runs[1].config))
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(compare, "make_runs", first_only)
        assert dartsim(*arguments) == 130
    summary = Path(folder, "coupled-seed0/summary.json")
    written = summary.stat().st_mtime_ns
    assert dartsim(*arguments) == 0
    assert summary.stat().st_mtime_ns == written
    assert [row["preset"] for row in json.loads(Path("rows.json").read_text())] == ["coupled", "dart-measured"]


def test_a_killed_comparison_keeps_its_finished_runs_and_more_seeds_add_to_it(dartsim, capsys):
    command = [*("compare", "coupled", "dart-measured", "--on", "laptop", "--hours", "0.5"), "--processes", "1"]
    more = ["--seeds", "3", "--json", "rows.json"]
    process = subprocess.Popen([sys.executable, "-m", "dartsim", *command, "--seeds", "2"], stderr=subprocess.DEVNULL)
    folder = Path("runs/compare-coupled-dart-measured")
    while not list(folder.glob("*/summary.json")):
        assert process.poll() is None
        time.sleep(0.01)
    process.kill()
    process.wait()
    written = {path: path.stat().st_mtime_ns for path in folder.glob("*/summary.json")}
    assert 1 <= len(written) < 4
    assert dartsim(*command, "--seeds", "2") == 0
    written |= {path: path.stat().st_mtime_ns for path in folder.glob("*/summary.json") if path not in written}
    assert len(written) == 4
    assert dartsim(*command, *more) == 0
    assert all(path.stat().st_mtime_ns == when for path, when in written.items())
    rows = json.loads(Path("rows.json").read_text())
    assert [(row["scheduler"], row["seed"]) for row in rows] == [
        (name, seed) for name in ("coupled", "dart-measured") for seed in range(3)
    ]
    assert {row["rank"] for row in rows} == {1, 2}
    assert [path.name for path in Path("runs").iterdir()] == [folder.name]


def test_files_are_compared_with_presets_on_the_same_cluster(dartsim, capsys):
    Path("mine.toml").write_text('preset = "dart-measured"\n[rollout]\nnum_envs = 9\nrouting.rule = "round_robin"\n')
    Path("cluster.toml").write_text("[rollout]\nnum_envs = 4\nnum_workers = 2\n[cluster.hosts]\ncount = 1\n")
    Path("latencies.toml").write_text("[cluster.env.latency]\nstep = 2.5\n")
    arguments = ("--on", "cluster.toml", "--profile", "latencies.toml", "--hours", "0.2")
    arguments += ("--out", "both", "--json", "rows.json")
    assert dartsim("compare", "mine.toml", "areal-eta4", *arguments) == 18, "too short to train anything"
    assert [row["scheduler"] for row in json.loads(Path("rows.json").read_text())] == ["mine", "areal-eta4"]
    summaries = [json.loads(Path(f"both/{name}-seed0/summary.json").read_text()) for name in ("mine", "areal-eta4")]
    assert [made["config"]["rollout"]["num_envs"] for made in summaries] == [4, 4]
    assert [made["config"]["cluster"]["env"]["latency"] for made in summaries] == [{"step": 2.5}] * 2
    assert "mine" in capsys.readouterr().out
    assert "<h1>mine against areal-eta4</h1>" in Path("both/comparison.html").read_text("utf-8")
    Path("folder").mkdir()
    Path("folder/mine.toml").write_text("")
    assert dartsim("compare", "mine.toml", "folder/mine.toml") == 2
    assert "two schedulers are named 'mine'" in capsys.readouterr().err


def test_a_comparison_fails_if_a_condition_holds(dartsim, capsys):
    worse = ("--fail-if", "generated_turns_per_minute < 0.9 * dart")
    arguments = (
        "compare",
        "coupled",
        "dart",
        "--processes",
        "1",
        "--on",
        "laptop",
        "--hours",
        "0.5",
        "--seeds",
        "2",
        "--max-seeds",
        "2",
        "--junit",
        "gate.xml",
    )
    fine = ("--fail-if", "generated_turns_per_minute > 9 * dart")
    assert dartsim(*arguments, *worse, *fine) == 1
    told = capsys.readouterr()
    assert "generated_turns_per_minute < 0.9 * dart holds: difference -" in told.err
    assert "dartsim run coupled --on laptop --set run.hours=0.5 --seed 1" in told.err
    assert "9 * dart does not hold" in told.out
    assert "ranking, 2 paired seeds" in told.out
    assert "1. " in told.out
    suite = ElementTree.parse("gate.xml").getroot()
    assert (suite.get("tests"), suite.get("failures")) == ("2", "1")
    assert dartsim("compare", "coupled", "dart", *fine) == 2
    assert "--seeds of 2 or more" in capsys.readouterr().err


def test_the_folder_of_a_comparison_of_many_presets_has_a_short_name():
    runs = compare.plan(["coupled", "dart", "areal-eta0", "areal-eta4"], [], 1)
    assert compare.new_or_interrupted(runs, 1) == Path("runs/compare-coupled-dart-2-more")


def test_a_warning_of_a_comparison_s_run_says_whose_it_is(capsys):
    record = logging.LogRecord("dartsim", logging.WARNING, "", 0, "%d groups", (3,), None)
    named_handler("dart seed 1").emit(record)
    assert capsys.readouterr().err == "dart seed 1: 3 groups\n"


def test_a_run_made_before_a_figure_was_kept_is_drawn_all_the_same(dartsim, capsys):
    dartsim("run", *SMALL, "--out", "here")
    summary = json.loads(Path("here/summary.json").read_text())
    assert summary.pop("prefix_hit_share") > 0.0
    Path("here/summary.json").write_text(json.dumps(summary))
    capsys.readouterr()
    assert dartsim("show", "here", "--html", "page.html") == 0
    (row,) = (line for line in capsys.readouterr().out.splitlines() if "Prefix hits" in line)
    assert row.endswith("–")
    assert "<td>Prefix hits</td>" not in Path("page.html").read_text("utf-8")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("run", "--set", "rollout.num_env=80"), "did you mean 'rollout.num_envs'"),
        (("run", "--set", "cluster.engine.reload_minutes=5"), "did you mean 'cluster.engine.reload_seconds'"),
        (("run", "--set", "rollout.num_envs=many"), "rollout.num_envs"),
        (("run", "--set", "curation.max_ahead=8"), "the trainer would wait forever"),
        (("run", "--set", "cluster.engine.gpu=h200"), "known: h100"),
        (("run", "--preset", "dart", "--set", "cluster.hosts.memory_gib=4.0"), "do not fit"),
        (("run", "--preset", "dartt"), "did you mean 'dart'"),
        (("run", "missing.toml"), "there is no configuration file missing.toml"),
        (("run", "--set", "rollout.num_envs"), "section.key=value"),
        (("compare", "coupled", "drat"), "did you mean 'dart'"),
        (("run", "--real-time", "--until-steady", "1%"), "run.until_steady (--until-steady) ends a simulation"),
        (("compare", "dart", "--until-steady", "2"), "'2' is no share between 0 and 1"),
        (("show", "nowhere"), "nowhere is not a folder"),
        (("run", "--set", "tasks.source=osworld"), "tasks.folder"),
        (
            ("run", "--preset", "dart", "--set", "tasks.source=osworld", "--set", "tasks.folder=x"),
            "`dartsim check` lists all",
        ),
    ],
)
def test_a_wrong_request_is_refused_before_anything_starts(dartsim, capsys, arguments, said):
    assert dartsim(*arguments) == 2
    assert said in " ".join(capsys.readouterr().err.split())
    assert not Path("runs").exists()


def test_a_folder_that_holds_a_run_is_not_overwritten(dartsim, capsys):
    assert dartsim("run", *SMALL, "--out", "here") == 0
    assert dartsim("run", *SMALL, "--out", "here") == 2
    assert "holds a run already" in capsys.readouterr().err


def test_ctrl_c_ends_cleanly_with_a_report_so_far(long_run, tmp_path):
    process = long_run("--preset", "dart")
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 130, said
    assert "interrupted after" in said
    summary = json.loads((tmp_path / "cut" / "summary.json").read_text())
    assert summary["interrupted"] is True
    assert 0 < summary["simulated_hours"] < 2000
    assert (tmp_path / "cut" / "report.html").is_file()


def test_help_shows_examples(dartsim, capsys):
    for command in ("run", "compare"):
        assert dartsim(command, "--help") == 0
        assert "Examples:" in capsys.readouterr().out
