"""The study of schedulers in small, its tables, and the page that quotes them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dartsim.config import presets
from dartsim.config.load import workloads
from experiments import schedulers
from experiments.common import run_experiment
from experiments.scheduler_tables import best_rows, bound_rows, idea_rows, trained_rows, workload_rows
from experiments.schedulers import (
    BOUNDS,
    HOURS,
    OURS,
    SCHEDULERS,
    SCHEDULING,
    Trial,
    at_bound,
    bound_with_filter,
    run_trial,
    shares,
    without_spares,
)

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
    alone = found["alone"]["figures"]["trained_turns_per_minute"]["mean"]
    assert found["alone_over_best_other"] == pytest.approx(alone / trained["areal-eta0"])
    assert {row["idea"] for row in figures["ideas"]} == {*schedulers.IDEAS, "no spare desktops"}


def test_at_a_bound_ours_keeps_to_it_and_meets_only_others_that_did(figures):
    (row,) = figures["workloads"]["dart"]["at_bounds"]
    assert (row["bound"], row["best_other"]) == (1, "areal-eta0")
    assert row["ours"]["figures"]["staleness_max"]["mean"] <= 1

    def made(turns, stalest):
        return {"figures": {"trained_turns_per_minute": {"mean": turns}, "staleness_max": {"mean": stalest}}}

    others = {"slow": made(10.0, 1), "fast": made(30.0, 3), OURS: made(50.0, 0)}
    found = [at_bound(bound, made(20.0, bound), others) for bound in (0, 1, 3)]
    assert [row["best_other"] for row in found] == [None, "slow", "fast"]
    assert [row["ours_over_best_other"] for row in found] == [None, 2.0, pytest.approx(2 / 3)]


def test_alone_ours_offers_all_tasks_alike_with_the_prompts_of_others():
    for changes in (SCHEDULING, *((*SCHEDULING, *own) for own in BOUNDS.values())):
        config = Trial(OURS, "dart", 1.0, 0, changes).config
        curation = config.curation
        assert config.cluster.engine.window == Trial("trl", "dart", 1.0).config.cluster.engine.window
        assert (curation.task_filter.min_mean, curation.task_filter.max_mean) == (0.0, 1.0)
        assert curation.attempts.further == 0
    assert [Trial(OURS, "dart", 1.0, 0, own).config.curation.staleness.bound for own in BOUNDS.values()] == [*BOUNDS]


def test_who_is_trained_on():
    tenths = {
        "0.0-0.1": {"offered": 40, "trained": 1},
        "0.2-0.3": {"offered": 10, "trained": 1},
        "0.3-0.4": {"offered": 50, "trained": 8},
    }
    by_length = {"short": {"offered": 50, "trained": 6}, "long": {"offered": 50, "trained": 4}}
    found = shares({"by task success rate": tenths, "by task length": by_length})
    assert found == {
        "hard_share_trained": 0.2,
        "hard_share_offered": 0.5,
        "least_by_length": pytest.approx(0.8),
        "greatest_by_length": pytest.approx(1.2),
    }
    assert set(shares({}).values()) == {None}


def test_every_table_can_be_made(figures):
    full = {**figures, "workloads": {**figures["workloads"], "osworld": figures["workloads"]["laptop"]}}
    made = (best_rows(full), bound_rows(full), trained_rows(full), workload_rows(full, "dart"), idea_rows(full))
    for head, rows in made:
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
