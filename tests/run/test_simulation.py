"""A configuration as a simulated run: what it returns, and how it is stopped."""

import signal

import pytest

from dartsim.config import merge
from dartsim.core.errors import ConfigError
from dartsim.observe import Listener, ticker
from dartsim.run.prepare import env_timing, prepare
from dartsim.run.run_prepared import run_prepared
from dartsim.store.memory import MemoryStore
from tests.run.clusters import small as small_cluster


def small(**tables):
    return small_cluster(**merge({"rollout": {"num_envs": 4}, "run": {"hours": 0.5}}, tables))


def test_a_run_returns_its_trace_its_figures_and_its_hash():
    result = run_prepared(prepare(small()))
    again = run_prepared(prepare(small()))
    assert (result.event_hash, result.num_events) == (again.event_hash, again.num_events)
    assert result.figures == again.figures
    assert not result.interrupted
    figures = result.figures
    assert figures["total_updates"] == result.recorder.counts["updates"] > 0
    for shares in ("desktop_shares", "engine_shares", "trainer_shares"):
        assert sum(figures[shares].values()) == pytest.approx(1.0)
    assert 0.0 < figures["env_utilization"] < 1.0
    offered = [sum(row["offered"] for row in table.values()) for table in result.bias.values()]
    trained = [sum(row["trained"] for row in table.values()) for table in result.bias.values()]
    assert set(offered) == {result.recorder.counts["trajectories"]}
    assert set(trained) == {result.recorder.counts["trained_trajectories"]}


def test_ctrl_c_ends_a_run_where_it_is_and_keeps_what_it_measured():
    def interrupt(now):
        if now > 900.0:
            signal.raise_signal(signal.SIGINT)

    store = MemoryStore()
    result = run_prepared(prepare(small()), store=store, instruments=[ticker(interrupt, 600.0)])
    assert result.interrupted
    assert 900.0 < result.recorder.now < 1800.0
    assert result.figures["simulated_hours"] == pytest.approx(result.recorder.snapshots[-1].time / 3600.0)
    assert result.recorder.counts["trajectories"] == result.recorder.counts["attempts"] > 0
    assert sum(result.figures["endings"].values()) == result.figures["attempts"]
    assert store.live == {}


def raised(*_):
    raise KeyboardInterrupt


def twice(now):
    if now > 900.0:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize(
    "stopped_by", [{"time_advanced": twice}, {"run_started": raised}], ids=["twice", "at its start"]
)
def test_a_run_that_was_torn_down_has_not_finished(stopped_by):
    result = run_prepared(prepare(small()), instruments=[Listener(600.0, **stopped_by)])
    assert result.interrupted
    assert result.recorder.now < 1800.0


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({"cluster": {"engine": {"gpu": "b200"}}}, "cluster.engine.gpu = 'b200' is unknown; known: "),
        ({"cluster": {"env": {"profile": "mac"}}}, "cluster.env.profile = 'mac' is unknown; known: "),
        ({"cluster": {"env": {"latency": {"reset": 3.0}}}}, "cluster.env.latency.reset = 3.0 is unknown"),
        ({"cluster": {"hosts": {"count": 1, "memory_gib": 2.0}}}, "4 desktops of 2 GiB do not fit on 1 host"),
        ({"surrogate": {"task_length_sd": 3.0}}, "lower surrogate.task_length_sd"),
    ],
)
def test_what_does_not_exist_or_fit_is_refused_before_anything_starts(tables, message):
    with pytest.raises(ConfigError) as refused:
        prepare(small(**tables))
    assert message in str(refused.value)


def test_latencies_of_a_profile_can_be_replaced():
    latency = {"step": 2.5, "boot": {"kind": "lognormal", "mean_seconds": 10.0, "sd_seconds": 1.0}, "memory_gib": 3}
    timing = env_timing(small(cluster={"env": {"latency": latency}}))
    original = env_timing(small())
    assert timing.step.mean == 2.5
    assert timing.boot.mean == pytest.approx(10.0)
    assert (timing.memory_gib, timing.setup) == (3.0, original.setup)


def test_a_run_ends_once_it_is_steady_and_is_otherwise_the_same():
    steady = {"until_steady": 0.3, "hours": 16.0}
    early = run_prepared(prepare(small(run=steady)))
    found = early.figures["steady"]
    assert found["reached"]
    assert found["hours"] == early.figures["simulated_hours"] < 8.0
    assert found["updates"] == early.figures["total_updates"]
    trained = found["figures"]["trained_turns_per_minute"]
    assert trained["half_width"] <= 0.3 * trained["mean"]
    assert trained["mean"] == pytest.approx(early.figures["trained_turns_per_minute"], rel=0.3)
    whole = run_prepared(prepare(small(run={"updates": found["updates"], "hours": 16.0})))
    assert whole.domain_hash == early.domain_hash
    assert "steady" not in whole.figures
