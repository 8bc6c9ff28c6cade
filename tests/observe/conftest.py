"""Runs of a small simulated cluster, whose recorder and folder are looked at."""

from __future__ import annotations

import json
import math
import sqlite3
import struct
import tomllib
import zlib
from collections.abc import Callable
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dartsim.config import Config, from_tree, load, merge, preset
from dartsim.core.png import SIGNATURE, chunk, encode_png
from dartsim.observe import Instrument, Recorder
from dartsim.observe.recording import ATTEMPTS, SEGMENTS
from dartsim.observe.rundir import STATUS, RunDir
from dartsim.run.execute import execute

SMALL = tomllib.loads((Path(__file__).parents[1] / "run" / "small.toml").read_text(encoding="utf-8"))


def small_config(*, seed: int, hours: float, coupled: bool, max_segments: int) -> Config:
    """Return the configuration of a run of 8 desktops and 2 engines."""
    name = "coupled" if coupled else "dart"
    run = {"hours": hours, "seed": seed, "max_segments": max_segments, "warmup_share": 0.1}
    own: dict[str, Any] = {"run": run, "rollout": {"num_envs": 8}}
    own["curation"] = {"batch": {"min_groups": 2}} if coupled else {"attempts": {"min_group_size": 1}}
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


HOSTILE = "<img src=x onerror=document.title='owned'><script>document.title='owned'</script>"
SCREENS = ("a" * 64, "b" * 64)
"""Pictures that are not shown: a huge one, and a link out of the folder."""


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short simulated run."""
    changes = ["run.hours=0.4", "rollout.num_envs=16", "rollout.num_workers=2", "curation.batch.min_groups=1"]
    path = tmp_path_factory.mktemp("runs") / "a run"
    execute(load("dart", overrides=changes), path)
    return path


@pytest.fixture
def copied(folder: Path, tmp_path: Path) -> Path:
    """A copy of it, to be changed."""
    path = tmp_path / "run"
    path.mkdir()
    for file in folder.iterdir():
        if file.is_file():
            (path / file.name).write_bytes(file.read_bytes())
    return path


@pytest.fixture
def hostile(copied: Path, tmp_path: Path) -> Path:
    """A run's folder with script in its texts, lines and turns that no run writes, and ``SCREENS``.

    Attempt 1 has no turns that can be read, attempt 2 has script in its actions, and refers to the pictures.
    """
    status = json.loads((copied / STATUS).read_text())
    (copied / STATUS).write_text(json.dumps(status | {"name": HOSTILE, "error": HOSTILE}))
    with (copied / ATTEMPTS).open("a") as file:
        file.write('{"attempt": [1]}\n[]\n{"dropped": 3, "time": "x"}\n' + "[" * 100_000 + '\n{"update": null}\n')
    with (copied / SEGMENTS).open("ab") as stays:  # in no state, for no time, and without end
        for state, start, end in ((200, 1.0, 2.0), (0, 3.0, 2.0), (0, 1.0, math.inf)):
            stays.write(struct.pack("<BIBdd", 0, 1, state, start, end))
    turn = [HOSTILE, 0, 0, 0, 1, 1, [None] * 3]
    text = json.dumps([[*turn, f"{screen}.png", None] for screen in SCREENS]).encode()
    with closing(sqlite3.connect(copied / "run.db")) as database:
        database.execute("UPDATE tasks SET instruction = ?", (json.dumps(HOSTILE),))
        for attempt, turns in ((1, b"no turns"), (2, struct.pack("<II", zlib.crc32(text), len(text)) + text)):
            database.execute("UPDATE trajectories SET turns = ? WHERE attempt = ?", (turns, attempt))
        database.commit()
    (tmp_path / "secret.png").write_bytes(encode_png(np.zeros((1, 1, 3), dtype=np.uint8)))
    header = chunk(b"IHDR", (10_000).to_bytes(4) + (10_000).to_bytes(4) + bytes((8, 2, 0, 0, 0)))
    paths = [copied / "screens" / screen[:2] / f"{screen}.png" for screen in SCREENS]
    for path in paths:
        path.parent.mkdir(parents=True)
    paths[0].write_bytes(SIGNATURE + header)
    paths[1].symlink_to(tmp_path / "secret.png")
    return copied
