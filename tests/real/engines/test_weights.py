"""Weights as folders: each is there when it was just asked for, whatever came between."""

import asyncio
import errno
import tempfile
from pathlib import Path

import pytest

pytest.importorskip("torch")
from hypothesis import given, settings
from hypothesis import strategies as st

from dartsim.core.types import Weights
from dartsim.real.engines.errors import WeightsRefused, WeightsTorn
from dartsim.real.engines.weights import Spool
from dartsim.real.vlm import export

pytestmark = pytest.mark.anyio


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@settings(deadline=None, max_examples=30)
@given(asked=st.lists(st.integers(0, 7), min_size=1, max_size=12), keep=st.integers(1, 4))
def test_a_folder_that_was_asked_for_is_there(asked, keep):
    def write(source, folder: Path, *, like: Path | None = None, dtype: str | None = None) -> Path:
        folder.mkdir(parents=True)
        (folder / "weights").write_text(str(source["a"]))
        return folder

    async def main(root: Path):
        spool = Spool(root, keep=keep)
        for version in asked:
            folder = await spool.folder(Weights(version, {"a": version}))
            assert (folder / "weights").read_text() == str(version)
            assert len(names(root)) <= keep
        newest = list(dict.fromkeys(reversed(asked)))[:keep]
        assert names(root) == sorted(f"version-{v:06d}" for v in newest)

    with tempfile.TemporaryDirectory() as root, pytest.MonkeyPatch.context() as patch:
        patch.setattr(export, "export_weights", write)
        asyncio.run(main(Path(root)))


def test_a_disk_that_is_full_is_a_fault_of_the_load(tmp_path, monkeypatch):
    """It is tried again, where any other error would end the run."""

    def write(source, folder: Path, *, like: Path | None = None, dtype: str | None = None) -> Path:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(export, "export_weights", write)
    with pytest.raises(WeightsRefused, match="version 3"):
        asyncio.run(Spool(tmp_path).folder(Weights(3, {"a": 1})))


async def test_a_folder_can_be_held_only_while_it_is_there(tmp_path):
    spool = Spool(tmp_path / "spool")
    (tmp_path / "weights").write_text("not in a folder")
    with pytest.raises(WeightsTorn, match="is gone"):
        async with spool.stable_copy(tmp_path / "gone"):
            raise AssertionError("it is not there")
    with pytest.raises(WeightsRefused, match="cannot be kept"):
        async with spool.stable_copy(tmp_path / "weights"):
            raise AssertionError("it is no folder")
    assert not names(tmp_path / "spool")
