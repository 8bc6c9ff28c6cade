"""Plans for given machines: what is searched, what is told of the plan, what one more of each resource gains."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from dartsim.config import from_tree, load, merge
from dartsim.core.errors import ConfigError
from dartsim.lab.jobs import Outcome, Prices
from dartsim.lab.machines import Machines, MachineSplit, Splits, read_hosts
from dartsim.lab.planning import MachinePlan, Planner, planned
from dartsim.lab.sweep import InProcess
from dartsim.lab.virtual import as_virtual

SMALL = Path(__file__).with_name("small.toml")


def small(**tables):
    return from_tree(merge(load(SMALL).model_dump(), tables))


def test_hosts_are_read():
    assert read_hosts("4x64GiB") == (4, 64.0, None)
    assert read_hosts("2x128gib x 32cores") == (2, 128.0, 32.0)
    for text in ("4 hosts", "0x64GiB", "4x64GiBx0cores"):
        with pytest.raises(ConfigError, match=f"with numbers above 0; got '{text}'"):
            read_hosts(text)


class Modeled:
    """A runner that answers from a formula: the trainer's GPUs or the desktops limit, and each seed has its luck."""

    def __init__(self, trainer: float = 5.0) -> None:
        self.trainer = trainer
        self.seeds: dict[str, tuple[int, ...]] = {}

    def run(self, function, jobs, on_progress=None):
        for place, job in enumerate(jobs):
            self.seeds[job.name] = self.seeds.get(job.name, ()) + job.seeds
            rollout, learner = job.config.rollout, job.config.cluster.learner
            by_part = {"trainer": self.trainer * learner.gpus, "desktops": 3.0 * rollout.num_envs}
            rate = min(by_part.values()) * (0.5 if rollout.sync.mode == "restart" else 1.0)
            found = {
                "steady_turns_per_minute": rate,
                "trained_turns_per_minute": rate,
                "staleness_mean": 0.0 if rollout.sync.mode == "drain" else 1.0,
                "bound_by": min(by_part, key=by_part.get),
                **job.prices.figures(job.config, rate),
            }
            by_seed = tuple({**found, "steady_turns_per_minute": rate * (1 + 0.001 * seed)} for seed in job.seeds)
            yield place, Outcome(figures=found, by_seed=by_seed)


@cache
def plain_plan() -> tuple[MachinePlan, Modeled]:
    return modeled(Machines(gpus=3, hosts=2, memory_gib=8.0))


def modeled(machines: Machines, trainer: float = 5.0, **tables):
    runner = Modeled(trainer)
    base = as_virtual(small(**tables))
    return Planner(base, machines, prices=Prices(2.0, 1.0), executor=runner, seeds=(0, 1)).plan(), runner


def test_a_plan_is_told_with_seeds_that_its_search_has_not_seen():
    made, runner = plain_plan()
    assert made.seeds == runner.seeds["the plan"] == (2, 3, 4)
    assert len(made.by_seed) == 3
    assert all(runner.seeds[extra.what] == made.seeds for extra in made.extras)
    assert {seeds for name, seeds in runner.seeds.items() if name.endswith("at a time")} == {(0, 1)}


def test_the_binding_constraint_is_the_resource_of_which_one_more_buys_most():
    made, _ = plain_plan()
    assert (made.split.workers, made.split.trainer) == (1, 2)
    assert made.binding == "trainer; one more trainer GPU gains most (+20.0%)"
    few, _ = modeled(Machines(gpus=8, hosts=1, memory_gib=4.0))
    assert few.binding == "desktops; one more host, with as many desktops gains most (+100.0%)"
    other = replace(made, figures={**made.figures, "bound_by": "engines"})
    assert other.binding.endswith("; by the bottleneck law alone: engines")


def test_machines_that_change_nothing_are_named():
    made, _ = modeled(
        Machines(gpus=8, hosts=1, memory_gib=4.0), 50.0, cluster={"learner": {"kilotoken_seconds": 0.008}}
    )
    (lean,) = (extra for extra in made.extras if extra.what.startswith("only "))
    assert lean.what == "only 1 + 1 GPUs and 1 host"
    assert lean.gain == pytest.approx(0.0)
    assert lean.figures["cost_per_hour"] == 2.0 * 2 + 1.0
    assert not lean.more


