"""The program that runs QEMU in the container, without QEMU: what it keeps of states, and what it deletes."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from dartsim.real.desktop import recipe

BLOCK = 4096


@pytest.fixture
def program(tmp_path, monkeypatch) -> ModuleType:
    path = Path(recipe.__file__).with_name("files") / "vm-run.py"
    spec = importlib.util.spec_from_file_location("vm_run", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "SNAPSHOTS", tmp_path)
    return module


def state(folder: Path):
    folder.mkdir()
    (folder / "memory").write_bytes(b"x" * BLOCK)


def test_a_state_is_deleted_with_what_a_save_that_was_cut_short_has_left(program, tmp_path):
    for name in ("a-1", "a-1.0f.new", "a-1.1e.new", "a-11", "a-11.0f.new", "b-1"):
        state(tmp_path / name)
    program.delete("a-1")
    program.delete("never-saved")
    assert {folder.name for folder in tmp_path.iterdir()} == {"a-11", "a-11.0f.new", "b-1"}


def test_states_take_their_quota_and_leave_room_on_the_disk(program, tmp_path, monkeypatch):
    monkeypatch.setattr(program, "RESERVE", 0)
    monkeypatch.setenv("STATES_MIB", "1")
    assert program.room() == 2**20
    state(tmp_path / "a-1")
    assert program.room() == 2**20 - program.bytes_of(tmp_path)
    monkeypatch.setattr(program, "RESERVE", 2**60)
    assert program.room() < 0
    with pytest.raises(program.Failed, match="no room"):
        program.save("a-2")


def test_a_state_that_is_not_there_is_told_from_a_failure(program, capsys):
    with pytest.raises(SystemExit) as ended:
        program.restore("never-saved")
    assert ended.value.code == program.NOT_THERE
    assert "never-saved" in capsys.readouterr().err
