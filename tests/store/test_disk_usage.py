"""Disk space: what ended first makes room, live trajectories keep what they need, and a full disk stops no run."""

import errno
import os
import shutil
import subprocess

import numpy as np
import pytest
from sqlalchemy import func, select

from dartsim.core.errors import StoreFull
from dartsim.core.types import Drop, Observation, Reply, Turn
from dartsim.curation.success_pool import SuccessPool
from dartsim.store.blobs import BlobStore
from dartsim.store.database import open_sqlite
from dartsim.store.disk_usage import AT_ONCE, DiskUsage
from dartsim.store.load import load_trajectories
from dartsim.store.sql import SqlStore
from dartsim.store.tables import BLOBS, TURNS

KIB = 2**10


def seen(made, number, pictures=1):
    """A trajectory whose pictures take about 1.5 KiB each."""
    turns = tuple(
        Turn(Observation(made.screen(100 * number + place, 16, 32), "Save the document."), Reply("WAIT", 3, 3, 0, 1, 1))
        for place in range(pictures)
    )
    return made.ended(number, turns=turns)


@pytest.fixture
def blobs(tmp_path):
    return BlobStore(tmp_path / "screens", reserve_bytes=0)


def whole(store):
    torn = []
    found = load_trajectories(store.engine, blobs=store.disk_usage.blobs, on_torn=torn.append)
    return [trajectory.attempt.id for trajectory in found], [one.attempt for one in torn]


def on_disk(store):
    files = sum(path.stat().st_size for path in store.disk_usage.blobs.folder.glob("??/*"))
    with store.engine.connect() as connection:
        rows = sum(len(action) + 64 for action in connection.scalars(select(TURNS.c.action)))
        assert (connection.scalar(select(func.sum(BLOBS.c.num_bytes))) or 0) == files
    return files + rows


def test_what_ended_first_makes_room(place, made, blobs):
    store = place.store(durability="each", keep="all", blobs=blobs, max_disk_gib=20 * KIB / 2**30)
    for number in range(40):
        store.record(seen(made, number))
        if number % 4:
            store.drop([seen(made, number)], Drop.STALE)
        assert on_disk(store) == store.disk_usage.used_bytes <= 20 * KIB
    kept, gone = whole(store)
    live = list(range(0, 40, 4))
    assert set(live) <= set(kept)
    ended = [number for number in range(40) if number % 4]
    dropped_and_kept = [number for number in kept if number % 4]
    assert dropped_and_kept == ended[len(ended) - len(dropped_and_kept) :]
    assert gone == ended[: len(ended) - len(dropped_and_kept)]
    assert store.disk_usage.counts["forgotten"] == len(gone)
    assert place.store(blobs=blobs, keep="all").disk_usage.used_bytes == on_disk(store)


def test_a_picture_that_a_live_trajectory_shows_too_stays(place, made, blobs):
    store = place.store(durability="each", keep="all", blobs=blobs, max_disk_gib=6 * KIB / 2**30)
    shared = seen(made, 1).turns
    for number in range(2):
        store.record(made.ended(number, turns=shared))
    store.drop([made.plain(0)], Drop.STALE)
    for number in range(2, 8):
        store.record(seen(made, number))
        store.drop([made.plain(number)], Drop.STALE)
    kept, gone = whole(store)
    assert 1 in kept
    assert 0 in gone


@pytest.mark.parametrize("settled", [False, True])
def test_a_picture_that_a_new_trajectory_shows_too_stays(place, made, blobs, settled):
    """Whether it is that for which room is made, or one that waits for its transaction."""
    store = place.store(keep="all", blobs=blobs, max_disk_gib=7 * KIB / 2**30, settled=settled)
    first = seen(made, 0, pictures=3)
    shared = first.turns[:1]
    store.record(first)
    store.drop([made.plain(0)], Drop.STALE)
    store.flush()
    store.record(made.ended(1, turns=shared))  # waits, if anything does
    store.record(made.ended(2, turns=(*seen(made, 2, pictures=2).turns, *first.turns[:2])))
    assert store.disk_usage.counts["forgotten"] == 1
    store.flush()
    again = place.store(keep="all", blobs=blobs)
    again.recover()
    kept, torn = whole(again)
    assert (kept, torn) == ([1, 2], [0])
    on_disk(again)


