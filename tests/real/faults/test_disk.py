"""The disk fills up under the store while attempts run: the run ends, and says so."""

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
    from dartsim.store.database import open_database
    from dartsim.store.sql import SqlStore

    blobs = BlobStore(disk / "screens", reserve_bytes=RESERVE_BYTES)
    return SqlStore(open_database(disk / "run.db", durable=True), blobs=blobs, max_changes=1)


def test_a_full_disk_loses_nothing_that_was_stored(rig, left, desktop_image, small_disk):
    from dartsim.core.errors import StoreFull
    from dartsim.store.load import load_trajectories

    store, ended = opened(small_disk), []

    def enough(cluster):
        ended.append(cluster.trajectories[-1])
        if len(ended) == 3:  # it is told of before it is stored, and finds no room
            leave(small_disk, RESERVE_BYTES - 4096)
        return False

    with pytest.RaisesGroup(StoreFull):
        rig.live(desktop_image, store=store, enough=enough)
    assert len(ended) >= 3

    store.close()
    (small_disk / "filler").unlink()
    again = opened(small_disk)
    stored = dict(again.database.execute("SELECT attempt, reward FROM trajectories"))
    assert stored.items() >= {t.attempt.id: t.reward for t in ended[:2]}.items()
    assert {t.attempt.id for t in load_trajectories(again.database, blobs=again.blobs, attempts=again.live)} == set(
        again.live
    )
    again.close()
