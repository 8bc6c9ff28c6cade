"""The command line, as a user types it: results, files, errors, exit codes."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from xml.etree import ElementTree

from dartsim.config import to_toml
from dartsim.run.execute import execute

SIZES = ("rollout.num_envs=8", "rollout.num_workers=2", "curation.batch.min_groups=1")  # it trains in half an hour
SMALL = ("dart", "--hours", "0.5", *(word for size in SIZES for word in ("--set", size)))


def test_a_run_leaves_its_folder_and_prints_nothing_but_its_figures(dartsim, capsys):
    assert dartsim("run", *SMALL, "--json", "-") == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures["preset"] == "dart"
    assert 0.5 <= figures["simulated_hours"] < 0.51  # the last desktops are torn down in the end
    assert {path.name for path in Path(figures["run_dir"]).iterdir()} >= {"config.toml", "run.db", "states.bin"}


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
    assert dartsim("run", "mine.toml", *SMALL[1:]) == 0
    assert capsys.readouterr().out.splitlines()[0].split()[-1] == "mine"
    assert json.loads(Path("runs/mine-seed0/summary.json").read_text())["preset"] == "dart"
    assert dartsim("show", "runs/mine-seed0") == 0
    assert capsys.readouterr().out.startswith("mine, seed 0: finished")
    assert dartsim("run", "runs/mine-seed0/config.toml", "--seed", "1") == 0
    assert Path("runs/mine-seed1").is_dir()
    assert dartsim("run", "mine.toml", *SMALL[1:], "--set", "run.name=other") == 0
    assert Path("runs/other-seed0").is_dir()


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
    steady, folder = figures["steady"], figures["run_dir"]
    assert steady["reached"]
    assert steady["hours"] == figures["simulated_hours"] < 11.0
    assert dartsim("run", folder) == 2
    capsys.readouterr()
    assert dartsim("run", folder, "--hours", f"{steady['hours'] + 0.2}", "--json", "-") == 0
    again = json.loads(capsys.readouterr().out)
    assert not again["steady"]["reached"]
    assert steady["hours"] < again["simulated_hours"] < steady["hours"] + 0.3


def rank(row):
    return row["rank"]


def test_a_comparison_ranks_its_schedulers(dartsim):
    arguments = ("compare", "coupled", "dart", *SMALL[1:], "--out", "both", "--json", "rows.json")
    assert dartsim(*arguments) == 0
    rows = json.loads(Path("rows.json").read_text())
    assert [row["preset"] for row in rows] == ["coupled", "dart"]
    assert all(row["updates"] > 0 for row in rows)
    assert all(0.0 < row["prefix_hit_share"] < 1.0 for row in rows)
    assert [row["verdict"][:7] for row in rows] == ["unknown", "best"]
    document = json.loads(Path("both/study.json").read_text())
    assert [row["arm"] for row in document["ranking"]] == [row["scheduler"] for row in sorted(rows, key=rank)]
    assert [arm["name"] for arm in document["arms"]] == ["coupled", "dart"]
    for arm, row in zip(document["arms"], rows, strict=True):
        rate = arm["lines"]["Trained turns/min"]
        assert max(rate["y"]) > row["trained_turns_per_minute"] > min(rate["y"])
    assert Path("both/study.html").stat().st_size < 2_000_000
    assert dartsim("show", "both", "--html", "page.html", "--json", "runs.json") == 0
    assert {row["id"] for row in json.loads(Path("runs.json").read_text())} == {"coupled-seed0", "dart-seed0"}
    assert Path("page.html").stat().st_size > 50_000
    assert dartsim(*arguments) == 0
    assert dartsim(*arguments, "--hours", "0.1") == 2, "another comparison's"


def test_a_comparison_over_seeds_shows_means_and_on_a_workload_nothing_published(dartsim, capsys):
    arguments = ("--processes", "1", "--on", "laptop", "--hours", "0.2", "--seeds", "2")
    assert dartsim("compare", "coupled", *arguments, "--out", "both", "--json", "rows.json") == 0
    rows = json.loads(Path("rows.json").read_text())
    lines = [Path(f"both/coupled-seed{seed}/metrics.jsonl").read_text().splitlines() for seed in (0, 1)]
    times = [[json.loads(line)["time"] / 3600.0 for line in own] for own in lines]
    number = min(map(len, times))
    assert number > 1
    assert [row["hours_to_updates"] for row in rows] == [found[number - 1] for found in times]
    text, printed = Path("both/study.json").read_text("utf-8"), capsys.readouterr().out
    trained = [row["trained_turns_per_minute"] for row in rows]
    mean = f"{sum(trained) / 2:.1f} ±{12.7062 * abs(trained[0] - trained[1]) / 2:.1f}"
    assert mean in printed
    (table,) = json.loads(text)["tables"]
    assert mean in table["rows"][0]
    assert "published" not in text


def test_a_twin_is_modeled_whatever_is_set_of_the_real_parts(dartsim):
    real = ("--set", "backend.desktops=desktop", "--set", "backend.learner=local", "--hours", "0.1")
    assert dartsim("run", "desktop", "--twin", *real, "--until-steady", "3%", "--out", "twin") in (0, 18)
    config = tomllib.loads(Path("twin/config.toml").read_text())
    assert {config["backend"][part] for part in ("desktops", "workers", "learner")} == {"sim"}
    assert (config["run"]["hours"], config["run"]["until_steady"]) == (0.1, 0.03)


def test_unchanged_runs_of_earlier_and_interrupted_comparisons_are_copied(dartsim, monkeypatch):
    arguments = ("compare", "coupled", "dart-measured", "--on", "laptop", "--hours", "0.5", "--processes", "1")
    made, interrupted_after = [], 1

    def counted(config, path, *rest, **options):
        if len(made) == interrupted_after:
            path.mkdir()
            (path / "config.toml").write_text(to_toml(config))
            raise KeyboardInterrupt
        made.append(path.name)
        return execute(config, path, *rest, **options)

    monkeypatch.setattr("dartsim.run.execute.execute", counted)
    assert dartsim(*arguments) == 130
    interrupted_after = None
    for more in ((), ("--seeds", "2", "--json", "rows.json")):
        assert dartsim(*arguments, *more) == 0
    assert sorted(made) == [f"{name}-seed{seed}" for name in ("coupled", "dart-measured") for seed in range(2)]
    rows = [(row["scheduler"], row["seed"]) for row in json.loads(Path("rows.json").read_text())]
    assert rows == [(name, seed) for name in ("coupled", "dart-measured") for seed in range(2)]
    assert dartsim(*arguments, "--set", "rollout.warm_envs=1") == 0
    assert len(made) == 6
    monkeypatch.setattr("dartsim.lab.sweep._code_hash", lambda: "changed")
    second = Path("runs/compare-coupled-dart-measured-2")
    for same in (second, second.resolve()):
        assert dartsim(*arguments, "--out", str(same)) == 0
        assert len(made) == 8


def test_seeds_are_added_until_the_order_is_decided(dartsim, capsys):
    arguments = ("compare", "areal-eta4", "dartsim", "--on", "laptop", "--hours", "0.2", "--processes", "1")
    assert dartsim(*arguments, "--until-ranked") == 0
    assert "the order is decided" in capsys.readouterr().out


def test_files_are_compared_with_presets_on_the_same_cluster(dartsim):
    Path("mine.toml").write_text('preset = "dart-measured"\n[rollout]\nnum_envs = 9\nrouting.rule = "round_robin"\n')
    Path("cluster.toml").write_text("[rollout]\nnum_envs = 4\nnum_workers = 2\n[cluster.hosts]\ncount = 1\n")
    Path("latencies.toml").write_text("[cluster.env.latency]\nstep = 2.5\n")
    arguments = ("--on", "cluster.toml+latencies.toml", "--hours", "0.2")
    arguments += ("--out", "both", "--json", "rows.json")
    assert dartsim("compare", "mine.toml", "areal-eta4", *arguments) == 18, "too short to train anything"
    assert [row["scheduler"] for row in json.loads(Path("rows.json").read_text())] == ["mine", "areal-eta4"]
    summaries = [json.loads(Path(f"both/{name}-seed0/summary.json").read_text()) for name in ("mine", "areal-eta4")]
    assert [made["config"]["rollout"]["num_envs"] for made in summaries] == [4, 4]
    assert [made["config"]["cluster"]["env"]["latency"] for made in summaries] == [{"step": 2.5}] * 2
    Path("folder").mkdir()
    Path("folder/mine.toml").write_text("")
    assert dartsim("compare", "mine.toml", "folder/mine.toml") == 2, "two of one name"


def test_a_comparison_fails_if_a_condition_holds(dartsim):
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
        "--junit",
        "g.xml",
    )
    worse = ("--fail-if", "generated_turns_per_minute < 0.9 * dart")
    fine = ("--fail-if", "generated_turns_per_minute > 9 * dart")
    assert dartsim(*arguments, "--seeds", "2", "--max-seeds", "2", *worse, *fine) == 1
    suite = ElementTree.parse("g.xml").getroot()
    assert (suite.get("tests"), suite.get("failures")) == ("2", "1")
    quick = ("--processes", "1", "--on", "laptop", "--hours", "0.5")
    assert dartsim("compare", "coupled", "dart", *quick, "--max-seeds", "2", *fine, "--json", "rows.json") == 0
    assert {row["seed"] for row in json.loads(Path("rows.json").read_text())} == {0, 1}, "a gate takes two seeds"
