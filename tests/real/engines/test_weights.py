"""Weights as folders: each is there when it was just asked for, whatever came between."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dartsim.core.types import Weights
from dartsim.real.engines import weights
from dartsim.real.engines.errors import WeightsRefused, WeightsTorn
from dartsim.real.engines.weights import RouteTransfer, Spool, file_transfer
from dartsim.real.vlm import export


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@settings(deadline=None, max_examples=30)
@given(asked=st.lists(st.integers(0, 7), min_size=1, max_size=12), keep=st.integers(1, 4))
def test_a_folder_that_was_asked_for_is_there(asked: list[int], keep: int) -> None:
    def write(source: Any, folder: Path, *, like: Path | None = None, dtype: str | None = None) -> Path:
        folder.mkdir(parents=True)
        (folder / "weights").write_text(str(source["a"]))
        return folder

    async def main(root: Path) -> None:
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


def test_a_disk_that_is_full_is_a_fault_of_the_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is tried again, where any other error would end the run."""

    def write(source: Any, folder: Path, *, like: Path | None = None, dtype: str | None = None) -> Path:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(export, "export_weights", write)
    with pytest.raises(WeightsRefused, match=r"version 3 cannot be written: .*No space left"):
        asyncio.run(Spool(tmp_path).folder(Weights(3, {"a": 1})))


def test_a_folder_that_goes_while_requests_are_drained_is_a_fault_of_the_load(tmp_path: Path) -> None:
    def info(folder: Path) -> dict[str, Any]:
        return {"size": (folder / "model.safetensors").stat().st_size}

    transfer: Any = RouteTransfer(init_info={}, update_info=info)
    with pytest.raises(WeightsRefused, match="gone' cannot be read"):
        asyncio.run(transfer.put(None, tmp_path / "gone", 3))


def test_a_folder_can_be_held_only_while_it_is_there(tmp_path: Path) -> None:
    async def main() -> None:
        spool = Spool(tmp_path / "spool")
        (tmp_path / "weights").write_text("not in a folder")
        with pytest.raises(WeightsTorn, match="is gone"):
            async with spool.stable_copy(tmp_path / "gone"):
                raise AssertionError("it is not there")
        with pytest.raises(WeightsRefused, match="cannot be kept"):
            async with spool.stable_copy(tmp_path / "weights"):
                raise AssertionError("it is no folder")
        assert not names(tmp_path / "spool")

    asyncio.run(main())


def test_what_is_told_of_a_folder_is_found_out_before_the_engine_is_paused(tmp_path: Path) -> None:
    asked: list[Path] = []

    class Client:
        def __init__(self) -> None:
            self.sent: list[Any] = []

        async def transfer(self, step: str, body: Any = None) -> None:
            self.sent.append(body)

    def info(folder: Path) -> dict[str, Any]:
        asked.append(folder)
        return {"path": str(folder)}

    async def main() -> None:
        transfer, client = RouteTransfer(init_info={}, update_info=info), Client()
        first, second = tmp_path / "first", tmp_path / "second"
        await transfer.look(first)
        await transfer.put(client, first, 1)  # type: ignore[arg-type]
        assert asked == [first]
        await transfer.look(first)
        await transfer.put(client, second, 2)  # type: ignore[arg-type]
        assert asked == [first, first, second]
        sent = [body["update_info"]["path"] for body in client.sent if body and "update_info" in body]
        assert sent == [str(first), str(second)]

    asyncio.run(main())


def test_a_checksum_is_computed_once_for_all_engines_and_anew_for_a_changed_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    computed: list[Path] = []
    real = weights.digest
    monkeypatch.setattr(weights, "digest", lambda file: computed.append(file) or real(file))
    file = tmp_path / "model.safetensors"
    file.write_bytes(b"first")
    found = [file_transfer().update_info(tmp_path)["sha256"][file.name] for _ in range(3)]
    assert set(found) == {hashlib.sha256(b"first").hexdigest()}
    assert computed == [file]
    file.write_bytes(b"the second")
    assert file_transfer().update_info(tmp_path)["sha256"][file.name] == hashlib.sha256(b"the second").hexdigest()
    assert computed == [file, file]
