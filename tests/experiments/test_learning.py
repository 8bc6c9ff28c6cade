"""What studies of learning share: resumable runs, paired intervals, curves."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from dartsim.lab.sweep import InProcess
from experiments.ablation import config
from experiments.learning import learning_sweep, paired
from experiments.learning_suites import SUITES, LearningRun, code_version
from experiments.long_job import ARMS, bounds, curve_points, difference_table
from experiments.long_job import config as job_config
from experiments.study import Options, interval


def make_run(arm: str, seed: int) -> LearningRun:
    return SUITES["locks"].run(arm, config(arm, seed, quick=True), quick=True)


def curve(arm, seed, rates, turns=(0, 100, 200)):
    hours = [0.0, 0.1, 0.2][: len(rates)]
    counted = list(turns)[: len(rates)]
    own = {"simulated_hours": hours, "turns": counted, "trained_turns": counted, "success_rate": rates}
    return {"arm": arm, "seed": seed, "curve": own}


def test_a_study_that_ended_goes_on_and_makes_a_run_again_only_if_it_changed(tmp_path, monkeypatch):
    made, bases, spoken = [], [], io.StringIO()
    monkeypatch.setattr(
        "experiments.learning._make_base", lambda folder, run: bases.append(run.base_folder(folder)) or 0.0
    )

    def make(folder, run, report):
        if len(made) == 2:
            raise KeyboardInterrupt
        report(0.5)
        made.append((run.arm, run.seed))
        return {"success_rate_final": run.seed / 10.0}

    monkeypatch.setattr("experiments.learning._make_run", make)
    monkeypatch.setattr("dartsim.lab.sweep.executor_for", lambda **where: _Here())
    options = Options(quick=True, seeds=2, console=Console(file=spoken), results=tmp_path / "runs.jsonl")
    runs = [make_run(arm, seed) for seed in range(2) for arm in ("dart", "decoupled")]
    with pytest.raises(SystemExit) as end:
        learning_sweep(options, "x", [*runs, runs[0]])
    assert end.value.code == 130
    assert "the same command makes the runs that are not in" in spoken.getvalue()
    assert len(set(bases)) == 2, "the arms of a seed share its base model"
    made.clear()
    found = learning_sweep(options, "x", [*runs, runs[0]])
    assert made == [("dart", 1), ("decoupled", 1)]
    assert [(run["arm"], run["seed"], run["success_rate_final"]) for run in found] == [
        ("dart", 0, 0.0), ("decoupled", 0, 0.0), ("dart", 1, 0.1), ("decoupled", 1, 0.1),
    ]  # fmt: skip
    made.clear()
    learning_sweep(options, "x", [replace(runs[0], code="another version"), runs[1]])
    assert made == [("dart", 0)]


class _Here:
    def __enter__(self):
        return InProcess()

    def __exit__(self, *error):
        return None


def test_the_version_of_the_code_is_a_digest_of_the_package(monkeypatch, tmp_path):
    assert code_version() == code_version()
    (tmp_path / "learning_x.py").write_text("x = 1")
    monkeypatch.setattr("experiments.learning_suites.__file__", str(tmp_path / "learning.py"))
    other = code_version.__wrapped__()
    (tmp_path / "learning_x.py").write_text("x = 2")
    assert len({code_version(), other, code_version.__wrapped__()}) == 3


def test_differences_are_by_seed_and_as_far_as_both_got():
    runs = [
        curve("a", 0, [0.2, 0.4, 0.6]),
        curve("a", 1, [0.2, 0.4, 0.6]),
        curve("a", 2, [0.0, 1.0]),
        curve("b", 1, [0.2, 0.2, 0.2], turns=(0, 50, 100)),
        curve("b", 0, [0.2, 0.3, 0.4]),
    ]
    found = paired(runs, "a", "b", "simulated_hours")
    mean, half = interval([0.2, 0.4])
    assert (found["mean"], found["half_width"], found["seeds"]) == (pytest.approx(mean), pytest.approx(half), 2)
    assert found["over_mean"] == pytest.approx(0.15, abs=0.01)
    assert paired(runs, "a", "b", "turns")["mean"] == pytest.approx(0.2), "seed 1 is compared at 100 turns"
    assert paired(runs, "a", "c", "turns")["mean"] is None
    assert paired(runs, "a", "b", "turns", "never")["seeds"] == 0


@pytest.mark.parametrize("suite", SUITES)
def test_the_schedulers_of_the_long_job_share_everything_but_scheduling(suite):
    made = {arm: job_config(suite, arm, 3, quick=False) for arm in ARMS}
    for section in ("tasks", "cluster"):
        assert len({repr(getattr(one, section)) for one in made.values()}) == 1, section
    optimizers = {repr(one.trainer.optimizer.replace(pack="turns")) for one in made.values()}
    assert len(optimizers) == 1, "how turns are packed changes no gradient"
    assert len({one.rollout.num_envs + one.rollout.warm_envs for one in made.values()}) == 1
    assert made["coupled"].rollout.lockstep
    assert not made["dart"].rollout.lockstep
    assert made["dart"].curation.selection.rule == "high_entropy"


def test_the_long_job_compares_at_equal_hours_and_samples():
    runs = [curve("dartsim", 0, [0.2, 0.6, 0.8]), curve("dart", 0, [0.2, 0.4, 0.5], turns=(0, 50, 100))]
    assert bounds({"mean": 0.3, "half_width": 0.1}) == pytest.approx({"difference": 0.3, "low": 0.2, "high": 0.4})
    none = {"difference": None, "low": None, "high": None}
    assert bounds(paired(runs, "dartsim", "coupled", "turns")) == none
    assert [point["success_rate"] for point in curve_points(runs[0])] == [0.2, 0.6, 0.8]
    assert [point["generated_turns"] for point in curve_points(runs[1])] == [0, 50, 100]
    rows = difference_table({"runs": [{"suite": "long", **run} for run in runs]})[1]
    assert rows[0] == ["long: over `dart` at equal hours", "+30 ± 0", "–", "1"]
    assert rows[3][1:] == ["–", "–", "0"]
