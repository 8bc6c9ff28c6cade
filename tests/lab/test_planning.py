"""Plans: machines as they are written, the splits of a study, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from dartsim.config import from_tree, load, merge
from dartsim.core.errors import ConfigError
from dartsim.lab.jobs import Prices
from dartsim.lab.new_cluster import host_settings
from dartsim.lab.planning import DESKTOPS, OWN, SYNC, WORKERS, plan_spec
from dartsim.lab.space import points

SMALL = Path(__file__).with_name("small.toml")


def small(**tables):
    return from_tree(merge(load(SMALL).model_dump(), tables))


def hosts(count, memory_gib, **cores):
    return {"cluster.hosts.count": count, "cluster.hosts.memory_gib": memory_gib, **cores}


def test_hosts_are_read():
    assert host_settings("4x64GiB") == hosts(4, 64.0)
    assert host_settings("2x128gib x 32cores") == hosts(2, 128.0, **{"cluster.hosts.cores": 32.0})
    for text in ("4 hosts", "0x64GiB", "4x64GiBx0cores"):
        with pytest.raises(ConfigError, match=text):
            host_settings(text)


def test_splits_take_all_machines_and_leave_what_a_trainer_computes_as_it_is():
    asked = plan_spec(small(rollout={"warm_envs": 2}), 3, host_settings("2x8GiBx8cores"), Prices())
    every = list(points(asked.space))
    assert {point[DESKTOPS] for point in every} == set(range(1, 9))
    assert {point[WORKERS] for point in every} == {1, 2}
    for point in every:
        config = asked.config(point)
        rollout, cluster = config.rollout, config.cluster
        assert rollout.num_envs + rollout.warm_envs == point[DESKTOPS]
        assert rollout.num_envs >= 1
        assert rollout.num_workers + cluster.learner.gpus == 3
        assert cluster.learner.kilotoken_seconds * cluster.learner.gpus == pytest.approx(
            asked.base.cluster.learner.kilotoken_seconds * asked.base.cluster.learner.gpus
        )
        assert (cluster.hosts.count, cluster.hosts.memory_gib, cluster.hosts.cores) == (2, 8.0, 8.0)
        if point[SYNC] == OWN:
            assert rollout.sync.mode == asked.base.rollout.sync.mode
    assert asked.own_point() == {WORKERS: 2, SYNC: OWN, DESKTOPS: 4}


def test_weight_syncs_that_a_scheduler_refuses_are_not_tried():
    def syncs(preset):
        return plan_spec(load(preset), 8, {}, Prices()).space[SYNC].choices

    assert syncs("areal-eta4") == (OWN, "keep one by one")
    assert "restart one by one" in syncs("dart-measured")


@pytest.mark.parametrize(("gpus", "machines", "named"), [(1, "1x8GiB", "2 GPUs"), (4, "4x1GiB", "2 GiB")])
def test_machines_that_are_too_small_are_refused(gpus, machines, named):
    with pytest.raises(ConfigError, match=named):
        plan_spec(small(), gpus, host_settings(machines), Prices())
