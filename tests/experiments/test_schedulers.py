"""The study of schedulers in small, and what its tables and pictures read from the arms."""

from __future__ import annotations

from dataclasses import replace

import pytest

from experiments.arms import Cluster, arms_of, studies
from experiments.schedulers import OURS, over_best_within, run_scheduler, without_spares

ARMS = arms_of(studies()["schedulers"])


def declared(family, **wanted):
    return [arm for arm in ARMS if arm.family == family and arm.names.items() >= wanted.items()]


def test_a_run_has_what_schedulers_are_compared_by():
    (arm,) = declared("schedulers", workload="dart", scheduler=OURS)
    found = run_scheduler(replace(arm, hours=1.0), 0)
    assert {name for name in studies()["schedulers"]["figures"] if found.get(name) is None} <= {
        "signal_turns_per_minute"
    }
    assert 0.0 < found["trained_turns_per_minute"] <= 1.05 * found["bound_trained_turns_per_minute"]
    assert found["event_hash"]


def test_at_a_bound_ours_meets_only_others_that_kept_to_it():
    def made(scheduler, turns, stalest, **more):
        figures = {"trained_turns_per_minute": {"mean": turns}, "staleness_max": {"mean": stalest}}
        return {"family": "schedulers", "workload": "dart", "scheduler": scheduler, "figures": figures, **more}

    others = [made("slow", 10.0, 1), made("fast", 30.0, 3), made(OURS, 50.0, 0)]
    ours = [made(None, 20.0, bound, family="alone", bound=str(bound)) for bound in (1, 3)]
    assert [over_best_within({"arms": others}, one) for one in ours] == [2.0, pytest.approx(2 / 3)]


def test_alone_ours_offers_all_tasks_alike_with_the_prompts_of_others():
    other = Cluster("trl", 1.0, workload="dart").config
    for arm in declared("alone", workload="dart"):
        config = arm.cluster(0).config
        assert config.policy == other.policy
        assert config.trainer.optimizer.pack == "turns"
        assert (config.curation.task_filter.min_mean, config.curation.task_filter.max_mean) == (0.0, 1.0)
        assert config.curation.pool.enabled == other.curation.pool.enabled
        if arm.names["bound"] != "own":
            assert config.curation.staleness.max_staleness == int(arm.names["bound"])


def test_without_spares_the_desktops_are_as_many():
    trial = Cluster(OURS, 1.0, workload="dart")
    assert trial.config.rollout.warm_envs > 0
    other = without_spares(trial).config.rollout
    assert (other.num_envs, other.warm_envs) == (trial.config.rollout.num_desktops, 0)
