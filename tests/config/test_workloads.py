"""Workloads: cluster, tasks and latencies that go under any scheduler."""

import pytest

from dartsim.config import load, presets, to_toml
from dartsim.config.load import workload
from dartsim.config.packaged import workloads
from dartsim.core.errors import ConfigError
from dartsim.run.prepare import prepare

SCHEDULERS = sorted(
    name
    for name, tree in presets().items()
    if tree.get("policy", {}).get("kind", "surrogate") == "surrogate" and "desktops" not in tree.get("backend", {})
)


@pytest.mark.parametrize("name", sorted(workloads()))
def test_every_workload_can_be_built(name):
    prepare(load("dartsim", on=name))


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
        config = load(scheduler, on=name)
        assert config.preset == scheduler
        assert config.rollout.num_desktops == workload(name)["rollout"]["num_envs"]
        size = workload(name)["curation"]["batch"]["max_groups"]
        assert config.curation.batch.max_groups == size


def test_an_unknown_workload_is_refused_with_the_nearest():
    with pytest.raises(ConfigError, match="'laptops'"):
        load("dart", on="laptops")
    with pytest.raises(ConfigError, match="allowed: dart, laptop"):
        load("dart", on="nope")


CLUSTER_FILE = """
[rollout]
num_envs = 10
num_workers = 2

[curation.batch]
max_groups = 4

[cluster.hosts]
count = 2
"""


@pytest.fixture
def files(tmp_path):
    (tmp_path / "cluster.toml").write_text(CLUSTER_FILE)
    mine = 'preset = "dart-measured"\n[rollout]\nnum_envs = 7\nrouting = { rule = "round_robin" }\n'
    (tmp_path / "mine.toml").write_text(mine)
    return tmp_path


def test_a_file_is_a_cluster_too_and_smaller_batches_need_no_other_scheduler(files):
    config = load("dartsim", on=str(files / "cluster.toml"))
    assert (config.rollout.num_desktops, config.rollout.num_workers, config.cluster.hosts.count) == (10, 2, 2)
    assert (config.curation.batch.min_groups, config.curation.batch.max_groups) == (4, 4)


def test_of_a_file_on_another_cluster_its_scheduler_counts_and_overrides_come_last(files):
    mine = files / "mine.toml"
    on = load(mine, on=str(files / "cluster.toml"))
    assert (on.rollout.num_envs, on.rollout.routing.rule) == (10, "round_robin")
    assert load(mine).rollout.num_envs == 7
    assert load(mine, on="laptop", overrides=["rollout.num_envs=3"]).rollout.num_envs == 3


def test_the_cluster_of_a_preset_or_of_a_whole_file_comes_without_its_scheduler(files):
    areal = load("areal-eta4", on=str(files / "mine.toml"))
    assert areal.rollout.num_desktops == 7
    assert areal.rollout.routing.rule == load("areal-eta4").rollout.routing.rule
    measured = load("dart-measured")
    areal = load("areal-eta4", on="dart-measured")
    assert (areal.cluster, areal.tasks) == (measured.cluster, measured.tasks)
    assert areal.curation.admission.ahead_batches == 5.0


def test_a_cluster_file_with_an_unknown_key_is_refused(files):
    (files / "wrong.toml").write_text("[cluster.hosts]\ncounts = 2\n")
    with pytest.raises(ConfigError, match=r"wrong\.toml"):
        load("dart", on=str(files / "wrong.toml"))
    with pytest.raises(ConfigError, match=r"none\.toml"):
        load("dart", on="none.toml")


def test_a_cluster_takes_the_tasks_of_another(files):
    config = load("dartsim", on=f"{files / 'cluster.toml'}+math")
    math = load("dartsim", on="math")
    assert (config.tasks, config.surrogate, config.rollout.max_turns) == (
        math.tasks,
        math.surrogate,
        math.rollout.max_turns,
    )
    assert (config.rollout.num_desktops, config.cluster.hosts.count) == (10, 2)
    with pytest.raises(ConfigError, match="'maths'"):
        load("dartsim", on="laptop+maths")


def test_a_measured_run_is_a_cluster_whose_distributions_replace_others(files):
    folder = files / "run"
    folder.mkdir()
    (folder / "config.toml").write_text(to_toml(load("coupled", on="math")))
    whole = load("dartsim", on=str(folder))
    assert whole.cluster.env == load("coupled", on="math").cluster.env
    assert whole.rollout.unit == "rollout"
    step = "[cluster.env.latency]\nstep = { kind = 'quantiles', points = [[0.0, 1.0], [1.0, 2.0]] }\n"
    (folder / "profile.toml").write_text(step)
    other = "step = { kind = 'lognormal', mean_seconds = 1.0, sd_seconds = 1.0 }\n"
    (files / "mine.toml").write_text("[cluster.env.latency]\n" + other)
    measured = load(files / "mine.toml", on=str(folder))
    assert measured.cluster.env.latency == {"step": {"kind": "quantiles", "points": [[0.0, 1.0], [1.0, 2.0]]}}


def test_the_prompt_window_belongs_to_the_scheduler(files):
    assert load("dartsim", on="dart-measured").policy.images_after_cut == 2
    assert load("dart", on="dartsim").policy.images_after_cut is None
