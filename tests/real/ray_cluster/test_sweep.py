"""Runs of a sweep as tasks: results in their places, the same as here; progress; failures."""

import pytest

from dartsim.config import load
from dartsim.observe import ticker
from dartsim.run.prepare import prepare
from dartsim.run.simulation import run_simulation

RUNS = (("coupled", 0), ("dart-measured", 0), ("dart-measured", 1))
HOURS = 0.2


def config(item):
    preset, seed = item
    return load(preset_name=preset, overrides=[f"run.hours={HOURS}", f"run.seed={seed}"])


@pytest.mark.soak
def test_a_sweep_gives_the_same_event_hashes_as_runs_here(local_ray):
    from dartsim.real.ray_cluster.sweep import RayCluster

    def event_hash(config, tell):
        from dartsim.run.prepare import prepare
        from dartsim.run.simulation import run_simulation

        return run_simulation(prepare(config), instruments=[ticker(lambda now: tell(now / 3600.0))]).event_hash

    items = [config((preset, seed)) for preset, seed in RUNS]
    seen = {}
    found = dict(RayCluster("local", cpus=0.5).run(event_hash, items, seen.__setitem__))
    assert [found[number] for number in range(3)] == [run_simulation(prepare(item)).event_hash for item in items]
    assert len(set(found.values())) == len(items)
    assert set(seen) <= {0, 1, 2}
    assert all(0.0 <= at <= HOURS for at in seen.values())


def test_progress_is_told(local_ray):
    from dartsim.real.ray_cluster.sweep import RayCluster

    def slow(item, tell):
        import time

        for at in range(3):
            tell(item + at)
            time.sleep(0.6)
        return item

    seen = []
    found = list(RayCluster("local").run(slow, [10.0], lambda number, at: seen.append((number, at))))
    assert found == [(0, 10.0)]
    assert seen
    assert {number for number, _ in seen} == {0}
    assert {at for _, at in seen} <= {10.0, 11.0, 12.0}


def test_what_a_run_raises_is_raised_here(local_ray):
    from dartsim.real.ray_cluster.sweep import RayCluster

    def fail(item, tell):
        from dartsim.core.errors import ConfigError

        if item:
            raise ConfigError(f"item {item} is wrong")
        return item

    from dartsim.core.errors import ConfigError

    with pytest.raises(ConfigError, match="item 1 is wrong"):
        list(RayCluster("local").run(fail, [0, 1]))


def test_a_run_whose_process_ends_is_run_again(local_ray, tmp_path):
    from dartsim.real.ray_cluster.sweep import RayCluster

    def once(item, tell):
        import os
        import signal
        from pathlib import Path

        mark = Path(item)
        if not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return "second"

    assert list(RayCluster("local").run(once, [str(tmp_path / "mark")])) == [(0, "second")]
