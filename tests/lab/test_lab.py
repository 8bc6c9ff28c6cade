"""The laboratory: spaces, jobs, studies, sensitivity, gains and closed forms, on a small cluster."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dartsim.config import from_tree, load, merge
from dartsim.config.load import check_setting, to_toml
from dartsim.core.errors import ConfigError, DartsimError, LearnerFault
from dartsim.lab.analytic_model import checks, predict
from dartsim.lab.bounds import TurnLoad, engine_bound, least_seconds
from dartsim.lab.jobs import Job, Outcome, Prices, Rung, means, outcomes, run_job, simulated, steady_turns_per_minute
from dartsim.lab.space import Choices, Range, read_space
from dartsim.lab.study import Study
from dartsim.lab.study_spec import StudySpec, difference, read_objective
from dartsim.lab.sweep import InProcess
from dartsim.lab.validation import neighbors, validate
from dartsim.lab.virtual import as_virtual, changed
from dartsim.run.prepare import prepare
from dartsim.sim.engine import FluidEngine
from dartsim.sim.environment import SimEnvironment
from dartsim.sim.gpu import PROFILES

SMALL = Path(__file__).with_name("small.toml")
SPACE = "rollout.num_envs=2..6,rollout.sync.mode=drain|keep|restart,cluster.engine.reload_seconds=1..100:log"


def small(**tables):
    return from_tree(merge(load(SMALL).model_dump(), tables))


def asked(**changes) -> StudySpec:
    plain = StudySpec(
        base=small(), space=read_space(SPACE), objectives=(read_objective("trained_turns_per_minute"),), batch=3, seed=5
    )
    return replace(plain, **changes)


# -- spaces


def test_a_space_is_read_from_text():
    assert read_space(
        "rollout.num_envs=20..80/10, rollout.sync.mode=drain|keep,curation.admission.ready_batches=0.5..2.5"
    ) == (
        Range("rollout.num_envs", 20, 80, 10),
        Choices("rollout.sync.mode", ("drain", "keep")),
        Range("curation.admission.ready_batches", 0.5, 2.5),
    )
    assert read_space("cluster.engine.reload_seconds=1..300:log")[0] == Range(
        "cluster.engine.reload_seconds", 1.0, 300.0, None, True
    )
    assert read_space("rollout.lockstep=true|false")[0] == Choices("rollout.lockstep", (True, False))


def test_a_space_is_read_from_a_file(tmp_path: Path):
    file = tmp_path / "space.toml"
    file.write_text(
        '[rollout]\nnum_envs = {low = 20, high = 80, step = 5}\nnum_workers = "2..8"\n'
        'sync.mode = ["drain", "keep"]\n[cluster.engine]\nreload_seconds = {low = 1, high = 300, log = true}\n'
    )
    assert read_space(str(file)) == (
        Range("rollout.num_envs", 20, 80, 5),
        Range("rollout.num_workers", 2, 8),
        Choices("rollout.sync.mode", ("drain", "keep")),
        Range("cluster.engine.reload_seconds", 1.0, 300.0, None, True),
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rollout.num_env=1..2", "unknown key 'rollout.num_env'; did you mean 'rollout.num_envs'?"),
        ("rollout=1..2", "rollout is a section, not a setting"),
        ("rollout.num_envs=0..4", "wanted greater than or equal to 1"),
        ("rollout.num_envs=4..2", "the first has to be the smaller one"),
        ("rollout.num_envs=2..4/9", "a step is above 0"),
        ("cluster.engine.reload_seconds=0..1:log", "ratios need numbers above 0"),
        ("run.hours=2..4", "run.hours cannot be tuned"),
        ("rollout.num_envs=2..4,run.seed=0..9", "run.seed cannot be tuned"),
        ("rollout.sync.mode=drain|stop", "rollout.sync.mode"),
        ("rollout.sync.mode=drain", "choices are two or more different values"),
        ("rollout.num_envs", "a dimension is written key=low..high"),
        ("rollout.num_envs=2..4,rollout.num_envs=3..5", "more than once"),
        ("missing.toml", "cannot be read"),
    ],
)
def test_a_space_that_cannot_be_is_refused(text, message):
    with pytest.raises(ConfigError) as error:
        read_space(text)
    assert message in str(error.value)


def test_a_word_for_absent_may_also_be_a_value_of_its_own(tmp_path: Path):
    check_setting("curation.max_ahead", "none")
    config = small()
    (tmp_path / "config.toml").write_text(to_toml(config))
    assert load(tmp_path / "config.toml") == config


@given(st.integers(2, 50), st.integers(1, 60), st.floats(0.0, 1.0))
def test_neighbors_lie_in_the_range_and_are_not_the_value(low, width, place):
    dimension = Range("rollout.num_envs", low, low + width)
    value = low + round(place * width)
    found = neighbors(dimension, value)
    assert 1 <= len(found) <= 2
    assert value not in found
    assert all(isinstance(number, int) and low <= number <= low + width for number in found)


# -- jobs


def test_a_job_gives_the_means_over_its_seeds():
    config = as_virtual(small())
    outcome = run_job(Job(name="two", config=config, seeds=(0, 1), prices=Prices(2.0, 3.0)))
    alone = [simulated(changed(config, {"run.seed": seed}), Prices(2.0, 3.0)) for seed in (0, 1)]
    assert outcome.by_seed == tuple(alone)
    rates = [figures["trained_turns_per_minute"] for figures in alone]
    assert outcome.figures["trained_turns_per_minute"] == pytest.approx(sum(rates) / 2)
    assert outcome.figures["staleness_max"] == max(figures["staleness_max"] for figures in alone)
    assert sum(outcome.figures["desktop_shares"].values()) == pytest.approx(1.0)
    assert outcome.figures["cost_per_hour"] == 2.0 * (2 + 2) + 3.0 * 4


def test_a_rung_gives_a_run_up_below_its_figure():
    config = as_virtual(small())
    seen = run_job(Job(name="all", config=config, rungs=(Rung(0.1), Rung(0.2)))).seen
    assert [hours for hours, _ in seen] == [0.1, 0.2]
    ended = run_job(Job(name="some", config=config, rungs=(Rung(0.1, seen[0][1] + 1e-6), Rung(0.2))))
    assert ended.given_up
    assert ended.figures == {}
    assert ended.seen == seen[:1]
    assert not run_job(Job(name="kept", config=config, rungs=(Rung(0.1, seen[0][1]),))).given_up


@pytest.mark.parametrize("figure", ["steady_turns_per_minute", "cost_per_1000_turns"])
def test_every_figure_of_a_rate_can_give_a_run_up(figure):
    config = as_virtual(small())
    sign = read_objective(figure).sign
    seen = run_job(Job(name="all", config=config, figure=figure, sign=sign, rungs=(Rung(0.2),))).seen
    assert len(seen) == 1
    least = seen[0][1] + 1e-6
    ended = run_job(Job(name="some", config=config, figure=figure, sign=sign, rungs=(Rung(0.2, least),)))
    assert ended.given_up


def test_a_rung_gives_nothing_up_of_which_it_knows_nothing():
    config = as_virtual(small())
    early = Job(name="early", config=config, figure="steady_turns_per_minute", rungs=(Rung(0.01, 1e9),))
    found = run_job(early)
    assert (found.given_up, found.seen) == (False, ())


def test_costs_are_of_the_rate_that_stands_beside_them():
    found = simulated(as_virtual(small()), Prices(2.5, 0.8))
    assert found["cost_per_1000_turns"] == pytest.approx(
        1000.0 * found["cost_per_hour"] / (60.0 * found["steady_turns_per_minute"])
    )


def test_rungs_change_nothing_of_a_run_that_goes_on():
    config = as_virtual(small())
    plain, looked_at = (
        run_job(Job(name="", config=config, rungs=rungs)).figures["event_hash"]
        for rungs in ((), (Rung(0.1), Rung(0.3)))
    )
    assert plain == looked_at


def test_a_job_that_fails_says_so(monkeypatch):
    config = as_virtual(small())

    def broken(*_, **__):
        raise LearnerFault("out of memory")

    monkeypatch.setattr("dartsim.lab.jobs.prepare", broken)
    assert "LearnerFault" in (run_job(Job(name="bad", config=config)).error or "")
    with pytest.raises(DartsimError, match="bad: LearnerFault"):
        outcomes(InProcess(), [Job(name="bad", config=config)])


def test_real_parts_are_refused_and_a_model_becomes_a_surrogate():
    with pytest.raises(ConfigError, match="dartsim cluster RUN"):
        as_virtual(changed(small(), {"backend.real_time": True}))
    assert as_virtual(load(preset_name="tiny")).policy.kind == "surrogate"


def test_the_steady_rate_counts_whole_updates_only():
    outcome = simulated(as_virtual(small()), Prices())
    assert outcome["steady_turns_per_minute"] == pytest.approx(outcome["trained_turns_per_minute"], rel=0.3)
    assert steady_turns_per_minute([], 0.0) is None
    assert means([{"a": 1, "b": None, "c": "x"}, {"a": 2, "b": 4.0, "c": "x"}]) == {"a": 1.5, "b": 4.0, "c": "x"}


# -- studies


def rows(study: Study):
    return [(trial.number, dict(trial.settings), trial.state, trial.values) for trial in study.trials()]


@pytest.mark.parametrize(
    "sampler", ["tpe", *(pytest.param(name, marks=pytest.mark.soak) for name in ("random", "qmc", "nsga2"))]
)
def test_a_study_goes_on_where_it_was_interrupted(tmp_path: Path, sampler):
    pytest.importorskip("optuna")
    if sampler == "qmc":
        pytest.importorskip("scipy")
    question = asked(sampler=sampler)
    whole = Study(question, tmp_path / "whole.db")
    whole.run(6, InProcess())

    class Interrupted(InProcess):
        def run(self, function, items, on_progress=None):
            yield next(super().run(function, items))
            raise KeyboardInterrupt

    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            Study(question, tmp_path / "parts.db").run(6, Interrupted())
    again = Study(question, tmp_path / "parts.db")
    again.run(6, InProcess())
    assert rows(again) == rows(whole)
    assert len(rows(whole)) == 6


def test_a_study_that_was_interrupted_between_two_writes_goes_on_quietly(tmp_path: Path, monkeypatch):
    optuna = pytest.importorskip("optuna")
    study = Study(asked(), tmp_path / "study.db")

    def interrupt(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(optuna.Study, "tell", interrupt)  # what rungs saw is written, the trial's end is not
        with pytest.raises(KeyboardInterrupt):
            study.run(3, Drawn())
    again = Study(asked(), tmp_path / "study.db")
    again.run(3, Drawn())  # a warning would be an error
    assert [trial.state for trial in again.trials()] == ["finished"] * 3


def test_the_first_trial_is_the_base_and_the_best_keeps_the_bounds(tmp_path: Path):
    pytest.importorskip("optuna")
    study = Study(asked(max_cost=4.0, space=read_space(SPACE + ",rollout.num_workers=1..3")), tmp_path / "study.db")
    told = []
    study.run(9, InProcess(), on_trial=told.append)
    first = study.trials()[0]
    assert first.settings == {
        "rollout.num_envs": 4,
        "rollout.sync.mode": "restart",
        "cluster.engine.reload_seconds": 20.0,
        "rollout.num_workers": 2,
    }
    assert sorted(trial.number for trial in told) == list(range(9))
    refused = [trial for trial in study.trials() if trial.state == "refused"]
    assert refused
    assert all("costs 5 an hour, more than 4" in trial.reason for trial in refused)
    best = study.best()
    assert best is not None
    assert best.settings["rollout.num_workers"] <= 2
    assert best.values[0] == max(trial.values[0] for trial in study.trials() if trial.feasible)


def test_a_staleness_bound_makes_trials_infeasible(tmp_path: Path):
    pytest.importorskip("optuna")
    study = Study(asked(max_staleness=-1.0), tmp_path / "study.db")
    study.run(3, InProcess())
    assert all(not trial.feasible and trial.state == "finished" for trial in study.trials())
    assert study.best() is None
    assert study.front() == []


def test_a_study_of_something_else_is_refused(tmp_path: Path):
    pytest.importorskip("optuna")
    Study(asked(), tmp_path / "study.db")
    with pytest.raises(ConfigError, match=r"\(--seed: 5 then, 6 now\); name another folder"):
        Study(asked(seed=6), tmp_path / "study.db")
    with pytest.raises(ConfigError, match=r"\(another configuration: run\.seed 0 then, 3 now\)"):
        Study(asked(base=small(run={"seed": 3})), tmp_path / "study.db")
    (tmp_path / "text.db").write_text("no database at all, but long enough to be taken for one" * 10)
    with pytest.raises(ConfigError, match="cannot be used as a study's database"):
        Study(asked(), tmp_path / "text.db")


class Drawn:
    """A runner whose figures are a formula of the settings."""

    def run(self, function, jobs, on_progress=None):
        for place, job in enumerate(jobs):
            size = job.config.rollout.num_envs
            turns = float(size) if job.config.rollout.sync.mode == "keep" else size / 2.0
            seen = tuple((rung.hours, turns) for rung in job.rungs)
            if any(rung.least is not None and turns < rung.least for rung in job.rungs):
                yield place, Outcome(seen=seen, given_up=True)
                continue
            figures = {
                "trained_turns_per_minute": turns,
                "staleness_max": 1,
                "cost_per_hour": float(size**2),
            }
            yield place, Outcome(figures=figures, by_seed=(figures,) * len(job.seeds), seen=seen)


def test_a_study_finds_the_best_and_gives_bad_trials_up(tmp_path: Path):
    pytest.importorskip("optuna")
    space = read_space("rollout.num_envs=2..40,rollout.sync.mode=drain|keep")
    study = Study(asked(space=space, batch=8, base=small(cluster={"hosts": {"count": 8}})), tmp_path / "study.db")
    study.run(40, Drawn())
    best = study.best()
    assert best is not None
    assert best.values[0] >= 34.0
    assert best.settings["rollout.sync.mode"] == "keep"
    states = [trial.state for trial in study.trials()]
    assert states[:8] == ["finished"] * 8  # nothing to be compared with
    assert states.count("given up") >= 2
    assert set(study.importances()) == {"rollout.num_envs", "rollout.sync.mode"}


def test_importance_is_for_what_is_wanted_of_several_objectives_too(tmp_path: Path):
    pytest.importorskip("optuna")

    class Top:
        """Only the best tenth depends on the sync: all else is the number of desktops."""

        def run(self, function, jobs, on_progress=None):
            for place, job in enumerate(jobs):
                size, keep = job.config.rollout.num_envs, job.config.rollout.sync.mode == "keep"
                figures = {"trained_turns_per_minute": 1000.0 if keep and size > 9 else float(size), "cost_per_hour": 1}
                yield place, Outcome(figures=figures, by_seed=(figures,))

    wanted = (read_objective("trained_turns_per_minute"), read_objective("cost_per_hour"))
    space = read_space("rollout.num_envs=2..12,rollout.sync.mode=drain|keep")
    both = Study(asked(objectives=wanted, space=space, sampler="random", batch=9), tmp_path / "both.db")
    one = Study(asked(space=space, sampler="random", batch=9), tmp_path / "one.db")
    for study in (both, one):
        study.run(9, Top())
    assert both.importances() == one.importances()


@pytest.mark.soak
def test_the_front_of_two_objectives_is_what_nothing_beats(tmp_path: Path):
    pytest.importorskip("optuna")
    wanted = (read_objective("trained_turns_per_minute"), read_objective("cost_per_hour"))
    space = read_space("rollout.num_envs=2..12,rollout.sync.mode=drain|keep")
    study = Study(asked(objectives=wanted, space=space, sampler="nsga2", batch=4), tmp_path / "study.db")
    study.run(24, Drawn())
    front = study.front()
    points = [trial.values for trial in study.trials()]
    for turns, cost in (trial.values for trial in front):
        assert not any(a >= turns and b <= cost and (a, b) != (turns, cost) for a, b in points)
    assert all(trial.settings["rollout.sync.mode"] == "keep" for trial in front)
    assert [trial.values[0] for trial in front] == sorted({trial.values[0] for trial in front}, reverse=True)


def test_each_knob_is_moved_alone_with_seeds_that_no_trial_had():
    space = read_space("rollout.num_envs=2..22,rollout.sync.mode=drain|keep")
    best = {"rollout.num_envs": 10, "rollout.sync.mode": "keep"}
    question = asked(space=space, base=small(cluster={"hosts": {"count": 8}}), seeds=(0, 1))
    found = validate(question, best, 4, Drawn())
    assert found.seeds == (2, 3, 4, 5)
    assert [knob.key for knob in found.knobs] == ["rollout.sync.mode", "rollout.num_envs"]
    assert [(moved.value, moved.change) for moved in found.knobs[0].moved] == [("drain", pytest.approx(-0.5))]
    assert [(moved.value, moved.change) for moved in found.knobs[1].moved] == [
        (7, pytest.approx(-0.3)),
        (13, pytest.approx(0.3)),
    ]
    (effect,) = found.effects
    assert (effect.first, effect.best, effect.change) == (2.0, 10.0, pytest.approx(4.0))  # 4 desktops, restart
    assert effect.half_width == pytest.approx(0.0)
    assert effect.better


class Lucky:
    """A runner in which settings mean nothing: every seed of every job has its own luck."""

    def run(self, function, jobs, on_progress=None):
        for place, job in enumerate(jobs):
            by_seed = []
            for seed in job.seeds:
                luck = np.random.default_rng([job.config.rollout.num_envs, seed]).normal()
                by_seed.append({"trained_turns_per_minute": 100.0 + 5.0 * luck, "staleness_max": seed % 2})
            yield place, Outcome(figures={**means(by_seed), "cost_per_hour": 1.0}, by_seed=tuple(by_seed))


def test_luck_of_the_search_does_not_outlast_fresh_seeds(tmp_path: Path):
    pytest.importorskip("optuna")
    space = read_space("rollout.num_envs=2..40")
    question = asked(space=space, base=small(cluster={"hosts": {"count": 8}}), prune=False, max_staleness=0.0, batch=16)
    study = Study(question, tmp_path / "study.db")
    study.run(16, Lucky())
    best = study.best()
    assert best is not None
    assert best.values[0] > 105.0  # nothing but the luckiest
    found = validate(question, best.settings, 5, Lucky())
    assert not found.effects[0].better
    assert found.effects[0].best < best.values[0] - 2.0
    assert found.broken == ("its largest staleness is 1, above the bound of 0",)


def test_a_bound_that_was_not_there_is_told_in_words(tmp_path: Path):
    pytest.importorskip("optuna")
    Study(asked(max_staleness=None), tmp_path / "study.db")
    with pytest.raises(ConfigError, match=r"\(--max-staleness: none then, 1\.0 now\); name another folder"):
        Study(asked(max_staleness=1.0), tmp_path / "study.db")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"seeds": (0, 1, 2)}, "--seeds: 1 then, 3 now"),
        ({"prune": False}, "--prune: on then, off (--no-prune) now"),
        (
            {"objectives": (read_objective("cost_per_hour"),)},
            "trained_turns_per_minute:max then, cost_per_hour:min now",
        ),
        ({"prices": Prices(2.5, 0.8)}, "1.0 a GPU hour and 0.0 a host hour then, 2.5 a GPU hour and 0.8 a host"),
    ],
)
def test_what_differs_from_an_earlier_question_is_told_as_it_was_asked(changes, words):
    old, new = asked().as_text(), asked(**changes).as_text()
    (name,) = (name for name in old if old[name] != new[name])
    assert words in difference(name, old[name], new[name])


def test_without_optuna_the_extra_is_named(monkeypatch, tmp_path: Path):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(ConfigError, match=r"Optuna, which is not installed: pip install .*\[lab\]"):
        Study(asked(), tmp_path / "study.db")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("trained_turns", "did you mean 'trained_turns_per_minute'?"),
        ("env_utilization:up", "FIGURE:max or FIGURE:min"),
    ],
)
def test_an_unknown_objective_is_refused(text, message):
    with pytest.raises(ConfigError) as error:
        read_objective(text)
    assert message in str(error.value)


# -- closed forms


@given(
    profile=st.sampled_from(sorted(PROFILES)),
    prompt=st.integers(100, 12_000),
    cached=st.floats(0.0, 0.95),
    images=st.integers(0, 4),
    reply=st.integers(20, 200),
    together=st.integers(1, 24),
)
def test_no_simulated_engine_is_faster_than_its_bound(profile, prompt, cached, images, reply, together):
    gpu, env = PROFILES[profile], SimEnvironment()
    engine, ended = FluidEngine(env, gpu), []
    hit = int(prompt * cached)

    def again(job):
        ended.append(env.now)
        if len(ended) <= 3 * together:
            engine.submit(prompt, hit, images, reply, again)

    for _ in range(together):
        engine.submit(prompt, hit, images, reply, again)
    env.run()
    new = prompt - hit
    load = TurnLoad(new, images, prompt + reply / 2.0, new * (hit + new / 2.0), reply)
    assert ended[-1] >= len(ended) * least_seconds(gpu, load, together) * 0.98


@pytest.mark.parametrize("name", ["dart-measured", pytest.param("dartsim", marks=pytest.mark.soak)])
def test_the_closed_form_is_near_the_simulation(name):
    config = changed(as_virtual(load(preset_name=name)), {"run.hours": 2.0})
    found, figures = prepare(config), simulated(config, Prices())
    said = predict(found)
    assert figures["steady_turns_per_minute"] == pytest.approx(said.trained_turns_per_minute, rel=0.2)
    assert said.bound_by == figures["bound_by"] == "trainer"
    assert engine_bound(found, figures["turns_per_trajectory"]) > figures["generated_turns_per_minute"]
    assert [check.figure for check in checks(found, figures) if check.alarm] == []


@pytest.mark.parametrize("name", ["areal-eta0", pytest.param("coupled", marks=pytest.mark.soak)])
def test_one_batch_at_a_time_is_no_alarm(name):
    config = changed(as_virtual(load(preset_name=name)), {"run.hours": 3.0})
    found, figures = prepare(config), simulated(config, Prices())
    rows = {check.figure: check for check in checks(found, figures)}
    assert [check.alarm for check in rows.values() if check.alarm] == []
    assert rows["trained turns/min"].law.endswith("; one batch at a time")
    assert rows["trained turns/min"].low < predict(found).trained_turns_per_minute < rows["trained turns/min"].high
    slower = {**figures, "steady_turns_per_minute": 0.9 * rows["trained turns/min"].low}
    assert any("below the bound" in check.alarm for check in checks(found, slower))


def test_a_figure_that_breaks_a_law_is_an_alarm():
    config = as_virtual(small())
    found, figures = prepare(config), simulated(config, Prices())
    assert [check.alarm for check in checks(found, figures) if check.figure == "generated turns/min"] == [""]
    wrong = {**figures, "generated_turns_per_minute": 10_000.0, "staleness_mean": 7.0}
    alarms = {check.figure for check in checks(found, wrong) if check.alarm}
    assert {"generated turns/min", "mean staleness, versions"} <= alarms


def test_a_learner_that_takes_no_time_is_no_division_by_zero():
    config = changed(as_virtual(load(preset_name="dart-measured")), {"cluster.learner.fixed_seconds": 0.0})
    said = predict(prepare(changed(config, {"cluster.learner.kilotoken_seconds": 0.0})))
    assert said.bound_by != "trainer"
    assert 0.0 < said.trained_turns_per_minute < float("inf")


def test_two_ranges_that_differ_read_differently():
    near, other = (read_space(f"rollout.limits.start_seconds={low}..2000001")[0] for low in (1_000_000, 1_000_001))
    assert near.text() != other.text()
    assert read_space(f"{near.key}={near.text()}")[0] == near