def test_spare_desktops_make_room_where_there_is_little():
    spares = {"rollout": {"warm_envs": 2}}
    few, _ = modeled(Machines(gpus=4, hosts=1, memory_gib=6.0), **spares)
    assert (few.split.num_envs, few.split.spares) == (3, 0)
    assert few.config.rollout.warm_envs == 0
    planner = Planner(
        as_virtual(small(**spares)), Machines(gpus=4, hosts=4, memory_gib=64.0), prices=Prices(), executor=Modeled()
    )
    assert {split.spares for split in planner.scan()} == {2}


def test_a_sync_that_is_no_faster_does_not_take_the_place_of_the_configurations_own():
    there = Machines(gpus=3, hosts=2, memory_gib=8.0)
    keep, _ = modeled(there, rollout={"sync": {"mode": "keep", "workers_at_a_time": 1}})
    assert keep.split.sync == "keep, one worker at a time"
    assert keep.reason == "as in the configuration; no other is 1% faster"
    restart, _ = plain_plan()  # dart-measured restarts, which halves the rate here
    assert restart.split.sync == "drain, one worker at a time"
    assert restart.reason == "the least staleness of those within 1%"


def test_ways_to_change_weights_that_a_scheduler_refuses_are_not_tried():
    splits = Splits(as_virtual(load(preset_name="areal-eta4")))
    assert splits.own == "keep, all at once"
    assert all(name.startswith("keep") for name in splits.syncs)
    coupled = Splits(as_virtual(load(preset_name="coupled")))
    assert coupled.own == "drain, all at once"
    split = MachineSplit(num_envs=8, spares=0, workers=2, trainer=6, sync=coupled.own)
    assert [one.sync for one in splits.with_syncs(split)] == ["keep, all at once", "keep, one worker at a time"]
    assert [one.sync for one in splits.with_syncs(replace(split, workers=1))] == ["keep, all at once"]
    assert coupled.config(split, Machines(8, 2, 64.0)).rollout.sync.workers_at_a_time == "all"


def test_runs_last_several_updates_and_not_many_more_turns_than_they_need():
    slow = as_virtual(small(cluster={"learner": {"fixed_seconds": 7200.0}}))
    planner = Planner(slow, Machines(gpus=3, hosts=2, memory_gib=8.0), prices=Prices(), executor=Modeled())
    assert planner.plan().config.run.hours >= 16.0
    fast = {"fixed_seconds": 0.1, "kilotoken_seconds": 0.0}
    parts = ("start", "boot", "setup", "step", "evaluate", "teardown", "settle_seconds", "evaluate_settle_seconds")
    instant = {"latency": dict.fromkeys(parts, 0.01)}
    engine = {"model": "batch", "overhead_seconds": 0.0}
    quick = as_virtual(small(cluster={"learner": fast, "env": instant, "engine": engine}))
    planner = Planner(quick, Machines(gpus=3, hosts=2, memory_gib=8.0), prices=Prices(), executor=Modeled())
    assert planner.plan().config.run.hours < 2.0


@pytest.mark.soak
def test_a_plan_uses_the_machines_and_says_what_more_would_buy():
    base = as_virtual(small(cluster={"learner": {"kilotoken_seconds": 0.5, "gpus": 1}}))
    machines = Machines(gpus=3, hosts=2, memory_gib=8.0, cores=8.0)
    made = Planner(base, machines, prices=Prices(), hours=1.0, seeds=(0,), executor=InProcess()).plan()
    split = made.split
    assert split.workers + split.trainer == 3
    assert 1 <= split.num_envs <= 8
    assert made.config.cluster.hosts.count == 2
    assert made.config.cluster.learner.kilotoken_seconds == pytest.approx(0.5 / split.trainer)
    by_what = {extra.what: extra for extra in made.extras}
    assert {"one more rollout GPU", "one more trainer GPU", "one more host, with as many desktops"} <= set(by_what)
    more = max((extra for extra in made.extras if extra.more), key=lambda extra: extra.gain)
    assert more.what in made.binding or more.gain < 0.01
    assert planned(base, made).rollout.num_envs == split.num_envs
    assert [rate for _, rate in made.others] == sorted((rate for _, rate in made.others), reverse=True)


@pytest.mark.parametrize(
    ("machines", "message"),
    [
        (Machines(gpus=1, hosts=1, memory_gib=8.0), "a plan needs 2 GPUs or more"),
        (
            Machines(gpus=4, hosts=4, memory_gib=1.0),
            "a desktop of 2 GiB does not fit on a host of 1 GiB; name larger hosts",
        ),
    ],
)
def test_machines_that_are_too_small_are_refused(machines, message):
    with pytest.raises(ConfigError, match=message):
        Planner(as_virtual(small()), machines, prices=Prices(), executor=InProcess())
