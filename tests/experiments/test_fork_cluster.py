"""The experiment on desktops that boot or fork: its recorded figures against what is claimed of them."""

from experiments import fork_cluster
from experiments.clusters import Cluster, run_cluster
from experiments.study import recorded

FOUND = recorded("fork_cluster")


def test_desktops_that_boot_are_those_of_the_headline():
    assert FOUND["predicted"]["boot"]["event_hashes"] == recorded("headline")["dart"]["event_hashes"]


def test_each_mode_is_worth_more_than_the_one_before():
    for name in ("env_utilization", "generated_turns_per_minute", "gpu_utilization"):
        boot, snapshot, forked = (FOUND["predicted"][mode][name] for mode in fork_cluster.MODES)
        assert boot < snapshot < forked
    assert abs(FOUND["predicted"]["fork"]["env_utilization"] - FOUND["expected"]["fork"]["env_utilization"]) < 0.03


def test_a_short_run_has_the_recorded_keys(monkeypatch, tmp_path):
    monkeypatch.setattr(
        fork_cluster, "Cluster", lambda preset, hours, seed, changes: Cluster(preset, 0.2, seed, changes)
    )
    monkeypatch.setattr(
        fork_cluster, "run_clusters", lambda clusters, options, what: [run_cluster(c) for c in clusters]
    )
    written = fork_cluster.STUDY.run(["--quick", "--json", str(tmp_path / "fork.json")])
    assert written["predicted"].keys() == FOUND["predicted"].keys()
    assert written["predicted"]["fork"].keys() == FOUND["predicted"]["fork"].keys()
