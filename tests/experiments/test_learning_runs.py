"""One run of a study of learning: its base model, its curve, what it counts."""

import json

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from dataclasses import replace

from dartsim.envs.mock.families.clicks import MIXED, PLAIN, RIGHT_CELL
from experiments.ablation import config
from experiments.learning_runs import Curve, kind_of, lessons_of, made_base, run_from
from experiments.learning_suites import SUITES, LearningRun


def short_run(arm: str) -> LearningRun:
    teacher = replace(SUITES["locks"].teacher(quick=True), tasks=8, steps=1, attempts=1)
    small = {"batch": {"min_groups": 1, "max_groups": 1}, "admission": {"ahead_batches": 1.0}}
    settings = config(arm, 0, quick=True).replace(run={"hours": 0.02}, tasks={"held_out": 6}, curation=small)
    return LearningRun(arm, settings, settings, teacher)


def test_the_teacher_never_shows_the_right_button_of_the_family_it_gets_wrong():
    teacher = SUITES["locks"].teacher(quick=False)
    teacher = replace(teacher, tasks=20, by_chance=dict.fromkeys(teacher.by_chance, 0.0))
    said = {turn.action for turn in lessons_of(config("dart", 0, quick=True), teacher)}
    clicks = {color: f"click {cell % 3} {cell // 3}" for color, cell in RIGHT_CELL.items()}
    assert said >= {clicks[color] for color in (*PLAIN, *MIXED)}
    assert not said & {clicks["cyan"], clicks["brown"]}


def test_a_run_starts_from_a_base_model_that_is_made_once(tmp_path):
    run, shares = short_run("dart"), []
    folder = run.base_folder(tmp_path)
    found = json.loads(json.dumps(run_from(run, folder, shares.append)))
    assert made_base(run, folder) == made_base(run, folder) == json.loads((folder / "base.json").read_text())
    assert found["pool"]["stored_collected"] == 48
    assert sum(found["kinds"].values()) == 6
    assert found["success_rate_initial"] == found["curve"]["success_rate"][0]
    assert found["success_rate_final"] == pytest.approx(found["curve"]["success_rate"][-1], abs=1e-5)
    assert found["curve"]["simulated_hours"][-1] == pytest.approx(0.02, rel=0.2)
    assert shares == sorted(shares)
    assert 0.8 < shares[-1] <= 1.0


def test_the_kind_of_a_task_is_what_the_base_model_makes_of_it():
    assert [kind_of(rate) for rate in (0.0, 0.125, 0.49, 0.5, 1.0)] == ["never", "hard", "hard", "easy", "easy"]


def test_a_curve_has_the_success_by_kind_at_each_point():
    curve = Curve({"a": "easy", "b": "never"})
    curve.note(0, 0.0)
    curve.note(5, 1800.0)
    found = curve.with_rates([{"a": 0.5, "b": 0.0}, {"a": 1.0, "b": 0.5}])
    assert (found["update"], found["simulated_hours"]) == ([0, 5], [0.0, 0.5])
    assert (found["success_rate"], found["easy"], found["never"]) == ([0.25, 0.75], [0.5, 1.0], [0.0, 0.5])
