"""The same control plane by the machine's clock: modelled parts on a bridge, and parts that exist."""

import asyncio
from types import SimpleNamespace

import pytest

from dartsim.config import load
from dartsim.config.sections.backend import BackendConfig
from dartsim.core.errors import ConfigError
from dartsim.observe import ticker
from dartsim.real.keeping import KeepingDesktops
from dartsim.real.loop import RunLoop
from dartsim.run.prepare import prepare
from dartsim.run.realtime import RealParts, run_realtime
from dartsim.store.sql import open_store


def test_a_run_begins_at_time_zero():
    async def main():
        loop = asyncio.get_running_loop()
        begun = loop.time()
        await asyncio.sleep(0.01)
        return begun, loop.time()

    with asyncio.Runner(loop_factory=RunLoop) as runner:
        begun, ended = runner.run(main())
    assert 0.0 <= begun < ended < 60.0
    assert ended - begun >= 0.01


FAST = (
    "backend.real_time=true",
    "run.hours=0.0008",
    "rollout.num_envs=4",
    "rollout.warm_envs=1",
    "rollout.num_workers=2",
    "cluster.engine.overhead_seconds=0.01",
    "cluster.engine.reload_seconds=0.01",
    'cluster.engine.gpu="h100_fp8"',
    "cluster.env.latency.start=0.01",
    "cluster.env.latency.boot=0.01",
    "cluster.env.latency.setup=0.01",
    "cluster.env.latency.step=0.01",
    "cluster.env.latency.evaluate=0.01",
    "cluster.env.latency.teardown=0.01",
    "cluster.env.latency.settle_seconds=0.0",
    "cluster.env.latency.evaluate_settle_seconds=0.0",
)


def test_a_modelled_cluster_keeps_pace_with_the_clock():
    seen = []
    prepared = prepare(load(preset_name="dart", overrides=FAST))
    result = run_realtime(prepared, instruments=[ticker(seen.append, 0.5)])
    assert not result.interrupted
    assert result.event_hash is None
    assert result.recorder.now >= 2.88
    assert len(seen) >= 2
    assert result.recorder.hot.generated_turns > 0


def test_a_run_that_was_torn_down_has_not_finished():
    def tear_down(now):
        if now > 0.0:
            raise KeyboardInterrupt

    prepared = prepare(load(preset_name="dart", overrides=FAST))
    result = run_realtime(prepared, instruments=[ticker(tear_down, 0.05)])
    assert result.interrupted
    assert result.recorder.now < 2.88


def test_a_real_worker_needs_a_model():
    with pytest.raises(ConfigError, match=r'set policy\.kind = "vlm"'):
        load(preset_name="dart", overrides=['backend.workers="local"'])


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (['backend.desktops="mock"'], "cannot show tasks.source"),
        (['tasks.source="desktop"'], "needs the real desktops"),
        (['backend.desktops="osworld"', 'tasks.source="osworld"', 'tasks.folder="x"'], r"needs desktop\.disk"),
    ],
)
def test_parts_that_do_not_go_together_are_refused(overrides, message):
    with pytest.raises(ConfigError, match=message):
        load(preset_name="dart", overrides=overrides)


def test_a_model_learns_on_the_mock_desktop_in_real_time():
    pytest.importorskip("torch")
    from dartsim.run.learning import learning

    parts = ['backend.desktops="mock"', 'backend.workers="local"', 'backend.learner="local"']
    small = ["run.updates=2", "run.hours=0.05", "tasks.count=64", "tasks.held_out=8", "rollout.num_envs=8"]
    prepared = prepare(load(preset_name="tiny", overrides=[*parts, *small]))
    trained = learning(prepared)
    result = run_realtime(prepared, learning=trained)
    assert result.recorder.counts["updates"] >= 2
    assert trained.newest.version >= 2
    assert result.recorder.counts["trained_turns"] > 0


@pytest.mark.parametrize(("desktops", "kept"), [("desktop", True), ("osworld", True), ("mock", False)])
def test_screens_of_real_desktops_are_kept_in_threads(tmp_path, monkeypatch, desktops, kept):
    """What is computed here is small, and encoded as its attempt is recorded."""
    there = object()

    async def started(parts):
        return there

    monkeypatch.setattr(RealParts, "_desktops", started)
    config = SimpleNamespace(backend=BackendConfig(desktops=desktops), run=SimpleNamespace(seed=0))
    parts = RealParts(SimpleNamespace(config=config), None, None)
    store = open_store("sqlite", tmp_path)
    provider = asyncio.run(parts._provider(store))
    if kept:
        assert isinstance(provider, KeepingDesktops)
        assert (provider._inner, provider._keep) == (there, store.prepare_files)
    else:
        assert provider is there
    store.close()
    (tmp_path / "bare").mkdir()
    bare = open_store("sqlite", tmp_path / "bare", screenshots=False)
    assert asyncio.run(parts._provider(bare)) is there
    bare.close()
