"""Studies: spaces, the simulations of a trial, what is proposed, stopped early, refused and compared at the end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from dartsim.config import from_tree, load, merge
from dartsim.core.errors import ConfigError, DartsimError, LearnerFault
from dartsim.lab.gate import ERROR
from dartsim.lab.jobs import (
    PERIODS,
    EarlyStop,
    Job,
    Outcome,
    Prices,
    RememberedJobs,
    TrialStopped,
    _trained_per_minute,
    read_objective,
    run_job,
    simulate_figures,
)
from dartsim.lab.space import base_point, points, read_space
from dartsim.lab.study import Study, StudySpec, fresh_comparison
from dartsim.lab.sweep import InProcess, Results
from dartsim.lab.virtual import as_virtual, with_settings

SMALL = Path(__file__).with_name("small.toml")
SPACE = "rollout.num_envs=2..6,rollout.sync.mode=drain|keep|restart,cluster.engine.reload_seconds=1..100:log"
TRAINED = read_objective("trained_turns_per_minute")


def small(**tables):
    return from_tree(merge(load(SMALL).model_dump(), tables))


def asked(**changes) -> StudySpec:
    plain = StudySpec(base=small(), space=read_space(SPACE), objectives=(TRAINED,), seed=5)
    return replace(plain, **changes)


def many_hosts():
    return small(cluster={"hosts": {"count": 8}})


# -- spaces


def test_a_space_is_read_from_text():
    assert read_space(
        "rollout.num_envs=20..84/10, rollout.sync.mode=drain|keep,curation.admission.ready_batches=0.5..2.5,"
        "cluster.engine.reload_seconds=1..300:log,rollout.lockstep=true|false"
    ) == {
        "rollout.num_envs": IntDistribution(20, 80, step=10),
        "rollout.sync.mode": CategoricalDistribution(("drain", "keep")),
        "curation.admission.ready_batches": FloatDistribution(0.5, 2.5),
        "cluster.engine.reload_seconds": FloatDistribution(1.0, 300.0, log=True),
        "rollout.lockstep": CategoricalDistribution((True, False)),
    }


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("rollout.num_env=1..2", "did you mean 'rollout.num_envs'?"),
        ("rollout.num_envs=0..4", "rollout.num_envs"),
        ("cluster.engine.reload_seconds=0..1:log", "cluster.engine.reload_seconds"),
        ("rollout.num_envs=2..4,run.seed=0..9", "run.seed cannot be tuned"),
        ("rollout.sync.mode=drain|stop", "rollout.sync.mode"),
        ("rollout.sync.mode=drain", "two or more"),
        ("rollout.num_envs", "key=low..high"),
        ("rollout.num_envs=2..4,rollout.num_envs=3..5", "more than once"),
        ("missing.toml", "missing.toml"),
    ],
)
def test_a_space_that_cannot_be_is_refused(text, named):
    with pytest.raises(ConfigError, match=named.replace("?", r"\?")):
        read_space(text)


def test_a_finite_space_has_its_points_and_the_base_is_one_of_them():
    space = read_space("rollout.num_envs=2..6/2,rollout.sync.mode=drain|restart")
    found = list(points(space))
    assert len(found) == 6
    assert base_point(small(), space) in found
    assert points(read_space(SPACE)) is None
    assert base_point(small(), read_space("rollout.num_envs=5..9")) == {}


# -- the simulations of a trial


def job(config=None, **changes) -> Job:
    return Job(
        **{"name": "job", "config": config or as_virtual(small()), "seeds": (0,), "prices": Prices(2.0, 3.0)}
        | {"objective": TRAINED, **changes}
    )


def test_a_job_gives_the_means_over_its_seeds_and_what_they_cost():
    outcome = run_job(job(seeds=(0, 1)))
    alone = [
        simulate_figures(with_settings(as_virtual(small()), {"run.seed": seed}), Prices(2.0, 3.0)) for seed in (0, 1)
    ]
    assert outcome.by_seed == alone
    for name in ("trained_turns_per_minute", "steady_turns_per_minute"):
        assert outcome.figures[name] == pytest.approx(sum(row[name] for row in alone) / 2)
    assert outcome.figures["staleness_max"] == max(row["staleness_max"] for row in alone)
    assert outcome.figures["cost_per_hour"] == 2.0 * (2 + 2) + 3.0 * 4
    assert alone[0]["cost_per_1000_turns"] == pytest.approx(
        1000.0 * alone[0]["cost_per_hour"] / (60.0 * alone[0]["steady_turns_per_minute"])
    )


@pytest.mark.parametrize(
    "figure", ["trained_turns_per_minute", "steady_turns_per_minute", "cost_per_1000_turns", "env_utilization"]
)
def test_a_job_that_is_worse_than_the_best_trial_is_stopped_and_looking_changes_nothing(figure):
    objective = read_objective(figure)
    looked_at = run_job(job(objective=objective, best={}))
    assert looked_at.figures["event_hash"] == run_job(job()).figures["event_hash"]
    seen = looked_at.seen
    assert len(seen) > 5

    def beside(gain):
        best = {period: value + gain for period, value in seen.items()}
        return run_job(job(objective=objective, best=best, error=0.05))

    stopped = beside(0.01)
    assert not stopped.by_seed
    assert len(stopped.seen) == 5
    assert beside(0.0).by_seed
    assert beside(-0.01).by_seed


def test_periods_of_several_seeds_are_compared_and_a_figure_that_is_no_mean_stops_nothing():
    seen = run_job(job(seeds=(0, 1), best={})).seen
    assert {period // PERIODS for period in seen} == {0, 1}
    alone = run_job(job(seeds=(1,), best={})).seen
    assert {period - PERIODS: value for period, value in seen.items() if period >= PERIODS} == alone
    assert run_job(job(objective=read_objective("staleness_max"), best={}, error=0.05)).seen == {}


def test_a_rate_counts_an_update_where_its_turns_were_made():
    """30 turns in minutes 1 and 2, 60 in minute 3; nothing is known before the first update and after the last."""
    updates = [SimpleNamespace(time=60.0 * minute, num_turns=turns) for minute, turns in ((1, 9), (3, 60), (4, 60))]
    found = _trained_per_minute(SimpleNamespace(updates=updates), [0.0, 60.0, 180.0, 210.0, 240.0, 300.0])
    assert found == {1: 30.0, 3: 60.0}


NUM_STUDIES, NUM_TRIALS, BATCH = 300, 40, 8
PLAIN = job()
NOISE = 0.07
"""Standard deviation of a period's value; the best settings have a mean of 1. Simulations have 0.01 to 0.08."""


