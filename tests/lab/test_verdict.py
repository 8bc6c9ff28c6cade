"""The verdict after a run: what it names was made the bottleneck on purpose, and what it says suffices is simulated."""

import re

import pytest

from dartsim.api import Result, load, simulate
from dartsim.core.errors import NothingTrained
from dartsim.core.registry import register
from dartsim.curation.rules.admission import AdmissionRule
from dartsim.lab.bounds import bounds
from dartsim.lab.verdict import verdict
from dartsim.rollout.routers.least_in_flight import LeastInFlight
from dartsim.run.policies import Policy
from dartsim.run.prepare import prepare

SLOW_TRAINER = {"cluster.learner.fixed_seconds": 300.0, "run.hours": 4.0}


def told(scheduler: str = "areal-eta4", **changes) -> Result:
    settings = {"run.hours": 1.0, "recorder.max_segments": 0, **changes}
    return simulate(scheduler, on="laptop", overrides=settings)


def test_a_slow_trainer_limits_and_what_suffices_does():
    run = told(**SLOW_TRAINER, **{"rollout.num_envs": 12})
    said = re.match(r"Limited by the trainer \((\d+)%\)\. About (\d+) of 12 desktops suffice\. Try ", run.verdict)
    assert said is not None, run.verdict
    assert int(said[1]) == round(100 * run.trainer_utilization)
    fewer = told(**SLOW_TRAINER, **{"rollout.num_envs": int(said[2])})
    assert fewer.trained_turns_per_minute >= 0.95 * run.trained_turns_per_minute


@pytest.mark.parametrize(
    ("scheduler", "changes", "said"),
    [
        ("areal-eta4", {}, "Limited by the desktops"),
        ("coupled", {}, "Limited by taking turns"),
        (
            "areal-eta4",
            {"cluster.engine.model": "batch", "cluster.engine.batch_seconds": 30.0, "cluster.engine.max_batch": 1},
            "Limited by the engines",
        ),
        ("areal-eta4", {"cluster.engine.control_seconds": 5.0}, "Limited by the control process"),
        (
            "areal-eta4",
            {
                "trainer.wait_for_sync": True,
                "rollout.sync.mode": "restart",
                "rollout.sync.cache": "kept",
                "cluster.engine.reload_seconds": 900.0,
                "run.hours": 3.0,
            },
            "Limited by weight sync",
        ),
    ],
)
def test_what_was_made_the_bottleneck_is_named(scheduler, changes, said):
    assert told(scheduler, **changes).verdict.startswith(said)


@register("policy", "verdict-gives-up")
class GivesUp(Policy):
    """Never solves a task."""

    def act(self, request):
        return "DONE"


def test_a_run_without_a_group_to_train_says_why_and_what_to_do():
    reason = "all_failed"
    with pytest.raises(NothingTrained) as failed:
        told(**{"tasks.source": "mock", "policy.agent.rule": "verdict-gives-up"})
    run = failed.value.result
    said = re.match(r"Nothing was trained: of ([\d,]+) attempts that ended, ([\d,]+) were dropped \(", run.verdict)
    assert said is not None, run.verdict
    ended, dropped = (int(number.replace(",", "")) for number in said.groups())
    assert 0 < dropped <= ended <= run.summary["attempts"]
    assert f"{run.summary['dropped'][reason]:,} {reason}" in run.verdict
    assert "). Every attempt of a group" in run.verdict
    assert run.verdict == run.summary["failure"] == str(failed.value)
    (alarm,) = (alarm for alarm in run.summary["alarms"] if alarm["name"] == "nothing_trained")
    assert (alarm["exit_code"], run.verdict) == (18, f"{alarm['found']}.")


@register("admission", "verdict-never")
class Never(AdmissionRule):
    """Never admits anything."""

    def blocked_by(self, counts):
        return "the moon is full"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"curation.admission.rule": "verdict-never"}, r"no attempt was admitted in 1 h\. Admission says: the moon"),
        ({"cluster.env.latency.step": 3200.0}, r"all \d+ attempts that ended were masked \(\d+ step timed out\)"),
        ({"cluster.env.latency.start": 1e6}, r"\d+ EnvStart|start_timeout: not ready after"),
        ({"run.hours": 0.005}, r"the run of \S+ h is too short: none of its \d+ attempts ended"),
        (
            {"run.hours": 0.01},
            r"the run of \S+ h is too short: no batch was full by its end \(the batch needs",
        ),
        ({"cluster.learner.fixed_seconds": 1e6}, r"the run of 1 h is too short: its first update had not finished"),
    ],
)
def test_the_cause_why_a_run_trained_nothing_is_named(changes, said):
    with pytest.raises(NothingTrained, match=said) as failed:
        told(**changes)
    assert "too hard or too easy" not in str(failed.value)


def test_a_rule_of_ones_own_is_asked_although_its_bounds_are_open():
    with pytest.raises(NothingTrained, match="the moon is full"):
        told("dart", **{"curation.admission.rule": "verdict-never"})


def test_more_desktops_are_named_by_number_where_they_help():
    changes = {"rollout.num_workers": 8, "cluster.hosts.cores": 64.0, "cluster.learner.kilotoken_seconds": 0.08}
    run = told(**changes)
    said = re.search(r"Limited by the desktops .* Try rollout\.num_envs=(\d+), which", run.verdict)
    assert said is not None, run.verdict
    more = told(**changes, **{"rollout.num_envs": int(said[1])})
    assert more.trained_turns_per_minute > 1.1 * run.trained_turns_per_minute


@register("router", "verdict-router")
class VerdictRouter(LeastInFlight):
    """A router that no closed form knows."""


def test_what_no_closed_form_knows_is_unknown():
    config = load("areal-eta4", on="laptop", router="verdict-router", overrides=SLOW_TRAINER)
    run = simulate(config)
    assert "suffice is unknown: no closed form knows rollout.routing.rule = verdict-router" in run.verdict
    prepared = prepare(config)
    modeled = {**run.summary, **bounds(prepared, run.summary, run.recorder.snapshots)}
    assert "suffice is unknown: components are real" in verdict(prepared, {**modeled, "bounds": None})
    waiting = {"trainer_shares": {**modeled["trainer_shares"], "training": 0.3}}
    desktops = {"desktop_shares": dict.fromkeys(modeled["desktop_shares"], 0.0) | {"generating": 1.0}}
    real = verdict(prepared, {**modeled, **waiting, **desktops, "bounds": None})
    assert real.startswith("Limited by desktops and engines (100% of the desktops' time in attempts); which of them")
