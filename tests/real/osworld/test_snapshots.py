"""Saved states of virtual machines, with a container that answers: what is kept on our side, and what is deleted."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from dartsim.real.osworld.errors import SnapshotFailed
from dartsim.real.osworld.snapshots import DesktopSnapshots, SavedStates


class Machine:
    """A container whose program keeps states, and the desktop in it."""

    engine = SimpleNamespace(identity="engine")
    spec = SimpleNamespace(state_command=("vm",))

    def __init__(self, files: Path | None):
        self.files = files
        self.taken: Path | None = None
        self.kept: set[str] = set()
        self.fails = False

    async def exec(self, argv: Sequence[str]) -> tuple[int, bytes]:
        await asyncio.sleep(1.0)
        _, what, key = argv
        if self.fails:
            return 1, b"no room"
        if what == "save":
            self.kept.add(key)
        elif what == "delete":
            self.kept.discard(key)
        return 0, b"123"

    @contextmanager
    def saving(self) -> Iterator[Path | None]:
        yield self.files

    @asynccontextmanager
    async def restoring(self, files: Path | None) -> AsyncIterator[None]:
        yield
        self.taken = files


def snapshots(machine, folder: Path) -> DesktopSnapshots:
    return DesktopSnapshots(machine, lambda: machine, SavedStates(folder / "states"))


async def test_files_of_the_set_up_are_kept_with_the_state(tmp_path):
    files = tmp_path / "attempt"
    files.mkdir()
    (files / "expected.txt").write_text("one")
    machine = Machine(files)
    saved = snapshots(machine, tmp_path)
    assert await saved.save("a") == 123
    (files / "expected.txt").write_text("changed by the attempt")
    await saved.restore("a")
    assert machine.taken is not None
    assert (machine.taken / "expected.txt").read_text() == "one"
    (files / "other.txt").write_text("two")
    (files / "expected.txt").unlink()
    await saved.save("a")
    assert [path.name for path in machine.taken.iterdir()] == ["other.txt"]
    await saved.delete("a")
    assert not machine.taken.exists()
    with pytest.raises(SnapshotFailed, match="no saved state"):
        await saved.restore("a")


async def test_what_a_cancelled_save_has_left_is_deleted(tmp_path):
    machine = Machine(None)
    saved = snapshots(machine, tmp_path)
    saving = asyncio.create_task(saved.save("a"))
    await asyncio.sleep(0.5)
    saving.cancel()
    await asyncio.wait([saving])
    machine.kept.add("a")  # the program went on
    with pytest.raises(SnapshotFailed, match="no saved state"):
        await saved.restore("a")
    await saved.delete("a")
    assert not machine.kept


async def test_a_state_is_known_until_it_is_deleted(tmp_path):
    machine = Machine(None)
    saved = snapshots(machine, tmp_path)
    await saved.save("a")
    machine.fails = True
    with pytest.raises(SnapshotFailed, match="no room"):
        await saved.delete("a")
    machine.fails = False
    await saved.delete("a")
    assert not machine.kept


async def test_a_save_that_fails_keeps_nothing_under_its_key(tmp_path):
    machine = Machine(None)
    saved = snapshots(machine, tmp_path)
    await saved.save("a")
    machine.fails = True
    with pytest.raises(SnapshotFailed, match="no room"):
        await saved.save("a")
    with pytest.raises(SnapshotFailed, match="no saved state"):
        await saved.restore("a")