def drawn_study(seed: int, stops) -> tuple[bool, float]:
    """Simulate a study with known means; return whether its best trial was stopped, and the simulated share."""
    rng = np.random.default_rng(seed)
    means = 1.0 - np.abs(rng.normal(0.0, 0.1, NUM_TRIALS))
    values = means[:, None] + NOISE * rng.normal(size=(NUM_TRIALS, PERIODS))
    finished: list[int] = []
    lost, periods = False, 0
    for number in range(NUM_TRIALS):
        if number % BATCH == 0:
            known = [values[other] for other in finished]
        after = stops(values[number], known) or PERIODS
        periods += after
        if after == PERIODS:
            finished.append(number)
        elif number == means.argmax():
            lost = True
    return lost, periods / (NUM_TRIALS * PERIODS)


def by_test(values, known) -> int | None:
    """Return after which period the test stops a trial, as a study asks it."""
    best = max(known, key=np.mean, default=())
    early = EarlyStop(replace(PLAIN, best=dict(enumerate(best)), error=ERROR / max(1, len(known))))
    for period, value in enumerate(values[:-1]):
        try:
            early.compare(period, value)
        except TrialStopped:
            return period + 1
    return None


def by_median(values, known) -> int | None:
    """Return after which period Optuna's median pruner stops a trial; it waits for eight others."""
    if len(known) < 8:
        return None
    sizes = np.arange(1, PERIODS)
    so_far = np.maximum.accumulate(np.cumsum(values[:-1]) / sizes)
    worse = so_far < np.median(np.cumsum(np.array(known)[:, :-1], 1) / sizes, 0)
    return int(worse.argmax()) + 1 if worse.any() else None


