"""Clusters that faults strike: everything adds up, nothing is left, no fault becomes a reward, and they recover."""

import asyncio
import tomllib
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dartsim.config import from_tree, load, merge, preset, presets
from dartsim.core.errors import ConfigError, StoreFull
from dartsim.core.types import Ending
from dartsim.run.prepare import prepare
from dartsim.run.simulation import build_simulated, run_simulation
from dartsim.sim import run_virtual_reported
from dartsim.sim.faults import KINDS, FaultyCluster, Scope
from dartsim.sim.faults.kinds import FUZZ_PLACES
from dartsim.sim.task_difficulties import TaskDifficulty
from dartsim.store.memory import MemoryStore

HOURS, HEALED = 1.0, 0.4
MASKED = {Ending.BROKEN, Ending.TIMED_OUT, Ending.WORKER_FAULT, Ending.UNSCORED, Ending.CANCELLED}
NOT_IN_A_RUN = [
    kind.name for kind in KINDS.values() if kind.name in ("store_full", "store_error") or kind.place in FUZZ_PLACES
]
"""Kinds that end a run, and those that only ``dartsim fuzz`` injects."""

RECOVERY_SECONDS = 1800.0
"""Longest time from the healing to the next update. What a fault left adds up before attempts run at all: a slot's
rest of 300 s, a boot that hung, given up after 600 s, a load, given up after 300 s; then groups have to come together.
"""

SMALL = merge(
    tomllib.loads(Path(__file__).with_name("small.toml").read_text(encoding="utf-8")),
    {
        "rollout": {"limits": {"load_seconds": 300.0}},
        "curation": {
            "attempts": {"max_replacements": 4},
            "groups": {"drop_all_failed": False, "drop_solved": False, "drop_equal": False},
            "staleness": {"max_staleness": None},
        },
        "run": {"hours": HOURS},
    },
)


def small(name="dart", **tables):
    tree = merge(preset(name), SMALL)
    if name == "dart":
        tree = merge(tree, {"curation": {"attempts": {"min_group_size": 1}}})
    return from_tree(merge(tree, tables))


def often(name):
    """A rate at which a kind strikes again and again in half an hour."""
    kind = KINDS[name]
    if kind.scope is not Scope.CALL:
        return {"per_hour": 12.0, "lasts_seconds": 60.0}
    return {"share": 0.3 if kind.place not in ("desktop.step", "desktop.screenshot", "message") else 0.1}


def struck(name, **tables):
    faults = {"heal_after_hours": HEALED, "kinds": {name: often(name)}}
    return small(**merge({"cluster": {"faults": faults}}, tables))


class Watched(MemoryStore):
    """A store that looks at everything it is told."""

    def __init__(self):
        super().__init__()
        self.seen, self.trained_ids, self.rewards = Counter(), Counter(), []
        self.updates = []

    def record(self, trajectory):
        super().record(trajectory)
        self.seen[trajectory.attempt.id] += 1
        assert (trajectory.reward is None) == (trajectory.ending in MASKED) == (trajectory.cause is not None)
        self.rewards.append(trajectory.reward)

    def trained(self, batch, version, **more):
        super().trained(batch, version, **more)
        self.trained_ids.update(t.attempt.id for t in batch.trajectories)
        self.updates.append(asyncio.get_running_loop().time())


def live(config, *, seed=None):
    """Run a configuration whose tasks are solved by every attempt that nothing happens to; check all of it."""
    prepared = prepare(config)
    prepared = replace(prepared, difficulties={task.id: TaskDifficulty(1.0) for task in prepared.tasks})
    store = Watched()

    async def main():
        system = await build_simulated(prepared, store)
        await system.run(config.run.hours * 3600.0)
        return system

    system, report = run_virtual_reported(main(), seed=config.run.seed if seed is None else seed, max_events=3_000_000)
    check(system, store)
    return system, store, report


