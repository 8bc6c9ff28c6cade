"""Checkpoint folders: whole or not there, and what they say of themselves is checked."""

import json
import os

import pytest

from dartsim.core.errors import TornFile
from dartsim.store.checkpoints import checkpoint_folders, read_checkpoint, write_checkpoint


def fill(folder):
    (folder / "weights").write_bytes(b"12345")
    (folder / "deep").mkdir()
    (folder / "deep" / "optimizer").write_bytes(b"678")


def test_a_checkpoint_tells_what_it_holds(tmp_path):
    written = write_checkpoint(tmp_path / "checkpoints", 12, fill)
    assert (written.update, written.folder.name) == (12, "update-00000012")
    assert read_checkpoint(written.folder) == written
    assert checkpoint_folders(tmp_path / "checkpoints") == [written.folder]
    assert (written.folder / "deep" / "optimizer").read_bytes() == b"678"


def test_one_that_fails_is_never_there(tmp_path):
    def failing(folder):
        fill(folder)
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError):
        write_checkpoint(tmp_path, 1, failing)
    assert [path.name for path in tmp_path.iterdir()] == ["update-00000001.partial"]
    assert write_checkpoint(tmp_path, 1, fill).update == 1
    assert [path.name for path in tmp_path.iterdir()] == ["update-00000001"]


def test_one_of_an_update_that_did_not_happen_gives_way(tmp_path):
    first = write_checkpoint(tmp_path, 1, lambda folder: (folder / "old").touch())
    second = write_checkpoint(tmp_path, 1, fill)
    assert first.folder == second.folder
    assert not (second.folder / "old").exists()
    assert first.digest != second.digest


def test_everything_is_written_through_before_it_is_named(tmp_path, monkeypatch):
    done = []
    fsync, rename = os.fsync, type(tmp_path).rename
    monkeypatch.setattr("os.fsync", lambda handle: (done.append("sync"), fsync(handle)))
    monkeypatch.setattr(type(tmp_path), "rename", lambda path, to: (done.append("name"), rename(path, to))[1])
    write_checkpoint(tmp_path, 1, fill)
    assert done == ["sync"] * 5 + ["name", "sync"]  # three files, two folders; then the folder around


@pytest.mark.parametrize("damage", ["shorter", "changed", "missing", "no manifest", "half a manifest", "no update"])
def test_a_damaged_one_is_found_out(tmp_path, damage):
    folder = write_checkpoint(tmp_path, 1, fill).folder
    weights, manifest = folder / "weights", folder / "manifest.json"
    if damage == "shorter":
        weights.write_bytes(b"1234")
    elif damage == "changed":
        weights.write_bytes(b"12346")
    elif damage == "missing":
        weights.unlink()
    elif damage == "no manifest":
        manifest.unlink()
    elif damage == "half a manifest":
        manifest.write_bytes(manifest.read_bytes()[:-9])
    else:
        manifest.write_text(json.dumps({"files": {}}))
    with pytest.raises(TornFile, match=str(folder)):
        read_checkpoint(folder)
    if damage == "changed":  # of the same size
        assert read_checkpoint(folder, check_files=False).update == 1