def test_the_best_settings_are_stopped_at_most_as_often_as_stated():
    """The tutorial quotes these figures."""
    figures = {}
    for stops in (by_test, by_median):
        lost, shares = zip(*(drawn_study(seed, stops) for seed in range(NUM_STUDIES)), strict=True)
        figures[stops] = 100.0 * float(np.mean(lost)), 100.0 * float(np.mean(shares))
    (lost, share), (lost_by_median, share_by_median) = figures.values()
    assert lost <= 100.0 * ERROR < lost_by_median
    page = " ".join(Path("docs/tune-a-scheduler.md").read_text().split())
    assert (
        f"in {NUM_STUDIES} simulated studies of {NUM_TRIALS} trials with known means, {lost:.1f} % lost the best one, "
        f"and {share:.0f} % of the hours were simulated (with Optuna's median pruner {lost_by_median:.1f} % and "
        f"{share_by_median:.0f} %)"
    ) in page


def test_a_study_compares_with_its_best_trial_at_an_error_shared_by_all_finished_ones():
    runner = Drawn()
    study = Study(asked(space=read_space("rollout.num_envs=2..9"), base=many_hosts()))
    study.run(8, runner, batch=4)
    assert [made.best for made in runner.made[:4]] == [{}] * 4
    best = max(made.config.rollout.num_envs for made in runner.made[:4])
    assert all(made.best == {0: best / 2.0} and made.error == ERROR / 4 for made in runner.made[4:])
    plain = Drawn()
    Study(asked(prune=False)).run(2, plain)
    assert all(made.best is None for made in plain.made)


def test_a_job_that_fails_says_so(monkeypatch):
    def broken(*_, **__):
        raise LearnerFault("out of memory")

    monkeypatch.setattr("dartsim.lab.jobs.prepare", broken)
    with pytest.raises(DartsimError, match="job: LearnerFault"):
        run_job(job())
    with pytest.raises(DartsimError, match="LearnerFault"):
        fresh_comparison(asked(), {"base": {}}, 2, InProcess())


def test_real_parts_are_refused_and_a_model_becomes_a_surrogate():
    with pytest.raises(ConfigError, match=r"backend\.desktops"):
        Study(asked(base=with_settings(small(), {"backend.real_time": True})))
    assert as_virtual(load("tiny")).policy.kind == "surrogate"


# -- studies


class Drawn:
    """A runner whose figures are a formula of the settings and a little luck of the seed."""

    def __init__(self, luck: float = 0.0) -> None:
        self.luck = luck
        self.made: list[Job] = []

    def run(self, function, jobs, on_progress=None) -> Iterator[tuple[int, Outcome]]:
        for place, one in enumerate(jobs):
            self.made.append(one)
            size, sync = one.config.rollout.num_envs, one.config.rollout.sync.mode
            rows = []
            for seed in one.seeds:
                drawn = self.luck * np.random.default_rng([size, seed]).normal()
                turns = float(size) * (1.0 if sync == "keep" else 0.5) + drawn
                rows.append(
                    {"failure": None, "trained_turns_per_minute": turns, "staleness_max": seed % 2}
                    | {"cost_per_hour": float(size**2)}
                )
            yield place, Outcome(by_seed=rows, seen={0: rows[0]["trained_turns_per_minute"]})


def settings(study: Study):
    return [(dict(trial.settings), trial.state, trial.values) for trial in study.trials()]


def test_a_study_goes_on_where_it_was_interrupted_and_is_the_same_again(tmp_path: Path):
    whole = Study(asked(), tmp_path / "whole.log")
    whole.run(6, InProcess(), batch=3)
    again = Study(asked())
    again.run(6, InProcess(), batch=3)
    assert settings(again) == settings(whole)

    class Interrupted(InProcess):
        def run(self, function, items, on_progress=None):
            yield next(super().run(function, items))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Study(asked(), tmp_path / "parts.log").run(6, Interrupted(), batch=3)
    parts = Study(asked(), tmp_path / "parts.log")
    assert len(parts.trials()) == 1
    parts.run(6, Drawn(), batch=3)
    tried = [trial.settings for trial in parts.trials()]
    assert len(tried) == 6
    assert all(tried.count(point) == 1 for point in tried)
    assert all(point in tried for point, _, _ in settings(whole)[:3]), "the interrupted batch is finished"


