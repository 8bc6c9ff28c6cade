"""Folders for what a process writes: gone with it, or removed by a later one if it was killed."""

import os
import signal
import subprocess
import sys

import pytest

import dartsim.real.scratch
from dartsim.real.scratch import scratch, scratch_folder, sweep

KILLED = (
    "import os, signal, sys; from dartsim.real.scratch import scratch\n"
    "(scratch(sys.argv[1], sys.argv[2]) / 'file').write_text('x')\n"
    "os.kill(os.getpid(), signal.SIGKILL)"
)


def killed(kind, folder):
    """Let a process make a folder and be killed."""
    done = subprocess.run([sys.executable, "-c", KILLED, kind, str(folder)], env={"PYTHONPATH": ":".join(sys.path)})
    assert done.returncode == -signal.SIGKILL


def test_what_a_killed_process_left_is_removed_by_the_next_one(tmp_path):
    killed("learner", tmp_path)
    (left,) = tmp_path.iterdir()
    assert (left / "file").exists()
    mine = scratch("learner", tmp_path)
    again = scratch("learner", tmp_path)
    assert sorted(tmp_path.iterdir()) == sorted([mine, again]), "those of a living process stay"
    assert mine.stat().st_mode & 0o777 == 0o700


def test_what_is_not_ours_to_judge_stays(tmp_path):
    mine = scratch("learner", tmp_path)
    machine, pid, _ = mine.name.split("-")[2:5]
    elsewhere = "000000" if machine != "000000" else "111111"
    kept = [
        f"dartsim-learner-{elsewhere}-{pid}-1-0",
        f"dartsim-engines-{machine}-{pid}-1-0",
        "dartsim-learner-abcdefgh",
        "dartsim-learner-",
    ]
    for name in [*kept, f"dartsim-learner-{machine}-{pid}-1-0"]:
        (tmp_path / name).mkdir()
    assert sweep("learner", tmp_path) == 1, "a process of that number that began at another time"
    assert {path.name for path in tmp_path.iterdir()} == {*kept, mine.name}
    assert int(pid, 16) == os.getpid()


def test_a_folder_is_gone_with_its_block(tmp_path):
    def work():
        with scratch_folder("engines", tmp_path) as folder:
            (folder / "file").write_text("x")
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        work()
    assert list(tmp_path.iterdir()) == []


def test_where_no_process_can_be_looked_at_folders_are_made_all_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr(dartsim.real.scratch, "process_scope", lambda: "")
    folder = scratch("ray", tmp_path)
    assert folder.is_dir()
    assert sweep("ray", tmp_path) == 0
    assert folder.is_dir()


def test_a_session_of_ray_fits_into_the_path_of_a_socket():
    folder = scratch("ray", "/tmp")
    try:
        longest = folder / "session_2026-11-21_13-05-01_123456_4194303" / "sockets" / "plasma_store"
        assert len(str(longest)) <= 107
    finally:
        folder.rmdir()