def check(system, store):
    data, counts = system.data, system.recorder.counts
    assert set(store.rewards) <= {1.0, None}, "a fault became a reward"
    assert set(store.seen.values()) | set(store.trained_ids.values()) <= {1}
    assert (
        data.ledger.trained + data.ledger.dropped
        == data.ledger.admitted
        == sum(store.seen.values())
        == counts["attempts"]
    )
    assert (len(data.ledger.running), data.ledger.leased) == (0, 0)
    assert sum(n for name, n in counts.items() if name.startswith("cause/")) == store.rewards.count(None)
    assert system.cluster.leases == {}
    for worker in system.pool.workers:
        assert (worker.in_flight, worker.engine.engine.num_jobs) == (0, 0)
    for host in hosts(system):
        assert host.memory.level == host.memory.capacity
        assert (host.starts.count, len(host.starts.queue), len(host.memory.get_queue)) == (0, 0, 0)
        assert (host.cores.num_jobs, host.cores.demand) == (0, 0.0)


def hosts(system):
    provider = system.cluster.provider
    while not hasattr(provider, "hosts"):
        provider = provider.inner  # behind its spares and its faults
    return provider.hosts


def goes_on(store, name=""):
    """After the healing there are updates again, within half an hour, and to the end."""
    healed = HEALED * 3600.0
    later = [time for time in store.updates if time > healed]
    assert later, f"{name}: no update after the healing, at {store.updates}"
    assert later[0] < healed + RECOVERY_SECONDS, f"{name}: first update {later[0] - healed:g} s after the healing"
    assert later[-1] > HOURS * 3600.0 - 1200.0


@pytest.mark.parametrize("name", [name for name in KINDS if name not in NOT_IN_A_RUN])
def test_each_kind_strikes_is_counted_and_passes(name):
    system, store, _ = live(struck(name))
    assert system.recorder.counts[f"fault/{name}"] >= 1
    goes_on(store, name)


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
        system, _, _ = live(struck(name))
        for count in counts:
            assert system.recorder.counts[count] > 0, (name, count)


def test_an_update_that_nobody_heard_of_is_trained_once():
    faults = {
        "heal_after_hours": HEALED,
        "kinds": {"trainer_crash_after_commit": {"share": 0.9, "lasts_seconds": 30.0}},
    }
    system, store, _ = live(small(cluster={"faults": faults}))
    counts = system.recorder.counts
    assert counts["fault/trainer_crash_after_commit"] >= 5
    assert counts["failed_updates"] <= 1, "a batch was given back, although it was trained"  # one: at the end
    assert counts["updates"] == len(store.updates)


def test_a_worker_that_is_down_is_seen_as_down_and_an_outage_of_the_trainer_too():
    crash, outage = {"per_hour": 6.0, "lasts_seconds": 300.0}, {"per_hour": 4.0, "lasts_seconds": 600.0}
    config = small(cluster={"faults": {"kinds": {"worker_crash": crash, "trainer_outage": outage}}})
    figures = run_simulation(prepare(config)).figures
    assert figures["engine_shares"]["down"] > 0.1
    assert figures["trainer_shares"]["down"] > 0.1


def test_a_full_disk_of_the_store_ends_the_run_with_what_to_do_about_it():
    schedule = [{"kind": "store_full", "at_seconds": 600.0}]
    with pytest.raises(StoreFull, match="no room for the database"):
        run_simulation(prepare(small(cluster={"faults": {"schedule": schedule}})))


def test_a_host_that_is_gone_does_not_take_attempt_after_attempt():
    schedule = [{"kind": "host_lost", "at_seconds": 60.0, "lasts_seconds": 3600.0}]
    system, _, _ = live(small(cluster={"faults": {"schedule": schedule}}))
    lost = system.recorder.counts["cause/EnvStartFailed"]
    assert 3 <= lost <= 3 * 20, f"three slots of a host that is away for an hour cost {lost} attempts"
    assert system.recorder.counts["fault/host_lost"] == 1


def test_a_load_that_hangs_is_given_up():
    schedule = [{"kind": "load_hung", "at_seconds": 0.0}]
    system, _, _ = live(small(cluster={"faults": {"schedule": schedule}}))
    assert system.recorder.counts["load_cause/load_timeout"] == 1
    assert {worker.version for worker in system.pool.workers} >= {system.data.ledger.version}


