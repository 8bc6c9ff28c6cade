"""The same control plane by the machine's clock: modeled parts on a bridge, and parts that exist."""

import asyncio

import pytest

from dartsim.config import load
from dartsim.config.sections.policy import PolicyConfig
from dartsim.core.errors import ConfigError
from dartsim.envs.direct import DirectProvider
from dartsim.envs.mock.env import mock_desktop_maker
from dartsim.envs.mock.suites import mock_tasks
from dartsim.observe import ticker
from dartsim.real.loop import RunLoop
from dartsim.run.build import with_screenshots
from dartsim.run.prepare import prepare
from dartsim.run.run_prepared import run_prepared
from dartsim.store.sql import SqlStore


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


def test_a_modeled_cluster_keeps_pace_with_the_clock():
    seen = []
    prepared = prepare(load("dart", overrides=FAST))
    result = run_prepared(prepared, instruments=[ticker(seen.append, 0.5)])
    assert not result.interrupted
    assert result.event_hash is None
    assert result.recorder.now >= 2.88
    assert len(seen) >= 2
    assert result.recorder.hot.generated_turns > 0


def test_a_real_worker_needs_a_model():
    with pytest.raises(ConfigError, match=r'set policy\.kind = "vlm"'):
        load("dart", overrides=['backend.workers="local"'])


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
        load("dart", overrides=overrides)


async def test_screens_of_booted_desktops_are_kept_in_threads(tmp_path):
    store, screens = SqlStore.open(tmp_path), tmp_path / "screens"
    (task,) = mock_tasks("click_button", 1, 0, 1)
    desktops = DirectProvider(mock_desktop_maker(PolicyConfig()))
    desktop = await with_screenshots(desktops, store, boots=True).start(0)
    await desktop.reset(task, seed=0)
    await desktop.evaluate()
    assert [path for path in screens.rglob("*") if path.is_file()]
    store.close()
