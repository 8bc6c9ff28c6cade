"""Wheels of the checkout."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def build_wheel() -> Callable[..., Path]:
    """Return a function that builds a wheel, pure Python unless it is asked for the compiled form."""

    def build(root: Path, folder: Path, *, compiled: bool = False) -> Path:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("DARTSIM_COMPILE", str(int(compiled)))
            patch.setenv("CFLAGS", os.environ.get("CFLAGS", ""))  # the build adds to it
            (path,) = WheelBuilder(str(root)).build(directory=str(folder), versions=["standard"])
        return Path(path)

    return build


@pytest.fixture(scope="session")
def wheel(build_wheel: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkout's wheel, pure Python."""
    return build_wheel(ROOT, tmp_path_factory.mktemp("wheel"))
