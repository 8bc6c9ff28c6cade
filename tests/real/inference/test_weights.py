"""Weights as folders: each is there when it was just asked for, whatever came between."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dartsim.types import Weights
from real.inference.weights import Spool
from real.vlm import export


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@settings(deadline=None, max_examples=30)
@given(asked=st.lists(st.integers(0, 7), min_size=1, max_size=12), keep=st.integers(1, 4))
def test_a_folder_that_was_asked_for_is_there(asked: list[int], keep: int) -> None:
    def write(source: Any, folder: Path, *, like: Path | None = None) -> Path:
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
