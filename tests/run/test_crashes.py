"""Runs that crash at random instants and are resumed: nothing lost, nothing trained twice, nothing goes back."""

import json
import math
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dartsim.observe.metrics import read_snapshots
from dartsim.run.resume import resume
from tests.crashing import Ledger, configured, crashing_run, execute, killed, trained_set

SLOWLY = settings(
    max_examples=4,
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@SLOWLY
@given(instants=st.lists(st.floats(0.0, 5000.0), min_size=1, max_size=4), each=st.booleans())
def test_a_coupled_run_trains_the_same_set_whether_it_crashed_or_not(tmp_path_factory, instants, each):
    """Lock step, no rule that learns from outcomes, attempts drawn from their seeds: what is trained is the same."""
    config = configured("coupled", 1, run={"updates": 8, "hours": 24.0})
    whole, broken = tmp_path_factory.mktemp("whole"), tmp_path_factory.mktemp("broken")
    crashing_run(config, whole, [], Ledger(config.curation.staleness.max_staleness))
    with patch("dartsim.store.sql.MAX_CHANGES", 1 if each else 2_000):
        crashing_run(config, broken, sorted(instants), ledger := Ledger(config.curation.staleness.max_staleness))
    assert ledger.violations == {}
    assert trained_set(whole / "run.db") == trained_set(broken / "run.db")
    assert len(trained_set(whole / "run.db")) == 64


def test_processes_are_killed_and_go_on(tmp_path):
    ended, ledger = killed("dart", 3, 3, tmp_path, mean_seconds=1.0)
    assert ledger.violations == {}
    assert ended >= 1  # the more, the faster the machine
    summary = json.loads((tmp_path / "run-0" / "summary.json").read_text())
    assert summary["simulated_hours"] == pytest.approx(6.0, rel=0.01)
    lines = (tmp_path / "run-0" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["update"] for line in lines] == list(range(1, summary["total_updates"] + 1))


@pytest.mark.soak
def test_a_hundred_kills(tmp_path):
    _, ledger = killed("dart", 4, 100, tmp_path)
    assert ledger.violations == {}


def test_a_finished_run_can_be_made_longer(tmp_path):
    config = configured("dart", 5, run={"hours": 0.5})
    first = execute(config, tmp_path / "run")[0].summary
    longer, _ = resume(tmp_path / "run", ["run.hours=1.0"])
    assert longer.summary["simulated_hours"] == pytest.approx(1.0, rel=0.01)
    assert longer.summary["total_updates"] > first["total_updates"]
    assert longer.summary["attempts"] > first["attempts"]
    assert [life["from_update"] for life in longer.summary["lives"]] == [first["total_updates"]]
    snapshots = read_snapshots(tmp_path / "run" / "snapshots.jsonl", until=math.inf)
    assert snapshots[0].time == 0.0
    assert [snapshot.time for snapshot in snapshots] == sorted({snapshot.time for snapshot in snapshots})