def test_outcomes_of_another_study_are_not_simulated_again(tmp_path):
    class Counted(InProcess):
        made = 0

        def run(self, function, items, on_progress=None):
            self.made += len(items)
            return super().run(function, items, on_progress)

    runner, found = Counted(), []
    for _ in range(2):
        study = Study(asked())
        known = RememberedJobs(runner, Results(tmp_path / "results.jsonl"))
        study.run(4, known)
        fresh = fresh_comparison(study.spec, {"best": study.best().settings, "as it is": {}}, 2, known)
        found.append((settings(study), [trial.figures for trial in study.trials()], fresh.figures))
    assert found[0] == found[1]
    assert runner.made == 8


def test_no_point_is_tried_twice_and_a_small_space_is_used_up():
    """The refused points count: no budget is spent on them again."""
    space = read_space("rollout.num_envs=2..4,rollout.sync.mode=drain|keep,cluster.learner.gpus=1|9")
    study = Study(asked(space=space, max_cost=10.0))
    runner = Drawn()
    study.run(50, runner)
    tried = [trial.settings for trial in study.trials()]
    assert len(tried) == 12
    assert all(tried.count(point) == 1 for point in tried)
    refused = [trial for trial in study.trials() if trial.state == "refused"]
    assert {trial.settings["cluster.learner.gpus"] for trial in refused} == {9}
    assert all(trial.reason == "costs 11 an hour, more than 10" for trial in refused)
    assert len(runner.made) == len(tried) - len(refused)


def test_the_first_trial_is_the_base_and_the_best_is_the_best_feasible_one():
    study = Study(asked(space=read_space("rollout.num_envs=2..22,rollout.sync.mode=drain|restart"), base=many_hosts()))
    told = []
    study.run(12, Drawn(), on_trial=told.append)
    first = study.trials()[0]
    assert first.settings == {"rollout.num_envs": 4, "rollout.sync.mode": "restart"}
    assert sorted(trial.number for trial in told) == [trial.number for trial in study.trials()]
    assert study.best().values[0] == max(trial.values[0] for trial in study.trials())
    assert study.best().values[0] >= 9.0
    assert set(study.importances()) == {"rollout.num_envs", "rollout.sync.mode"}
    bounded = Study(asked(max_staleness=-1.0))
    bounded.run(3, Drawn())
    assert all(not trial.feasible and trial.state == "finished" for trial in bounded.trials())
    assert bounded.best() is None


def test_a_study_of_something_else_is_refused(tmp_path: Path):
    Study(asked(), tmp_path / "study.log")
    for changes, said in (
        ({"seed": 6}, "seed: 5 then, 6 now"),
        ({"base": small(run={"seed": 3})}, "run.seed: 0 then, 3 now"),
        ({"max_staleness": 1.0}, "max_staleness: None then, 1.0 now"),
        ({"seeds": 3}, "seeds: 1 then, 3 now"),
        ({"prices": Prices(2.5)}, "prices: "),
        ({"objectives": (read_objective("cost_per_hour"),)}, "objectives: "),
    ):
        with pytest.raises(ConfigError, match=said.replace(".", r"\.")):
            Study(asked(**changes), tmp_path / "study.log")
    (tmp_path / "text.log").write_text("no journal at all\n" * 10)
    with pytest.raises(ConfigError, match=r"text\.log"):
        Study(asked(), tmp_path / "text.log")


def test_the_front_of_two_objectives_is_what_nothing_beats():
    wanted = (TRAINED, read_objective("cost_per_hour"))
    study = Study(asked(objectives=wanted, space=read_space("rollout.num_envs=2..6,rollout.sync.mode=drain|keep")))
    study.run(10, Drawn())
    front = study.front()
    for turns, cost in (trial.values for trial in front):
        others = [trial.values for trial in study.trials()]
        assert not any(a >= turns and b <= cost and (a, b) != (turns, cost) for a, b in others)
    assert [trial.settings["rollout.num_envs"] for trial in front] == [6, 5, 4, 3, 2]
    assert study.best() == front[0]