def test_the_success_pool_keeps_what_it_holds(place, made, blobs):
    store = place.store(durability="each", keep="all", blobs=blobs, max_disk_gib=8 * KIB / 2**30)
    pool = SuccessPool()
    success = seen(made, 0)
    store.record(success)
    pool.learn([success], now=1.0)
    store.keep_successes(pool.stored("check"))
    store.drop([success], Drop.ALL_SOLVED)
    for number in range(1, 10):
        store.record(seen(made, number))
        store.drop([made.plain(number)], Drop.STALE)
    assert 0 in whole(store)[0]


def test_when_all_is_live_new_pictures_are_left_out_and_counted(place, made, blobs):
    store = place.store(durability="each", blobs=blobs, max_disk_gib=8 * KIB / 2**30)
    for number in range(8):
        store.record(seen(made, number))
        assert on_disk(store) <= 8 * KIB + 8 * 68
    kept, torn = whole(store)
    assert torn == list(range(len(kept), 8))
    assert 3 <= len(kept) < 8
    assert store.disk_usage.counts["over_quota"] == len(torn)
    store.lease(made.batch([seen(made, number) for number in range(8)]))
    store.trained(made.batch([seen(made, number) for number in range(8)]), 1)


def test_a_full_disk_leaves_pictures_out_and_goes_on(place, made, blobs, monkeypatch):
    store = place.store(durability="each", blobs=blobs)
    store.record(seen(made, 0))

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(BlobStore, "_write", full)
        store.record(seen(made, 1, pictures=2))
    store.record(seen(made, 2))
    assert whole(store) == ([0, 2], [1])
    assert store.disk_usage.counts["disk_full"] == 2
    store.lease(made.batch([seen(made, 1)]))
    store.trained(made.batch([seen(made, 1)]), 1)


def test_a_disk_that_fails_is_counted_apart(place, made, blobs, monkeypatch):
    store = place.store(durability="each", blobs=blobs)

    def broken(*_):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(BlobStore, "_write", broken)
    store.record(seen(made, 1))
    assert store.disk_usage.counts == {"store_fault": 1}


def test_what_ended_together_is_forgotten_in_small_transactions(place, made, monkeypatch):
    store = place.store(durability="batched", keep="live")
    ended = [made.plain(number) for number in range(2 * AT_ONCE + 7)]
    for trajectory in ended:
        store.record(trajectory)
    store.flush()
    numbers, forget = [], DiskUsage.forget

    def counted(contents, connection, attempts, **named):
        numbers.append(len(attempts))
        return forget(contents, connection, attempts, **named)

    monkeypatch.setattr(DiskUsage, "forget", counted)
    store.drop(ended, Drop.STALE)
    store.flush()
    assert numbers == [AT_ONCE, AT_ONCE, 7]
    assert whole(store)[0] == []


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 8 MiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = shutil.which("mount")
    if os.geteuid() != 0 or mount is None:
        pytest.skip("only root can mount a small file system")
    done = subprocess.run([mount, "-t", "tmpfs", "-o", "size=8m", "tmpfs", folder], capture_output=True, check=False)
    if done.returncode:
        pytest.skip("no file system can be mounted here")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


def test_a_disk_that_is_really_full(small_disk, made):
    """Pictures leave room for rows; without that, the database says what is the matter, and goes on when it can."""
    blobs = BlobStore(small_disk / "screens", reserve_bytes=6 * 2**20)
    store = SqlStore(open_sqlite(small_disk / "run.db"), durability="each", keep="all", blobs=blobs)
    number = 0
    while not store.disk_usage.counts["disk_full"]:
        picture = np.random.default_rng(number).integers(0, 256, (64, 64, 3), dtype=np.uint8)
        turn = Turn(Observation(picture, "Save the document."), Reply("WAIT", 3, 3, 0, 1, 1))
        store.record(made.ended(number, turns=(turn,)))
        number += 1
    assert number > 20
    kept, torn = whole(store)
    assert (kept, torn) == (list(range(number - 1)), [number - 1])

    (small_disk / "ballast").write_bytes(bytes(shutil.disk_usage(small_disk).free))

    def fill():
        nonlocal number
        while number < 1000:
            store.record(made.plain(number))
            number += 1

    with pytest.raises(StoreFull, match="make room, then resume the run"):
        fill()
    (small_disk / "ballast").unlink()
    store.close()
    assert whole(store)[0] == [n for n in range(number + 1) if n != torn[0]]
    store.close()
