"""Files that are named by what they hold: whole or not there, and found out when they were changed."""

import asyncio
import errno
import gc
import os

import numpy as np
import pytest

from dartsim.core.errors import StoreFault, StoreFull, TornFile
from dartsim.core.png import Screenshot, encode_png, png_of
from dartsim.store.blobs import BlobStore


@pytest.fixture
def blobs(tmp_path):
    return BlobStore(tmp_path / "screens")


def picture(seed=0, height=5, width=7):
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def test_what_is_kept_comes_back(blobs):
    kept = blobs.put(picture())
    assert np.array_equal(blobs.get(kept), picture())
    assert list(blobs.names()) == [kept]


def test_a_picture_that_is_shown_twice_is_one_file(blobs):
    assert blobs.put(picture()) == blobs.put(picture().copy()) == blobs.put(np.asfortranarray(picture()))
    assert len(list(blobs.names())) == 1
    assert blobs.put(picture().reshape(7, 5, 3)) != blobs.put(picture())


@pytest.mark.parametrize("wrong", [np.zeros((2, 2, 3)), np.zeros((2, 2), np.uint8), np.zeros((0, 2, 3), np.uint8)])
def test_what_is_no_screenshot_is_refused(blobs, wrong):
    with pytest.raises(ValueError, match=r"wanted uint8 \[height, width, 3\]"):
        blobs.put(wrong)


@pytest.mark.parametrize("damage", ["truncated", "changed", "swapped", "removed", "empty"])
def test_a_torn_file_is_found_out(blobs, damage):
    kept, other = blobs.put(picture()), blobs.put(picture(1))
    path = blobs.folder / kept[:2] / kept
    data = path.read_bytes()
    if damage == "removed":
        path.unlink()
    else:
        swapped = (blobs.folder / other[:2] / other).read_bytes()
        changed = data[:60] + bytes([data[60] ^ 1]) + data[61:]
        path.write_bytes({"truncated": data[:-5], "changed": changed, "swapped": swapped, "empty": b""}[damage])
    with pytest.raises(TornFile, match=f"{kept} does not hold what was kept"):
        blobs.get(kept)