@pytest.mark.parametrize("name", ["dart", "coupled"])
def test_no_faults_change_nothing(name, monkeypatch):
    """Without faults a run is the one of a cluster that knows of none, to the last event."""
    plain = ["run.hours=1.0", 'curation.store="memory"', "recorder.max_segments=0"]
    still = ["cluster.faults.profile=hostile", "cluster.faults.scale=0.0", "cluster.faults.heal_after_hours=0.5"]
    found = [run_simulation(prepare(load(preset_name=name, overrides=[*plain, *more]))) for more in ([], still)]
    monkeypatch.setattr("dartsim.run.build.faulty_cluster", lambda *_: FaultyCluster())
    found.append(run_simulation(prepare(load(preset_name=name, overrides=plain))))
    assert len({result.event_hash for result in found}) == 1


def test_one_more_kind_of_fault_shifts_no_draw_of_the_others():
    """The message faults of a run strike the same messages, whether a kind that never strikes here is there or not."""
    some = {"per_hour": 20.0, "lasts_seconds": 30.0}
    one = small(cluster={"faults": {"kinds": {"store_stall": some}}})
    two = small(cluster={"faults": {"kinds": {"store_stall": some, "container_leaked": {"share": 1e-9}}}})
    found = [run_simulation(prepare(config)) for config in (one, two)]
    assert found[0].event_hash == found[1].event_hash
    assert found[0].recorder.counts["fault/store_stall"] > 5


def test_faults_strike_modeled_clusters_only():
    with pytest.raises(ConfigError, match="needs a modeled cluster in virtual time"):
        small(backend={"real_time": True}, cluster={"faults": {"profile": "calm"}})


NAMES = [name for name in KINDS if name not in NOT_IN_A_RUN]


@st.composite
def clusters(draw):
    """A small cluster with a scheduler, a profile and some kinds of faults that are drawn."""
    most, groups = draw(st.integers(1, 3)), draw(st.integers(1, 2))
    ahead = draw(st.sampled_from([None, None, 0, 4]))
    lockstep = draw(st.booleans())
    kinds = draw(st.lists(st.sampled_from(NAMES), max_size=3, unique=True))
    return small(
        rollout={
            "num_envs": draw(st.integers(1, 8)),
            "warm_envs": draw(st.sampled_from([0, 0, 2])),
            "num_workers": draw(st.integers(1, 4)),
            "unit": draw(st.sampled_from(["rollout", "task", "batch"])),
            "lockstep": lockstep,
            "request_tries": draw(st.sampled_from([1, 3, 10])),
            "sync": {
                "mode": draw(st.sampled_from(["drain", "keep", "restart"])),
                "workers_at_a_time": "all" if lockstep else draw(st.sampled_from(["all", 1, 2])),
            },
        },
        curation={
            "attempts": {"group_size": most, "max_replacements": draw(st.sampled_from([0, 2, 6]))},
            "batch": {"min_groups": groups, "max_groups": groups + draw(st.integers(0, 1))},
            "max_ahead": None if ahead is None else ahead + groups * most,
        },
        trainer={"wait_for_sync": draw(st.booleans())},
        cluster={
            "engine": {"model": draw(st.sampled_from(["fluid", "batch", "shared"]))},
            "faults": {
                "profile": draw(st.sampled_from(["none", "osworld", "hostile"])),
                "scale": draw(st.sampled_from([1.0, 3.0])),
                "heal_after_hours": HEALED,
                "kinds": {name: often(name) for name in kinds},
            },
        },
        run={"seed": draw(st.integers(0, 2**32))},
    )


@settings(max_examples=8)
@given(clusters())
def test_whatever_the_scheduler_and_the_faults_all_adds_up_and_it_goes_on(config):
    _, store, _ = live(config)
    goes_on(store)


@pytest.mark.soak
@pytest.mark.parametrize("name", presets())
def test_every_preset_makes_progress_in_a_hostile_world(name):
    changes = ["cluster.faults.profile=hostile", "run.hours=8.0", 'curation.store="memory"', "recorder.max_segments=0"]
    try:
        config = load(preset_name=name, overrides=changes)
    except ConfigError as refused:
        pytest.skip(f"is told first where its machines are, or takes real time: {str(refused)[:80]}")
    if config.policy.kind != "surrogate":
        pytest.skip("needs a model")
    result = run_simulation(prepare(config))
    times = [record.time / 3600.0 for record in result.recorder.updates]
    assert len(times) >= 2
    struck_kinds = [kind for kind in KINDS if result.recorder.counts[f"fault/{kind}"]]
    assert len(struck_kinds) > 25
