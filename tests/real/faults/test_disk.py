"""The disk fills up under the store while attempts run: pictures are left out first; then the run ends, and says so."""

import os
import shutil
import subprocess

import pytest

pytestmark = [pytest.mark.docker, pytest.mark.soak]

RESERVE_BYTES = 512 * 1024


@pytest.fixture
def small_disk(tmp_path):
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("a small disk to be filled needs root")
    disk = tmp_path / "disk"
    disk.mkdir()
    options = ["-t", "tmpfs", "-o", "size=6m", "tmpfs", str(disk)]
    if subprocess.run(["mount", *options], capture_output=True, check=False).returncode:
        pytest.skip("a memory file system cannot be mounted here")
    yield disk
    # Lazily: a test that failed may have files open.
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


def leave(disk, num_bytes):
    """Fill a disk until so much is free."""
    too_much = shutil.disk_usage(disk).free - num_bytes
    with (disk / "filler").open("ab") as file:
        file.write(b"\0" * too_much)


def opened(disk):
    from dartsim.store.blobs import BlobStore
    from dartsim.store.database import open_sqlite
    from dartsim.store.sql import SqlStore

    return SqlStore(
        open_sqlite(disk / "run.db", durable=True),
        durability="each",
        keep="all",
        blobs=BlobStore(disk / "screens", reserve_bytes=RESERVE_BYTES),
    )


def test_a_full_disk_loses_nothing_that_was_stored(rig, left, desktop_image, small_disk):
    from dartsim.core.errors import StoreFull
    from dartsim.store.load import load_trajectories

    store = opened(small_disk)
    whole = []
    ended = []

    def enough(cluster):
        ended.append(cluster.trajectories[-1])
        if len(ended) == 2:
            whole.extend(ended)
            leave(small_disk, RESERVE_BYTES - 4096)
        elif len(ended) == 4:
            leave(small_disk, 0)
        return False

    with pytest.raises(StoreFull):
        rig.live(desktop_image, store=store, enough=enough)
    assert len(ended) >= 4, "without room for pictures, it went on"
    assert store.disk_usage.counts["disk_full"] >= 1

    store.engine.dispose()
    (small_disk / "filler").unlink()
    again = opened(small_disk)
    stored = set(again.live) | _dropped(again)
    assert {t.attempt.id for t in ended} <= stored
    torn = []
    found = {
        t.attempt.id: t for t in load_trajectories(again.engine, blobs=again.disk_usage.blobs, on_torn=torn.append)
    }
    for trajectory in whole:
        assert found[trajectory.attempt.id].reward == trajectory.reward
    assert {each.attempt for each in torn}.isdisjoint(t.attempt.id for t in whole)
    again.close()


def _dropped(store):
    from sqlalchemy import select

    from dartsim.store.tables import TRAJECTORIES

    with store.engine.connect() as connection:
        return set(connection.scalars(select(TRAJECTORIES.c.attempt)))
