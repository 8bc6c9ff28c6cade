"""The main job in small: a real model on a simulated cluster, and what can be done with it afterwards."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from PIL import Image

from dartsim.cli.live import site_of

pytest.importorskip("torch", reason="the main job trains a real model: needs the extra `train`")


SETTINGS = (
    "run.updates=3", "tasks.count=16", "tasks.held_out=8", "rollout.num_envs=8", "curation.batch.min_groups=4",
    "curation.batch.max_groups=4",
)  # fmt: skip
KEPT_TURNS = "SELECT attempt, num_turns, reward FROM trajectories WHERE turns IS NOT NULL AND num_turns > 0"
SHORT = tuple(word for setting in SETTINGS for word in ("--set", setting))


@pytest.fixture(scope="module")
def finished(dartsim, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short run's folder."""
    folder = tmp_path_factory.mktemp("main") / "run"
    assert dartsim("run", *SHORT, "--out", str(folder), "--json", str(folder.with_suffix(".json"))) == 0
    return folder


def test_the_main_job_is_the_default(finished: Path):
    figures = json.loads(finished.with_suffix(".json").read_text())
    assert figures["preset"] == "errands"
    assert figures["surrogate"] is False
    assert figures["num_updates"] == 3
    curve = json.loads((finished / "summary.json").read_text())["learning"]["held_out"]["success_rate"]
    assert [figures["success_rate_initial"], figures["success_rate_final"]] == curve


@pytest.mark.slow
def test_it_learns_tasks_of_several_turns_from_chance(dartsim, tmp_path):
    options = ("--set", "run.max_segments=0", "--set", "run.updates=60", "--set", "run.target_success=0.8")
    assert dartsim("run", *options, "--out", str(tmp_path / "run"), "--json", str(tmp_path / "figures.json")) == 0
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert figures["success_rate_initial"] < 0.15
    assert figures["success_rate_final"] > 0.7
    assert figures["turns_per_trajectory"] > 3.0


def test_its_page_shows_what_each_token_says(finished: Path):
    site = site_of([finished], finished.parent)
    columns = site.get([finished.name, "attempts"])
    kept = [n for n, has in zip(columns["attempt"], columns["has_turns"], strict=True) if has]
    for turn in site.get([finished.name, f"attempt/{kept[-1]}"])["turns"]:
        written = "".join(turn["tokens"])
        assert written.removesuffix("<|im_end|>") == turn["reply"] != ""
        assert len(turn["tokens"]) == len(turn["logprobs"]) == len(turn["entropies"])


def test_a_finished_run_is_evaluated_and_has_the_success_of_its_last_evaluation(finished: Path, dartsim, tmp_path):
    target = tmp_path / "figures.json"
    assert dartsim("eval", str(finished), "--out", str(tmp_path / "out"), "--json", str(target)) == 0
    figures = json.loads(target.read_text())
    assert figures["version"] == 3
    (budget,) = figures["budgets"]
    assert (budget["tasks"], budget["attempts"], budget["masked"]) == (8, 8, {})
    summary = json.loads((finished / "summary.json").read_text())
    assert budget["success_rate"] == pytest.approx(summary["success_rate_final"])


def test_attempts_are_exported(finished: Path, dartsim, tmp_path, capsys):
    with closing(sqlite3.connect(finished / "run.db")) as database:
        kept = database.execute(KEPT_TURNS).fetchall()
    number, turns, reward = next(row for row in kept if row[2] is not None)
    assert dartsim("show", str(finished), "--attempt", str(number), "--gif", str(tmp_path / "a.gif")) == 0
    assert f"reward {reward:g}" in capsys.readouterr().out
    with Image.open(tmp_path / "a.gif") as film:
        assert film.n_frames == turns
    assert dartsim("show", str(finished), "--osworld", str(tmp_path / "results")) == 0
    results = list((tmp_path / "results").glob("attempt-*/pyautogui/screenshot/*/*/*/traj.jsonl"))
    assert len(results) == len(kept)
    scores = [float(path.read_text()) for path in (tmp_path / "results").rglob("result.txt")]
    assert sorted(scores) == sorted(row[2] for row in kept if row[2] is not None)
    steps = [json.loads(line) for path in results for line in path.read_text().splitlines()]
    assert len(steps) == sum(row[1] for row in kept)
    assert (results[0].parent / "step_0.png").is_file()


def test_what_was_not_kept_is_not_exported(finished: Path, dartsim, tmp_path, capsys):
    for options in (["--gif", "a.gif"], ["--gif", "a.gif", "--attempt", "99999"], ["--osworld", str(finished)]):
        assert dartsim("show", str(finished), *options) == 2
        assert "--attempt N" in (text := capsys.readouterr().err) or "99999" in text or "is not empty" in text
    assert not Path("a.gif").exists()


@pytest.mark.slow
def test_the_main_job_is_repeated_by_its_seed(finished: Path, dartsim, tmp_path):
    target = tmp_path / "again.json"
    dartsim("run", *SHORT, "--out", str(tmp_path / "again"), "--json", str(target))
    first, again = (json.loads(path.read_text()) for path in (finished.with_suffix(".json"), target))
    assert again["event_hash"] == first["event_hash"]
    assert again["success_rate_final"] == first["success_rate_final"]
