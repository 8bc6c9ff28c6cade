"""The study of schedulers in small, its tables, and the page that quotes them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dartsim.config import presets
from dartsim.config.load import workloads
from experiments import schedulers
from experiments.common import run_experiment
from experiments.scheduler_tables import best_rows, idea_rows, trained_rows, workload_rows
from experiments.schedulers import HOURS, OURS, SCHEDULERS, Trial, bound_with_filter, run_trial, without_spares

PAGE = Path(__file__).parents[2] / "docs" / "schedulers.md"


@pytest.fixture(scope="module")
def figures(tmp_path_factory):
    """The experiment on two workloads for minutes of theirs."""
    target = tmp_path_factory.mktemp("schedulers") / "f.json"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schedulers, "QUICK", ("areal-eta0", OURS))
        patch.setattr(schedulers, "QUICK_HOURS", {"dart": 1.0, "laptop": 0.1})
        patch.setattr(schedulers, "run_trials", lambda wanted, console: [run_trial(trial) for trial in wanted])
        run_experiment(
            "schedulers", schedulers.measure, schedulers.show, about="", argv=["--quick", "--json", str(target)]
        )
    return json.loads(target.read_text())


def test_the_experiment_compares_ours_with_the_best_other_and_the_bound(figures):
    found = figures["workloads"]["dart"]
    assert found["best_other"] == "areal-eta0"
    ours = found["schedulers"][OURS]
    trained = {name: own["figures"]["trained_turns_per_minute"]["mean"] for name, own in found["schedulers"].items()}
    assert found["ours_over_best_other"] == pytest.approx(trained[OURS] / trained["areal-eta0"])
    assert found["ours_over_bound"] == pytest.approx(trained[OURS] / ours["bound_with_filter"])
    assert {row["idea"] for row in figures["ideas"]} == {*schedulers.IDEAS, "no spare desktops"}


def test_every_table_can_be_made(figures):
    full = {**figures, "workloads": {**figures["workloads"], "osworld": figures["workloads"]["laptop"]}}
    for head, rows in (best_rows(full), trained_rows(full), workload_rows(full, "dart"), idea_rows(full)):
        assert rows
        assert all(len(row) == len(head) for row in rows)


def test_the_bound_leaves_out_what_the_filter_drops():
    summary = {
        "bounds": {"trainer": 40.0, "desktops": 100.0, "engines": 90.0},
        "dropped": {"all_failed": 3, "all_solved": 4, "stale": 1},
        "trained_trajectories": 2,
    }
    assert bound_with_filter(summary) == pytest.approx(27.0)
    assert bound_with_filter({**summary, "dropped": {}}) == 40.0
    assert bound_with_filter({"dropped": {}, "bounds": None}) is None


def test_without_spares_the_desktops_are_as_many():
    trial = Trial(OURS, "dart", 1.0)
    assert trial.config.rollout.warm_envs > 0
    other = without_spares(trial).config.rollout
    assert (other.num_envs, other.warm_envs) == (trial.config.rollout.num_desktops, 0)


def test_every_scheduler_and_every_workload_is_studied_and_has_its_card():
    assert set(HOURS) == set(workloads())
    assert set(SCHEDULERS) <= set(presets())
    page = PAGE.read_text("utf-8")
    for name in {*SCHEDULERS, "dart", "dart-released", *workloads()}:
        assert f"| `{name}` |" in page, f"docs/schedulers.md has no row for {name}"
