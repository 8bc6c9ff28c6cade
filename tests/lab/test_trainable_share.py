"""The closed forms of what may be trained on, and of what desktops can do, beside the parts that they stand for."""

import numpy as np
import pytest

from dartsim.config import load
from dartsim.config.sections.curation import TaskFilterConfig
from dartsim.curation import TaskFilter
from dartsim.lab.analytic_model import checks, predict
from dartsim.lab.bounds import around_seconds, desktop_bound, engine_bound, reply_tokens, sites
from dartsim.lab.jobs import Prices, simulated
from dartsim.lab.trainable_share import OneTask, _TaskLife, one_task, workload
from dartsim.lab.virtual import as_virtual, changed
from dartsim.run.prepare import prepare

OURS = {
    "curation.task_filter.max_mean": 0.99,
    "curation.task_filter.min_mean": 0.01,
    "curation.task_filter.window": 8,
    "curation.task_filter.revisit_after": 4,
}


NO_POOL = {"curation.pool.enabled": False}
"""Without stored successes, which make groups of failures usable, the filter matters most."""


def lab(preset, workload, hours=1.0, **settings):
    config = as_virtual(load(preset_name=preset, workload_name=workload))
    return changed(config, {"run.hours": hours, **settings})


@pytest.mark.parametrize(
    ("unjudged", "revisit_after", "offered"),
    [
        (0, 4, [1, 0, 0, 0, 0, 1, 0, 0]),
        (1, 2, [1, 1, 0, 0, 1, 1, 0, 0]),
        (0, None, [1, 0, 0, 0, 0, 0, 0, 0]),
    ],
)
def test_a_task_that_always_fails_is_passed_over_and_comes_back(unjudged, revisit_after, offered):
    life = _TaskLife(OneTask(8, 10.0, 0.0, 1.0, unjudged), revisit_after)
    assert [life.next_pass() for _ in range(8)] == offered


@pytest.mark.parametrize("rate", [0.0, 0.1, 0.5, 0.9, 1.0])
def test_a_life_is_what_the_filter_does_to_many_tasks(rate):
    """2,000 tasks of one success rate, 12 passes over them, a group of 8 attempts whenever one is offered."""
    prepared = prepare(lab("trl", "dart", **OURS))
    life, rng = _TaskLife(one_task(prepared, rate, 1.0), 4), np.random.default_rng(0)
    task_filter = TaskFilter(TaskFilterConfig(window=8, max_mean=0.99, min_mean=0.01, revisit_after=4))
    for _ in range(12):
        offered = [f"{number}" for number in range(2_000) if task_filter.offer(f"{number}")]
        assert len(offered) / 2_000 == pytest.approx(life.next_pass(), abs=0.04)
        for name in offered:
            task_filter.learn(name, (rng.random(8) < rate).astype(float).tolist())


def test_a_filter_is_worth_nothing_in_the_first_pass_and_more_later():
    """Groups are counted: the filter knows a task only once it has seen one."""
    plain, ours = (prepare(lab("trl", "dart", **settings)) for settings in ({}, OURS))
    first = workload(plain)
    for found, groups in ((ours, 0.0), (ours, 181.0), (plain, 5_000.0)):
        assert workload(found, groups) == pytest.approx(first)
    shares = [workload(ours, groups)[1] for groups in (181.0, 600.0, 5_000.0)]
    assert shares == sorted(shares)
    assert shares[-1] > 1.25 * first[1]


def test_easy_tasks_have_smaller_groups_where_the_rule_says_so():
    prepared = prepare(lab("dart", "dart"))
    assert [one_task(prepared, rate, 1.0).size for rate in (0.3, 0.7, 1.0)] == [8, 5, 2]


def test_a_plan_s_laws_know_the_task_filter():
    """On 32 tasks the filter has seen all of them within minutes; without it two fifths of the turns were usable."""
    config = lab("dartsim", "laptop", 0.7, **NO_POOL)
    found, figures = prepare(config), simulated(config, Prices())
    said = predict(found)
    off = {"curation.task_filter.max_mean": 1.0, "curation.task_filter.min_mean": 0.0}
    assert said.usable_share > 1.2 * predict(prepare(changed(config, off))).usable_share
    assert figures["trained_turns_per_minute"] == pytest.approx(said.trained_turns_per_minute, rel=0.25)
    held = {check.figure: check for check in checks(found, figures)}
    assert held["trained turns/min"].law == f"bottleneck: desktops, {said.usable_share:.0%} of turns usable"
    assert [check.alarm for check in held.values()] == [""] * len(held)


def test_with_a_pool_no_task_is_too_hard():
    with_pool, without = (prepare(lab("dartsim", "laptop", **settings)) for settings in ({}, NO_POOL))
    assert one_task(with_pool, 0.05, 1.0).skipped < 1e-3 < 0.5 < one_task(without, 0.05, 1.0).skipped
    assert one_task(with_pool, 0.99, 1.0).skipped > 0.5


def test_trained_turns_far_from_what_is_usable_are_an_alarm():
    config = lab("dartsim", "laptop", 0.2, **NO_POOL)
    found, figures = prepare(config), simulated(config, Prices())
    (check, *_) = checks(found, {**figures, "steady_turns_per_minute": 20.0})
    assert "below the bound" in check.alarm
    (check, *_) = checks(found, {**figures, "steady_turns_per_minute": 100.0})
    assert "above what the law allows" in check.alarm


def test_desktops_on_a_slow_host_make_what_its_cores_have_seconds_for():
    """Half a core for ten desktops: they make a seventh of what as many others do, and the bound says so."""
    config = lab("skyrl", "skewed-hosts")
    found, figures = prepare(config), simulated(config, Prices())
    assert [tuple(site) for site in sites(found)] == [(0.5, 1, 10), (32.0, 3, 28)]
    bound = desktop_bound(found, figures["turns_per_trajectory"])
    assert 0.9 * bound < figures["generated_turns_per_minute"] < 1.02 * bound
    even = prepare(changed(config, {"cluster.hosts.slow_count": 0}))
    assert bound < 0.8 * desktop_bound(even, figures["turns_per_trajectory"])


def test_a_lone_desktop_reaches_its_bound():
    """One slot, one engine, and a trainer and syncs that take no time: nothing is left to wait for."""
    free = {
        "rollout.num_envs": 1,
        "rollout.num_workers": 1,
        "cluster.learner.fixed_seconds": 0.0,
        "cluster.learner.kilotoken_seconds": 0.0,
        "cluster.engine.transfer_seconds": 0.0,
    }
    config = lab("skyrl", "laptop", 2.0, **free)
    found, figures = prepare(config), simulated(config, Prices())
    bound = desktop_bound(found, figures["turns_per_trajectory"])
    assert 0.96 * bound < figures["generated_turns_per_minute"] < 1.02 * bound
    timing = found.timing
    assert not timing.fresh_per_attempt
    assert around_seconds(found) > timing.setup.mean + timing.evaluate.mean, "every attempt boots a desktop"


def test_engines_are_bound_by_the_lengths_of_the_replies_that_are_set():
    prepared = prepare(lab("trl", "math"))
    assert 2_000.0 < reply_tokens(prepared) < 2_500.0  # the mean of 2,500, cut off at 28,672
    short = prepare(lab("trl", "math", **{"cluster.engine.reply_tokens": 104.0}))
    assert engine_bound(short, 1.0) > 10.0 * engine_bound(prepared, 1.0)
