"""Clusters that faults strike: everything adds up, nothing is left, no fault becomes a reward, and they recover."""

import pytest

from dartsim.config import load, merge
from dartsim.core.errors import ConfigError, StoreFull
from dartsim.run.prepare import prepare
from dartsim.run.run_prepared import run_prepared
from dartsim.sim.faults import KINDS, FaultyCluster, Scope
from tests.run.clusters import check_all
from tests.run.clusters import small as small_cluster

HOURS, HEALED = 1.0, 0.4


TABLES = {
    "rollout": {"limits": {"load_seconds": 300.0}},
    "curation": {
        "attempts": {"max_replacements": 4},
        "groups": {"drop_all_failed": False, "drop_solved": False, "drop_equal": False},
        "staleness": {"max_staleness": None},
    },
    "run": {"hours": HOURS},
}


def small(**tables):
    return small_cluster(**merge(TABLES, tables))


def often(name):
    """A rate at which a kind strikes again and again in half an hour."""
    kind = KINDS[name]
    if kind.scope is not Scope.CALL:
        return {"per_hour": 12.0, "lasts_seconds": 60.0}
    return {"share": 0.3 if kind.place not in ("desktop.step", "desktop.screenshot", "message") else 0.1}


def struck(name, **tables):
    faults = {"heal_after_hours": HEALED, "kinds": {name: often(name)}}
    return small(**merge({"cluster": {"faults": faults}}, tables))


def live(config):
    """Run a configuration whose tasks are solved by every attempt that nothing happens to; check all of it."""
    system, store, _ = check_all(config, success_rate=1.0)
    assert set(store.rewards) <= {1.0, None}, "a fault became a reward"
    return system, store


def test_what_struck_is_told_by_the_causes_of_attempts_and_starts_and_never_by_a_reward():
    """Each kind whose call fails is seen by the control plane under its own word."""
    seen = {
        "action_timeout": ("cause/action_uncertain",),
        "screenshot_torn": ("cause/bad_screenshot",),
        "setup_download_failed": ("cause/setup_download_failed",),
        "evaluator_blind": ("cause/getter_failed",),
        "vm_never_ready": ("start_cause/not_ready",),
        "worker_crash": ("fault/engine_down",),
        "weights_torn": ("fault/load", "load_cause/weights_torn"),
        "trainer_crash_before_commit": ("fault/update",),
    }
    for name, counts in seen.items():
        system, _ = live(struck(name))
        for count in counts:
            assert system.recorder.counts[count] > 0, (name, count)


def test_an_update_that_nobody_heard_of_is_trained_once():
    faults = {
        "heal_after_hours": HEALED,
        "kinds": {"trainer_crash_after_commit": {"share": 0.9, "lasts_seconds": 30.0}},
    }
    system, store = live(small(cluster={"faults": faults}))
    counts = system.recorder.counts
    assert counts["fault/trainer_crash_after_commit"] >= 5
    assert counts["failed_updates"] <= 1, "a batch was given back, although it was trained"  # one: at the end
    assert counts["updates"] == len(store.updates)


def test_a_worker_that_is_down_is_seen_as_down_and_an_outage_of_the_trainer_too():
    crash, outage = {"per_hour": 6.0, "lasts_seconds": 300.0}, {"per_hour": 4.0, "lasts_seconds": 600.0}
    config = small(cluster={"faults": {"kinds": {"worker_crash": crash, "trainer_outage": outage}}})
    figures = run_prepared(prepare(config)).figures
    assert figures["engine_shares"]["down"] > 0.1
    assert figures["trainer_shares"]["down"] > 0.1


def test_a_full_disk_of_the_store_ends_the_run_with_what_to_do_about_it():
    schedule = [{"kind": "store_full", "at_seconds": 600.0}]
    with pytest.raises(StoreFull, match="no room for the database"):
        run_prepared(prepare(small(cluster={"faults": {"schedule": schedule}})))


def test_a_host_that_is_gone_does_not_take_attempt_after_attempt():
    schedule = [{"kind": "host_lost", "at_seconds": 60.0, "lasts_seconds": 3600.0}]
    system, _ = live(small(cluster={"faults": {"schedule": schedule}}))
    lost = system.recorder.counts["cause/EnvStartFailed"]
    assert 3 <= lost <= 3 * 20, f"three slots of a host that is away for an hour cost {lost} attempts"
    assert system.recorder.counts["fault/host_lost"] == 1


@pytest.mark.parametrize("name", ["dart", "coupled"])
def test_no_faults_change_nothing(name, monkeypatch):
    """Without faults a run is the one of a cluster that knows of none, to the last event."""
    plain = ["run.hours=0.5", 'curation.store="memory"', "run.max_segments=0"]
    still = ["cluster.faults.profile=hostile", "cluster.faults.scale=0.0", "cluster.faults.heal_after_hours=0.25"]
    found = [run_prepared(prepare(load(name, overrides=[*plain, *more]))) for more in ([], still)]
    monkeypatch.setattr("dartsim.run.build.faulty_cluster", lambda *_: FaultyCluster())
    found.append(run_prepared(prepare(load(name, overrides=plain))))
    assert len({result.event_hash for result in found}) == 1


def test_one_more_kind_of_fault_shifts_no_draw_of_the_others():
    """The message faults of a run strike the same messages, whether a kind that never strikes here is there or not."""
    some = {"per_hour": 20.0, "lasts_seconds": 30.0}
    one = small(cluster={"faults": {"kinds": {"store_stall": some}}})
    two = small(cluster={"faults": {"kinds": {"store_stall": some, "container_leaked": {"share": 1e-9}}}})
    found = [run_prepared(prepare(config)) for config in (one, two)]
    assert found[0].event_hash == found[1].event_hash
    assert found[0].recorder.counts["fault/store_stall"] > 5


def test_faults_strike_modeled_clusters_only():
    with pytest.raises(ConfigError, match="needs a modeled cluster in virtual time"):
        small(backend={"real_time": True}, cluster={"faults": {"profile": "calm"}})
