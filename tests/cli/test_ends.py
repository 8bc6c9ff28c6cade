"""How commands end that give no figure: a run that trains nothing, a gate that is undecided, a rule that raises."""

from __future__ import annotations

import json
from xml.etree import ElementTree

import pytest

from dartsim.core.registry import register
from dartsim.curation.rules.admission import AdmissionRule
from dartsim.rollout.routers import Router

NEVER = ("--set", "curation.admission.rule=ends-never")
SHORT = ("--on", "laptop", "--hours", "0.1")


@register("admission", "ends-never")
class Never(AdmissionRule):
    """Never admits anything."""

    def blocked_by(self, counts):
        return "the moon is full"


@register("router", "ends-raises")
class Raises(Router):
    """Has a bug."""

    def pick(self, last, group=0):
        return self.worker_of[group]


def test_a_run_that_trains_nothing_ends_with_its_code_and_one_sentence(dartsim, tmp_path, capfd):
    assert dartsim("run", "dart", *SHORT, *NEVER, "--out", str(tmp_path / "run"), "--json", "-") == 18
    shown = capfd.readouterr()
    assert "alarm: nothing_trained since 0.0 s: Nothing was trained: no attempt was admitted" in shown.err
    assert "the moon is full" in json.loads(shown.out)["failure"]
    status = json.loads((tmp_path / "run" / "status.json").read_text())
    assert [alarm["name"] for alarm in status["alarms"]] == ["nothing_trained"]


def test_an_undecided_gate_takes_all_seeds_that_it_may_and_ends_with_its_code(dartsim, tmp_path, capfd):
    compared = ("compare", "areal-eta4", *SHORT)
    assert dartsim(*compared, "--seeds", "3", "--out", str(tmp_path / "all"), "--json", "-") == 0
    mean = sum(row["generated_turns_per_minute"] for row in json.loads(capfd.readouterr().out)) / 3
    gate = ("--seeds", "2", "--max-seeds", "3", "--fail-if", f"generated_turns_per_minute < {mean}")
    assert dartsim(*compared, *gate, "--out", str(tmp_path / "gate"), "--junit", str(tmp_path / "g")) == 3
    assert f"undecided: generated_turns_per_minute < {mean} is not decided by 3 seeds" in capfd.readouterr().err
    assert ElementTree.parse(tmp_path / "g").getroot().get("failures") == "1"
    assert (tmp_path / "gate" / "areal-eta4-seed2" / "summary.json").is_file()


@pytest.mark.parametrize(
    "command",
    [("run", "areal-eta4"), ("compare", "areal-eta4"), ("tune", "areal-eta4", "--space", "rollout.num_envs=2|3")],
    ids=lambda command: command[0],
)
def test_a_rule_that_raises_is_told_by_its_line(dartsim, tmp_path, capfd, command):
    words = (*command, *SHORT, "--set", "rollout.routing.rule=ends-raises", "--out", str(tmp_path / "out"))
    assert dartsim(*words) == 1
    told = capfd.readouterr().err
    assert f'File "{__file__}", line' in told
    assert told.count("File ") == 1, "one cause"
    assert "Traceback" not in told
    assert dartsim(*words, "--debug") == (2 if command[0] == "run" else 1)
