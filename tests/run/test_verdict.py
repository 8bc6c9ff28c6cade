"""The verdict after a run: what it names was made the bottleneck on purpose."""

import json
import re

import pytest

from dartsim.api import Result, load, simulate
from dartsim.config import load as load_config
from dartsim.core.errors import NothingTrained
from dartsim.core.registry import register
from dartsim.curation.rules.admission import AdmissionRule
from dartsim.observe import Listener
from dartsim.observe.rundir import STATUS
from dartsim.observe.states import DesktopState, EngineState
from dartsim.run.execute import execute
from dartsim.run.policies import Policy
from dartsim.run.verdict import too_few_attempts, verdict

SLOW_TRAINER = {"cluster.learner.fixed_seconds": 300.0, "run.hours": 4.0}


def told(scheduler: str = "areal-eta4", **changes) -> Result:
    settings = {"run.hours": 1.0, "run.max_segments": 0, **changes}
    return simulate(scheduler, on="laptop", overrides=settings)


@pytest.mark.parametrize(
    ("scheduler", "changes", "said"),
    [
        ("areal-eta4", SLOW_TRAINER, "Limited by the trainer"),
        ("areal-eta4", {}, "Limited by the desktops: they wait for replies"),
        ("areal-eta4", {"cluster.env.latency.step": 20.0}, "Limited by the desktops: they act too slowly"),
        (
            "areal-eta4",
            {"cluster.env.latency.boot": 300.0, "run.hours": 3.0},
            "Limited by the desktops: they start too slowly",
        ),
        ("coupled", {}, "Limited by taking turns"),
        (
            "areal-eta4",
            {"cluster.engine.model": "batch", "cluster.engine.batch_seconds": 30.0, "cluster.engine.max_batch": 1},
            "Limited by the engines",
        ),
        ("areal-eta4", {"cluster.engine.overhead_seconds": 60.0}, "Limited by what is between desktops and engines"),
        (
            "areal-eta4",
            {
                "trainer.wait_for_sync": True,
                "rollout.sync.mode": "restart",
                "rollout.sync.resume_seconds": None,
                "cluster.engine.reload_seconds": 900.0,
                "run.hours": 3.0,
            },
            "Limited by weight sync",
        ),
    ],
)
def test_what_was_made_the_bottleneck_is_named(scheduler, changes, said):
    assert told(scheduler, **changes).verdict.startswith(said)


def test_a_run_says_what_limits_it_while_it_goes_on(tmp_path):
    said = []

    def look(_):
        said.append(json.loads((tmp_path / "run" / STATUS).read_text())["verdict"])

    changes = ["run.hours=1.5", "cluster.learner.fixed_seconds=300.0", "rollout.num_envs=24"]
    execute(load_config("areal-eta4", overrides=changes), tmp_path / "run", [Listener(update_finished=look)])
    assert said[0] == "What limits it is not known before the first update."
    assert any(text.startswith("Limited by") for text in said[1:])


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


def verdict_of(desktops, engines):
    figures = {
        "failure": None,
        "num_updates": 3,
        "generated_turns_per_minute": 20.0,
        "trainer_shares": {"training": 0.1, "wait_data": 0.9, "wait_sync": 0.0, "wait_publish": 0.0},
        "desktop_shares": {state.name.lower(): 0.0 for state in DesktopState} | desktops,
        "engine_shares": {state.name.lower(): 0.0 for state in EngineState} | engines,
    }
    return verdict(load("dart"), figures)


def test_shares_of_a_real_run_say_that_its_desktops_start_too_slowly():
    """Engines that are idle 99.7 %, desktops that start 70 %: no model is needed."""
    said = verdict_of({"starting": 0.7, "acting": 0.2, "generating": 0.1}, {"idle": 0.997, "busy": 0.003})
    assert said.startswith(
        "Limited by the desktops: they start too slowly (70% of their time), and engines are idle 100%"
    )
    assert "rollout.warm_envs" in said


def test_engines_that_are_not_lent_do_not_count_as_busy():
    said = verdict_of({"acting": 0.1, "generating": 0.9}, {"off": 0.6, "idle": 0.1, "busy": 0.3})
    assert "keep engines busy only 75%" in said


@pytest.mark.parametrize(
    ("scheduler", "most"), [("areal-eta4", 64), ("coupled", 64), ("verl-buffer-wait", 128), ("dart-measured", None)]
)
def test_a_scheduler_that_cannot_feed_its_desktops_is_named_before_the_run(scheduler, most):
    assert too_few_attempts(load(scheduler)) is None
    many = {"rollout.num_envs": 1000, "cluster.hosts.count": 120}
    few = too_few_attempts(load(scheduler, overrides=many))
    assert (few is None) == (most is None)
    assert few is None or few.startswith(
        f"your batches cannot feed 1,000 desktops: the scheduler admits {most} attempts"
    )
    fed = load(
        scheduler, overrides={**many, "curation.batch.max_groups": 200, "curation.admission.ahead_batches": None}
    )
    assert scheduler == "areal-eta4" or too_few_attempts(fed) is None
