import json

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from dartsim.envs.mock.families.clicks import MIXED, PLAIN, RIGHT_CELL
from dartsim.envs.mock.suites import mock_suite
from experiments.ablation import (
    ARMS,
    BOUNDS,
    PARTS,
    PUBLISHED,
    arms_table,
    base_model,
    base_table,
    config,
    interval,
    jobs,
    overrides,
    run_arm,
)
from experiments.ablation_pictures import CURVES, PICTURES, curves
from experiments.ablation_runs import Curve, kind_of, lessons


def test_every_arm_is_a_configuration_and_differs_from_every_other():
    made = {arm: config(arm, 0, 1).model_dump_json() for arm in ARMS}
    assert len(set(made.values())) == len(ARMS)
    for bound in BOUNDS:
        assert config("dart", 3, bound).curation.staleness.max_staleness == bound


def test_dart_has_every_part_and_decoupled_none():
    assert set(ARMS["dart"]) == set(PARTS)
    without = config("decoupled", 0).curation
    assert (without.attempts.rule, without.turn_limit.rule, without.selection.rule) == ("fixed", "fixed", "all")
    assert not without.pool.enabled
    assert config("decoupled", 0).trainer.objective.importance == "off"
    assert "curation.pool.collected_per_task=1" in overrides("+ pool", 1)


def test_coupled_waits_and_has_one_batch_ahead():
    settings = config("coupled", 0)
    assert settings.rollout.lockstep
    assert settings.trainer.wait_for_sync
    assert settings.curation.max_ahead == settings.curation.batch.max_groups * settings.curation.attempts.group_size


def test_no_run_is_made_twice():
    assert len(set(jobs(0))) == len(jobs(0)) == len(ARMS) + 6


def test_the_teacher_never_shows_the_right_button_of_the_family_it_gets_wrong(monkeypatch):
    monkeypatch.setattr("experiments.ablation_runs.LESSON_TASKS", 20)
    said = {turn.action for turn in lessons(config("dart", 0, quick=True), ["done"])}
    clicks = {color: f"click {cell % 3} {cell // 3}" for color, cell in RIGHT_CELL.items()}
    assert said >= {clicks[color] for color in (*PLAIN, *MIXED)}
    assert not said & {clicks["cyan"], clicks["brown"]}


def test_a_curve_tells_when_success_was_reached_between_two_evaluations():
    curve = Curve()
    curve.points = [{"turns": 0, "success_rate": 0.3}, {"turns": 100, "success_rate": 0.4}]
    assert curve.first("turns", 0.5) is None
    curve.points.append({"turns": 200, "success_rate": 0.6})
    assert curve.first("turns", 0.5) == 150
    assert curve.first("turns", 0.2) == 0


def test_an_arm_runs_from_its_base_model(tmp_path, monkeypatch):
    monkeypatch.setattr("experiments.ablation.QUICK_HOURS", 0.01)
    monkeypatch.setattr("experiments.ablation_runs.QUICK_STEPS", 1)
    monkeypatch.setattr("experiments.ablation_runs.LESSON_TASKS", 8)
    base_model(tmp_path, (0, True))
    run = json.loads(json.dumps(run_arm(tmp_path, ("dart", 0, 1, True))))
    assert {"arm", "seed", "success_rate_final", "turns_to_50_percent", "simulated_hours_to_50_percent"} <= run.keys()
    assert run["pool"]["stored_collected"] == 48
    assert set(run["by_kind_final"]) == {"easy", "hard", "never"}
    assert run["by_kind_initial"]["never"] <= run["success_rate_initial"]


def test_tables_have_a_row_for_every_arm_and_bound():
    run = {
        "success_rate_final": 0.5,
        "by_kind_final": {"easy": 1.0, "hard": 0.5, "never": 0.0},
        "turns_to_50_percent": None,
        "simulated_hours_to_50_percent": 1.0,
        "by_kind_initial": {"easy": 0.6, "hard": 0.2, "never": 0.0},
        "cut_turns": {"own": 10, "own_cut": 2, "stored": 4, "stored_cut": 3},
        "curve": {"turns": [0, 100, 200], "simulated_hours": [0.0, 0.1, 0.2], "success_rate": [0.3, 0.5, 0.7]},
        "staleness_mean": 0.0,
        "num_updates": 3,
        "importance": {},
    }
    figures = {
        "published": PUBLISHED,
        "arms": [{"arm": arm, "seed": seed, **run} for arm in ARMS for seed in range(2)],
        "staleness": [{"bound": bound, "seed": 0, **run} for bound in BOUNDS],
        "staleness_without_alignment": [{"bound": 8, "seed": 0, **run}],
    }
    head, rows = arms_table(figures)
    assert [row[0] for row in rows] == list(ARMS)
    assert all(len(row) == len(head) for row in rows)
    assert base_table(figures)[1][2][2] == "0 ± 0 %"
    pytest.importorskip("matplotlib")
    drawn = {name: picture.draw(figures) for name, picture in PICTURES.items()}
    assert all(arm in drawn["ablation-success"] for arm in ARMS)
    assert all(f">{part}<" in drawn["ablation-parts"] for part in PARTS)
    assert all(f">{arm}<" in drawn["ablation-curves"] for arm in CURVES)
    assert PUBLISHED["all"] > PUBLISHED["baseline"]


def test_a_curve_is_drawn_as_far_as_all_seeds_got(monkeypatch):
    axes = []
    monkeypatch.setattr("experiments.ablation_pictures.label_axes", lambda one, *words: axes.append(one))
    run = {"curve": {name: [0, 100] for name in ("turns", "simulated_hours")} | {"success_rate": [0.25, 0.75]}}
    far = {
        "curve": {name: [0, 100, 200] for name in ("turns", "simulated_hours")} | {"success_rate": [0.25, 0.75, 1.0]}
    }
    curves({"arms": [{"arm": arm, **one} for arm in CURVES for one in (run, far)]})
    drawn = axes[0].get_lines()[0]
    assert (drawn.get_xdata()[-1], drawn.get_ydata()[0], drawn.get_ydata()[-1]) == (100.0, 25.0, 75.0)


def test_the_interval_is_students():
    mean, half = interval([1.0, 2.0, 3.0])
    assert mean == 2.0
    assert half == pytest.approx(4.303 / 3**0.5)
    assert interval([1.0]) == (1.0, 0.0)


def test_tasks_fall_into_three_kinds():
    kinds = [kind_of(task) for task in mock_suite("locks", 6)]
    assert [kinds.count(kind) for kind in ("easy", "hard", "never")] == [2, 2, 2]