@pytest.mark.parametrize(
    ("number", "error"), [(errno.ENOSPC, StoreFull), (errno.EDQUOT, StoreFull), (errno.EIO, StoreFault)]
)
def test_a_file_that_cannot_be_written_leaves_nothing_behind(blobs, monkeypatch, number, error):
    def failing(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("pathlib.Path.rename", failing)
    with pytest.raises(error) as raised:
        blobs.put(picture())
    assert type(raised.value) is error
    assert list(blobs.folder.glob("??/*")) == []


def test_pictures_leave_room_for_rows(tmp_path):
    blobs = BlobStore(tmp_path, reserve_bytes=2**60)
    with pytest.raises(StoreFull, match="has no room for another file"):
        blobs.put(picture())


def test_a_durable_file_is_written_through_before_it_is_named(tmp_path, monkeypatch):
    done = []
    fsync, rename = os.fsync, type(tmp_path).rename
    monkeypatch.setattr("os.fsync", lambda handle: (done.append("sync"), fsync(handle)))
    monkeypatch.setattr(type(tmp_path), "rename", lambda path, to: (done.append("name"), rename(path, to))[1])
    BlobStore(tmp_path / "a", durable=True).put(picture())
    assert done == ["sync", "name", "sync"]
    BlobStore(tmp_path / "b").put(picture())
    assert done == ["sync", "name", "sync", "name"]


def test_what_nobody_wants_is_swept(blobs):
    kept, other = blobs.put(picture()), blobs.put(picture(1))
    (blobs.folder / "ab").mkdir(exist_ok=True)
    (blobs.folder / "ab" / "ab.png.1-1.partial").touch()
    blobs.sweep({kept})
    assert [path.name for path in blobs.folder.glob("*/*")] == [kept]
    blobs.remove([other, kept])
    assert list(blobs.names()) == []


def test_what_was_prepared_is_found_and_not_written_again(blobs, monkeypatch):
    shown = picture()
    blobs.put(picture(9))
    asyncio.run(blobs.prepare(shown))
    monkeypatch.setattr("dartsim.store.blobs.png_of", None)
    kept = blobs.put(shown)
    del shown
    blobs.put(picture(9))
    assert kept in set(blobs.names()), "somebody named it"


def test_what_was_prepared_in_vain_is_removed(blobs):
    shown, other = picture(), picture(1)
    asyncio.run(blobs.prepare(shown))
    asyncio.run(blobs.prepare(other))
    assert len(list(blobs.names())) == 2
    del shown
    kept = blobs.put(other)
    assert list(blobs.names()) == [kept]


def test_what_rows_name_outlives_another_picture_of_the_same_content(blobs):
    first, again = picture(), picture()
    kept = blobs.put(first)
    asyncio.run(blobs.prepare(again))
    del again
    blobs.put(picture(9))
    assert np.array_equal(blobs.get(kept), first)
    blobs.remove([kept])
    asyncio.run(blobs.prepare(first))
    blobs.put(picture())
    del first
    blobs.put(picture(9))
    assert np.array_equal(blobs.get(kept), picture())


def test_what_was_begun_while_a_file_was_written_is_that_file(blobs, monkeypatch):
    """Another desktop shows the same screen, and its thread looks in the middle of a ``put``."""
    other = [picture()]

    def slowly(pixels):
        monkeypatch.setattr("dartsim.store.blobs.png_of", png_of)
        asyncio.run(blobs.prepare(other[0]))
        return png_of(pixels)

    monkeypatch.setattr("dartsim.store.blobs.png_of", slowly)
    kept = blobs.put(picture())
    other.clear()
    blobs.put(picture(9))
    assert np.array_equal(blobs.get(kept), picture())


def test_threads_may_prepare_what_others_put_and_forget(blobs):
    """Few contents, many threads: what was put last is there in the end."""

    async def prepare_and_put():
        shown = [picture(seed % 3) for seed in range(6)]
        jobs = [asyncio.create_task(blobs.prepare(one)) for one in shown]
        await asyncio.sleep(0)
        kept = [blobs.put(one) for one in shown[:2]]
        await asyncio.gather(*jobs)
        return kept

    for _ in range(12):
        kept = asyncio.run(prepare_and_put())
        blobs.put(picture(9))
        for number, one in enumerate(kept):
            assert np.array_equal(blobs.get(one), picture(number))


def desktops_file(seed=0):
    return Screenshot(encode_png(picture(seed)))


@pytest.fixture
def moving(tmp_path):
    return BlobStore(tmp_path / "moving", moves=True)


def test_a_desktops_file_leaves_memory_once_it_is_on_disk(moving):
    shown, size = desktops_file(), len(encode_png(picture()))
    name = moving.put(shown)
    path = moving.folder / name[:2] / name
    prepared = desktops_file()
    asyncio.run(moving.prepare(prepared))
    for screenshot in (shown, moving.get(name), prepared):
        assert not [part for part in gc.get_referents(screenshot) if isinstance(part, bytes) and len(part) >= size]
        assert np.array_equal(screenshot, picture())
    path.unlink()
    with pytest.raises(StoreFault, match="could not be read"):
        _ = shown.png


def test_a_file_stays_while_a_screenshot_is_read_from_it(moving):
    """Attempts may share a screenshot: that of a saved state."""
    shown = desktops_file()
    name = moving.put(shown)
    moving.remove([name])
    assert np.array_equal(shown, picture())
    again = moving.put(shown)
    moving.remove([again])
    assert np.array_equal(shown, picture())
    del shown
    moving.put(picture(9))
    assert name not in set(moving.names())


def test_a_file_removed_while_it_was_prepared_again_is_still_in_memory(moving, monkeypatch):
    name, shown, new = moving.put(desktops_file()), desktops_file(), moving._prepare

    def found_and_removed(picture):
        new(picture)
        (moving.folder / name[:2] / name).unlink()

    monkeypatch.setattr(moving, "_prepare", found_and_removed)
    asyncio.run(moving.prepare(shown))
    assert np.array_equal(shown, picture())
    assert np.array_equal(moving.get(moving.put(shown)), picture())


def test_a_swept_folders_files_outlive_a_picture_that_shows_the_same(blobs):
    """A resumed run shows a screen that its rows refer to, and discards that attempt."""
    kept = blobs.put(picture())
    resumed = BlobStore(blobs.folder)
    resumed.sweep({kept})
    again = picture()
    asyncio.run(resumed.prepare(again))
    del again
    resumed.put(picture(9))
    assert np.array_equal(resumed.get(kept), picture())
