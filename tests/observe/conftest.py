"""Runs of a small simulated cluster, whose recorder and folder are looked at."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from dartsim.config import Config, from_tree, merge, preset
from dartsim.observe import Instrument, Recorder
from dartsim.observe.rundir import RunDir
from dartsim.run.execute import execute

SMALL = tomllib.loads((Path(__file__).parents[1] / "run" / "small.toml").read_text(encoding="utf-8"))


def small_config(*, seed: int, hours: float, coupled: bool, max_segments: int) -> Config:
    """Return the configuration of a run of 8 desktops and 2 engines."""
    name = "coupled" if coupled else "dart"
    run = {"hours": hours, "seed": seed, "max_segments": max_segments, "warmup_share": 0.1}
    own: dict[str, Any] = {"run": run, "rollout": {"num_envs": 8}}
    own["curation"] = {"max_ahead": 4, "batch": {"min_groups": 2}} if coupled else {"attempts": {"min_group_size": 1}}
    return from_tree(merge(merge(preset(name), SMALL), own) | {"preset": name})


@pytest.fixture(scope="session")
def make_run() -> Callable[..., RunDir]:
    """Return a function that makes a run in a folder."""

    def make(path: Path, *, seed: int = 0, hours: float = 2.0) -> RunDir:
        return execute(small_config(seed=seed, hours=hours, coupled=False, max_segments=20_000), path)[0]

    return make


@pytest.fixture(scope="session")
def make_recorder(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Recorder]:
    """Return a function that makes a run and returns its recorder; equal runs are made once."""

    @cache
    def make(
        *,
        seed: int = 0,
        hours: float = 2.0,
        coupled: bool = False,
        max_segments: int = 20_000,
        instruments: tuple[Instrument, ...] = (),
    ) -> Recorder:
        config = small_config(seed=seed, hours=hours, coupled=coupled, max_segments=max_segments)
        return execute(config, tmp_path_factory.mktemp("run") / "run", instruments)[1].recorder

    return make
