"""The reaper takes what nobody wants, and nothing else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dartsim.real.containers.leases import EngineClock, LeaseRecord, container_labels, newest_records, wanted
from dartsim.real.containers.owner import new_owner, retire
from dartsim.real.containers.reaper import count_ours, reap, remove_volumes

NOW = 1_000_000.0


@pytest.fixture
def me():
    owner = new_owner()
    yield owner
    retire(owner)


def put(engine: Any, name: str, labels: dict[str, str]) -> None:
    engine.containers.create(name=name, image="a", labels=labels)


def owned(engine: Any, name: str, owner: Any, lease: float = NOW + 60) -> None:
    put(engine, name, container_labels(owner, run="r", slot=0, lease=lease))


def sweep(engine: Any, me: Any, mine=(), everybody: bool = False) -> int:
    return reap(engine, me, mine=lambda: mine, now=NOW, seconds=1.0, everybody=everybody)


def test_everybody_elses_are_left_alone(engine, me):
    put(engine, "theirs", {})
    put(engine, "database", {"com.docker.compose.project": "shop"})
    assert sweep(engine, me) == 0
    assert sweep(engine, me, everybody=True) == 0
    assert set(engine.names) == {"theirs", "database"}


def test_a_dead_owners_go_however_long_their_lease(engine, me):
    dead = new_owner()
    retire(dead)
    owned(engine, "killed", replace(dead, pid=2**22 + 1), lease=NOW + 9999)
    owned(engine, "closed", dead, lease=NOW + 9999)
    assert count_ours(engine) == 2
    assert sweep(engine, me) == 2
    assert not engine.names


def test_a_living_owners_stay_however_old_their_lease(engine, me):
    living = new_owner()
    owned(engine, "living", living, lease=NOW - 9999)
    assert sweep(engine, me) == 0
    assert sweep(engine, me, everybody=True) == 1
    retire(living)


def test_from_elsewhere_the_lease_decides(engine, me):
    elsewhere = replace(me, boot="elsewhere")
    owned(engine, "fresh", elsewhere, lease=NOW + 1)
    owned(engine, "old", elsewhere, lease=NOW - 1)
    put(engine, "garbled", {"dartsim.owner": "?", "dartsim.lease": "soon"})
    assert sweep(engine, me) == 2
    assert set(engine.names) == {"fresh"}


def test_a_newer_record_of_an_owner_elsewhere_keeps_its_containers(engine, me):
    elsewhere = replace(me, boot="elsewhere")
    owned(engine, "old", elsewhere, lease=NOW - 1)
    LeaseRecord(elsewhere, run="r", lease_seconds=60).renew(engine, NOW - 30)
    assert sweep(engine, me) == 0
    assert len(engine.records) == 1
    engine.records.clear()
    LeaseRecord(elsewhere, run="r", lease_seconds=60).renew(engine, NOW - 61)
    assert sweep(engine, me) == 1
    assert not engine.records, "nobody's record goes as well"


def test_own_ones_stay_if_they_are_known(engine, me):
    owned(engine, "held", me)
    owned(engine, "forgotten", me)
    assert sweep(engine, me, mine={"held"}) == 1
    assert set(engine.names) == {"held"}
    assert sweep(engine, me, mine={"held"}, everybody=True) == 0


def test_what_is_held_is_asked_after_the_engine(engine, me):
    held: set[str] = set()
    engine.hooks["list"] = lambda _: (owned(engine, "just made", me), held.add("just made"))
    assert reap(engine, me, mine=lambda: held, now=NOW, seconds=1.0) == 0
    assert set(engine.names) == {"just made"}


def test_one_that_cannot_be_removed_does_not_keep_the_others(engine, me, refusal):
    dead = new_owner()
    retire(dead)
    owned(engine, "stuck", dead)
    owned(engine, "loose", dead)

    def stick(name: str) -> None:
        if "stuck" in name:
            raise refusal(500, "device or resource busy")

    engine.hooks["remove"] = stick
    assert sweep(engine, me) == 1
    assert set(engine.names) == {"stuck"}


def test_a_removal_in_progress_elsewhere_is_waited_for(engine, me, refusal):
    owned(engine, "going", me)

    def busy(name: str) -> None:
        if engine.seen["remove"] < 3:
            raise refusal(409, "removal of container going is already in progress")
        engine.names.clear()

    engine.hooks["remove"] = busy
    assert sweep(engine, me) == 1
    assert engine.seen["remove"] == 3


def test_records_are_replaced_and_dropped(engine, me):
    record = LeaseRecord(me, run="r", lease_seconds=60)
    record.renew(engine, NOW)
    record.renew(engine, NOW + 20)
    assert newest_records(engine.records.values()) == {str(me): NOW + 80}
    assert len(engine.records) == 1
    engine.records.clear()  # somebody prunes volumes
    record.renew(engine, NOW + 40)
    assert len(engine.records) == 1
    engine.volumes.create("dartsim-snapshots", labels=container_labels(me, run="r", slot=0, lease=NOW))
    engine.volumes.create("theirs", labels={})
    remove_volumes(engine, me)
    remove_volumes(engine, me)
    assert set(engine.records) == {"theirs"}


def test_a_shared_volume_of_another_machine_stays_as_long_as_its_owners_newest_lease(engine, me):
    far = replace(new_owner(), boot="another machine")
    engine.volumes.create("dartsim-snapshots", labels=container_labels(far, run="r", slot=0, lease=NOW - 60))
    LeaseRecord(far, run="r", lease_seconds=60).renew(engine, NOW)
    sweep(engine, me)
    assert len(engine.records) == 2
    assert reap(engine, me, mine=lambda: (), now=NOW + 61, seconds=1.0) == 0
    assert not engine.records


def test_labels_of_a_container(me):
    labels = container_labels(me, run="r", slot=3, lease=NOW)
    assert labels == {
        "dartsim.owner": str(me),
        "dartsim.run": "r",
        "dartsim.slot": "3",
        "dartsim.lease": "1000000",
    }
    assert wanted(labels, {}, NOW + 9999)


def test_time_is_the_engines(engine):
    clock = EngineClock()
    assert clock.now(engine) == pytest.approx(NOW)
    assert NOW <= clock.now(engine) < NOW + 3600
    assert engine.seen["info"] == 1
    engine.info = lambda: {"SystemTime": "2026-01-02T03:04:05.123456789Z"}
    assert clock.read(engine) == pytest.approx(1767323045.123456)
