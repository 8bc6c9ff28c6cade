"""The study of schedulers in small, its tables, and the page that quotes them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dartsim.config import presets
from dartsim.config.load import workloads
from experiments import schedulers
from experiments.clusters import Cluster
from experiments.scheduler_pictures import PICTURES
from experiments.scheduler_tables import best_rows, starved_rows, window_rows
from experiments.schedulers import (
    BOUNDS,
    HOURS,
    IDEAS,
    OURS,
    SCHEDULERS,
    SCHEDULING,
    at_bound,
    shares,
    without_spares,
)
from experiments.study import Options

PAGE = Path(__file__).parents[2] / "docs" / "schedulers.md"


SOME_IDEAS = ("all ideas", "ready first, not begun first")


@pytest.fixture(scope="module")
def figures(tmp_path_factory):
    """The experiment on two workloads for minutes of theirs."""
    target = tmp_path_factory.mktemp("schedulers") / "f.json"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schedulers, "QUICK", ("areal-eta0", OURS))
        patch.setattr(schedulers, "QUICK_HOURS", {"dart": 1.0, "laptop": 0.1})
        patch.setattr(schedulers, "WINDOW_QUICK_HOURS", 0.6)
        patch.setattr(schedulers, "IDEAS", {idea: IDEAS[idea] for idea in SOME_IDEAS})
        patch.setattr(Options, "sweep", lambda self, function, runs: [function(run.spec) for run in runs])
        schedulers.STUDY.run(["--quick", "--json", str(target)])
    return json.loads(target.read_text())


def test_the_experiment_compares_ours_with_the_best_other_and_the_bound(figures):
    found = figures["workloads"]["dart"]
    assert found["best_other"] == "areal-eta0"
    ours = found["schedulers"][OURS]
    trained = {name: own["figures"]["trained_turns_per_minute"]["mean"] for name, own in found["schedulers"].items()}
    assert found["ours_over_best_other"] == pytest.approx(trained[OURS] / trained["areal-eta0"], rel=1e-5)
    assert found["ours_over_bound"] == pytest.approx(
        trained[OURS] / ours["figures"]["bound_trained_turns_per_minute"]["mean"], rel=1e-5
    )
    alone = found["alone"]["figures"]["trained_turns_per_minute"]["mean"]
    assert found["alone_over_best_other"] == pytest.approx(alone / trained["areal-eta0"], rel=1e-5)
    signal = {name: own["figures"]["signal_turns_per_minute"]["mean"] for name, own in found["schedulers"].items()}
    by_signal = found["alone"]["figures"]["signal_turns_per_minute"]["mean"] / signal["areal-eta0"]
    assert found["alone_over_best_other_by_signal"] == pytest.approx(by_signal, rel=1e-5)
    assert found["unqueued"] is None
    unqueued = figures["workloads"]["laptop"]["unqueued"]
    turns = unqueued["figures"]["trained_turns_per_minute"]["mean"]
    assert unqueued["over_bound"] == pytest.approx(
        turns / unqueued["figures"]["bound_trained_turns_per_minute"]["mean"], rel=1e-5
    )
    assert [row["idea"] for row in figures["ideas"]] == [*SOME_IDEAS, "no spare desktops"]


def test_every_idea_is_another_configuration():
    made = [Cluster(OURS, 1.0, 0, changes, "dart").config.model_dump_json() for changes in IDEAS.values()]
    assert len(set(made)) == len(IDEAS)


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
        config = Cluster(OURS, 1.0, 0, changes, "dart").config
        curation = config.curation
        assert config.policy == Cluster("trl", 1.0, workload="dart").config.policy
        assert config.trainer.optimizer.pack == "turns"
        assert (curation.task_filter.min_mean, curation.task_filter.max_mean) == (0.0, 1.0)
        assert curation.pool.enabled == Cluster("trl", 1.0, workload="dart").config.curation.pool.enabled
    assert [Cluster(OURS, 1.0, 0, own, "dart").config.curation.staleness.max_staleness for own in BOUNDS.values()] == [
        *BOUNDS
    ]


def test_who_is_trained_on():
    table = {
        "easy": {"offered": 50, "judged": 50, "kept": 30, "trained": 8},
        "hard": {"offered": 50, "judged": 25, "kept": 5, "trained": 2},
    }
    found = shares({"by task difficulty": table})
    assert found == {"hard_share_offered": 0.5, "hard_share_usable": 0.25, "hard_share_trained": 0.2}
    assert set(shares({}).values()) == {None}


def test_every_table_and_figure_can_be_made(figures):
    full = {**figures, "workloads": {**figures["workloads"], "osworld": figures["workloads"]["laptop"]}}
    for head, rows in (best_rows(full), window_rows(full)):
        assert rows
        assert all(len(row) == len(head) for row in rows)
    pytest.importorskip("matplotlib")
    for picture in PICTURES.values():
        drawn = picture.draw(full)
        assert ">dart<" in drawn or "workload dart" in drawn


def test_who_starves_which_class_is_told():
    long = {"by": "length", "class": "long", "ratio": 0.5, "low": 0.3, "high": 0.7, "groups": 9, "starved": True}
    found = {"other": {"starved_classes": [long]}, OURS: {"starved_classes": []}}
    _, rows = starved_rows({"workloads": {"dart": {"schedulers": found}}})
    assert rows == [["`dart`", "`other`", "long (by length)", "0.50 (0.30 to 0.70)", "9"]]


def test_the_worth_of_dropping_screenshots_in_blocks_is_told_with_what_keeps_it_from_more(figures):
    head, rows = window_rows(figures)
    assert [row[:2] for row in rows] == [["32", "from 2 more requests"], ["32", "never"]]
    assert {row[-1] for row in rows} == {"+66%"}
    moving, staying = (dict(zip(head, row, strict=True)) for row in rows)
    for row in (moving, staying):
        assert float(row["prefix hits, one by one, %"]) < float(row["prefix hits, in blocks, %"])
        most = float(row["at most, %"])  # of the attempts that ended, with those of the warm-up
        assert float(row["prefix hits, in blocks, %"]) <= most + 2
        assert row["generated turns"].startswith("+")
    assert float(moving["prefix hits, in blocks, %"]) < float(staying["prefix hits, in blocks, %"])
    lost = [row["figures"]["prefix_lost_moved_share"]["mean"] for row in figures["windows"] if row["window"] == "block"]
    assert lost[0] > lost[1], "a session that moves leaves its prefix behind"


def test_every_idea_has_its_prefix_hits(figures):
    assert all(0.0 < row["figures"]["prefix_hit_share"]["mean"] < 1.0 for row in figures["ideas"])


def test_without_spares_the_desktops_are_as_many():
    trial = Cluster(OURS, 1.0, workload="dart")
    assert trial.config.rollout.warm_envs > 0
    other = without_spares(trial).config.rollout
    assert (other.num_envs, other.warm_envs) == (trial.config.rollout.num_desktops, 0)


def test_every_scheduler_and_every_workload_is_studied_and_has_its_card():
    assert set(HOURS) == set(workloads())
    assert set(SCHEDULERS) <= set(presets())
    page = PAGE.read_text("utf-8")
    for name in {*SCHEDULERS, "dart", "dart-released", *workloads()}:
        assert f"| `{name}` |" in page, f"docs/schedulers.md has no row for {name}"
