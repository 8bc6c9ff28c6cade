"""Workloads: cluster, tasks and latencies that go under any scheduler."""

import pytest

from dartsim.config import Config, from_tree, load, preset, presets, to_toml
from dartsim.config.load import workload, workloads
from dartsim.core.errors import ConfigError
from dartsim.run.prepare import prepare

SCHEDULERS = sorted(
    name
    for name, tree in presets().items()
    if tree.get("policy", {}).get("kind", "surrogate") == "surrogate" and "desktops" not in tree.get("backend", {})
)


@pytest.mark.parametrize("name", sorted(workloads()))
def test_every_workload_can_be_built(name):
    prepare(load(preset_name="dartsim", workload_name=name))


@pytest.mark.parametrize("name", sorted(workloads()))
def test_a_workload_says_where_it_comes_from_and_is_none_of_a_scheduler_s_business(name):
    about = workloads()[name]["about"]
    assert set(about) == {"title", "source", "departures"}
    assert about["departures"]
    tree = workload(name)
    assert set(tree) <= {"run", "tasks", "surrogate", "rollout", "curation", "cluster"}
    assert set(tree["rollout"]) == {"num_envs", "num_workers", "max_turns"}
    assert set(tree["curation"]) == {"attempts", "batch"}
    assert "transfer_seconds" in tree["cluster"]["engine"]


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_every_scheduler_goes_over_the_workloads_on_the_same_desktops(scheduler):
    for name in ("dart", "laptop"):
        config = load(preset_name=scheduler, workload_name=name)
        assert (config.preset, config.workload) == (scheduler, name)
        assert config.rollout.num_desktops == workload(name)["rollout"]["num_envs"]
        size = workload(name)["curation"]["batch"]["max_groups"]
        assert config.curation.batch.max_groups == size


def test_a_workload_lies_between_preset_and_file(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text('preset = "coupled"\nworkload = "laptop"\n[rollout]\nnum_workers = 3\n')
    config = load(file)
    assert (config.rollout.num_workers, config.rollout.num_envs, config.rollout.unit) == (3, 4, "batch")
    assert config.curation.max_ahead == 8
    file.write_text(to_toml(config))
    assert load(file) == config


def test_without_a_workload_presets_are_as_they_were():
    assert load(preset_name="coupled") == from_tree({**preset("coupled"), "preset": "coupled"})
    assert isinstance(load(preset_name="dart"), Config)
    assert load(preset_name="dart").workload is None


def test_an_unknown_workload_is_refused_with_the_nearest():
    with pytest.raises(ConfigError, match="there is no workload 'laptops'; did you mean 'laptop'"):
        load(preset_name="dart", workload_name="laptops")
