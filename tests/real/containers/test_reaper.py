"""The reaper takes what nobody wants, and nothing else."""

from dataclasses import replace

import pytest

from dartsim.real.containers.owner import LEASE_SECONDS, new_owner, owner_labels, retire
from dartsim.real.containers.reaper import count_ours, reap, remove_volumes


@pytest.fixture
def me():
    owner = new_owner()
    yield owner
    retire(owner)


def put(engine, name: str, labels: dict[str, str]):
    engine.containers.create(name=name, image="a", labels=labels)


def owned(engine, name: str, owner, age: float = 0.0):
    put(engine, name, owner_labels(owner, run="r"))
    engine.names[name].made -= age


def sweep(engine, me, mine=(), everybody: bool = False) -> int:
    return reap(engine, me, mine=lambda: mine, seconds=1.0, everybody=everybody)


def test_everybody_elses_are_left_alone(engine, me):
    put(engine, "theirs", {})
    put(engine, "database", {"com.docker.compose.project": "shop"})
    assert sweep(engine, me) == 0
    assert sweep(engine, me, everybody=True) == 0
    assert set(engine.names) == {"theirs", "database"}


def test_a_dead_owners_go_at_once(engine, me):
    dead = new_owner()
    retire(dead)
    owned(engine, "killed", replace(dead, pid=2**22 + 1))
    owned(engine, "closed", dead)
    assert count_ours(engine) == 2
    assert sweep(engine, me) == 2
    assert not engine.names


def test_a_living_owners_stay_however_old(engine, me):
    living = new_owner()
    owned(engine, "living", living, age=2 * LEASE_SECONDS)
    assert sweep(engine, me) == 0
    assert sweep(engine, me, everybody=True) == 1
    retire(living)


def test_from_elsewhere_their_age_by_the_engines_clock_decides(engine, me):
    elsewhere = replace(me, boot="elsewhere")
    owned(engine, "fresh", elsewhere, age=LEASE_SECONDS - 1)
    owned(engine, "old", elsewhere, age=LEASE_SECONDS + 1)
    put(engine, "garbled", {"dartsim.owner": "?"})
    assert sweep(engine, me) == 1
    assert set(engine.names) == {"fresh", "garbled"}
    engine.time += LEASE_SECONDS
    assert sweep(engine, me) == 2


def test_own_ones_stay_if_they_are_known(engine, me):
    owned(engine, "held", me)
    owned(engine, "forgotten", me)
    assert sweep(engine, me, mine={"held"}) == 1
    assert set(engine.names) == {"held"}
    assert sweep(engine, me, mine={"held"}, everybody=True) == 0


def test_what_is_held_is_asked_after_the_engine(engine, me):
    held: set[str] = set()
    engine.hooks["list"] = lambda _: (owned(engine, "just made", me), held.add("just made"))
    assert reap(engine, me, mine=lambda: held, seconds=1.0) == 0
    assert set(engine.names) == {"just made"}


def test_one_that_cannot_be_removed_does_not_keep_the_others(engine, me, refusal):
    dead = new_owner()
    retire(dead)
    owned(engine, "stuck", dead)
    owned(engine, "loose", dead)

    def stick(name: str):
        if "stuck" in name:
            raise refusal(500, "device or resource busy")

    engine.hooks["remove"] = stick
    assert sweep(engine, me) == 1
    assert set(engine.names) == {"stuck"}


def test_a_removal_in_progress_elsewhere_is_waited_for(engine, me, refusal):
    owned(engine, "going", me)

    def busy(name: str):
        if engine.seen["remove"] < 3:
            raise refusal(409, "removal of container going is already in progress")
        engine.names.clear()

    engine.hooks["remove"] = busy
    assert sweep(engine, me) == 1
    assert engine.seen["remove"] == 3


def test_volumes_go_with_their_owners(engine, me):
    far = replace(me, boot="another machine")
    for name, owner in (("ours", me), ("far", far)):
        engine.volumes.create(name, labels=owner_labels(owner, run="r"))
    engine.volumes.create("theirs", labels={})
    sweep(engine, me)
    remove_volumes(engine, me)
    assert set(engine.shared) == {"far", "theirs"}
    engine.time += LEASE_SECONDS
    sweep(engine, me)
    assert set(engine.shared) == {"theirs"}
