"""Runs over three hosts: whatever the network does, nothing is lost, faults are masked, and the run recovers."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from dataclasses import replace

import pytest

pytest.importorskip("torch", reason="needs the extra `train`")
pytest.importorskip("transformers", reason="needs the extra `train`")
pytest.importorskip("httpx", reason="needs the extra `real`")

from dartsim.core.errors import ConfigError
from dartsim.real.engines.client import LOST_SECONDS
from experiments.network import NoNetwork
from experiments.partitions import ENGINES, SCENARIOS, play, rows, run_hosts

BY_NAME = {scenario.name: scenario for scenario in SCENARIOS}
EXPECTED = {"vm_unreachable", "vm_hung", "vm_lost", "action_uncertain", "EnvStartFailed", "run ended"}
"""Causes of attempts that lost their desktop's host."""


def opened(*, desktops):
    with ExitStack() as stack:
        try:
            made = stack.enter_context(run_hosts(desktops=desktops))
        except (NoNetwork, ConfigError) as missing:
            pytest.skip(str(missing))
        yield made


@pytest.fixture(scope="module")
def without_desktops():
    yield from opened(desktops=False)


@pytest.fixture(scope="module")
def three_hosts():
    yield from opened(desktops=True)


def check(found):
    assert {name: number for name, number in found["wrong"].items() if number} == {}
    assert None not in found["back_seconds"].values(), "the run has not recovered"


@pytest.mark.slow
def test_engines_that_are_lost_while_they_load_weights_cost_no_attempt(without_desktops, tmp_path):
    scenario = replace(BY_NAME["engines lost while they load weights"], seconds=2.0, mock=True)
    found = play(without_desktops, scenario, tmp_path / "run", "vllm.connect_seconds=0.5")
    check(found)
    assert set(found["causes"]) <= {"run ended"}, "requests wait for an engine"
    assert set(found["load_causes"]) <= {"engine_unreachable", "engine_lost", "engine_hung"}
    _, cells = rows({"scenarios": {scenario.name: found}})
    assert cells[0][:2] == [scenario.name, "2"]
    assert cells[0][-1] == "0"


@pytest.mark.soak
@pytest.mark.docker
@pytest.mark.parametrize("name", BY_NAME)
def test_nothing_is_lost_by_what_the_network_does(three_hosts, tmp_path, name):
    scenario = BY_NAME[name]
    found = play(three_hosts, scenario, tmp_path / "run")
    check(found)
    # On busy cores a desktop may be slower than its time limits, whatever the network does.
    assert set(found["causes"]) <= ({"run ended"} if scenario.far == ENGINES else EXPECTED)
    if scenario.seconds > LOST_SECONDS:  # a shorter fault may only delay
        assert Counter(found["faults"]) + Counter(found["causes"]) - Counter({"run ended": 10**6})
    hosts = [reason for cause, reason in found["reasons"].items() if cause in EXPECTED]
    assert all("10.77.0.3" in reason for reason in hosts), "a message names the host"
