"""The Perfetto trace of a run's folder, read back: slices that do not overlap, with their attempts."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import pairwise
from math import inf
from typing import Any, NamedTuple

import pytest

from dartsim.config import load
from dartsim.core.errors import ConfigError
from dartsim.observe.perfetto import perfetto
from dartsim.observe.recording import read_attempts, read_segments
from dartsim.run.execute import execute

Track = tuple[int, int]


class Slice(NamedTuple):
    """One slice of a track."""

    start: int
    end: int
    name: str
    args: dict[str, Any]


class TraceFile:
    """A strict reader of the Chrome trace format: slices of a track must not overlap."""

    def __init__(self, content: dict[str, Any]) -> None:
        assert set(content) == {"displayTimeUnit", "traceEvents"}
        self.processes: dict[int, str] = {}
        self.threads: dict[Track, str] = {}
        self.slices: dict[Track, list[Slice]] = defaultdict(list)
        self.seconds: Counter[tuple[str, str]] = Counter()
        for event in content["traceEvents"]:
            self._read(event)
        for slices in self.slices.values():
            slices.sort(key=lambda found: found.start)
            assert all(before.end <= after.start for before, after in pairwise(slices)), "slices overlap"

    def _read(self, event: dict[str, Any]) -> None:
        track = event["pid"], event["tid"]
        kind = event["ph"]
        if kind == "M":
            if event["name"] == "process_name":
                self.processes[event["pid"]] = event["args"]["name"]
            elif event["name"] == "thread_name":
                assert track not in self.threads, "a thread is named twice"
                self.threads[track] = event["args"]["name"]
        else:
            assert kind == "X"
            assert isinstance(event["ts"], int)
            assert event["dur"] > 0
            self.slices[track].append(Slice(event["ts"], event["ts"] + event["dur"], event["name"], event["args"]))
            self.seconds[event["cat"], event["name"]] += event["dur"] / 1e6


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("traced") / "run"
    execute(load("dart-measured", overrides=["run.hours=1.8", "rollout.num_envs=16", "run.seed=3"]), folder)
    return folder


@pytest.fixture(scope="module")
def read(folder) -> TraceFile:
    return TraceFile(perfetto(folder))


def test_every_part_has_a_track_and_every_track_slices(read):
    assert list(read.processes.values()) == ["Desktops", "Engines", "Trainer"]
    names = Counter(name.split()[0] for name in read.threads.values())
    assert names == {"slot": 16, "engine": 4, "trainer": 1, "updates": 1}
    assert set(read.slices) == set(read.threads)


def test_slices_last_as_long_as_the_recorded_stays(folder, read):
    for name, own in zip(("desktops", "engines"), read_segments(folder / "segments.bin", until=inf), strict=False):
        found = sum(seconds for (category, _), seconds in read.seconds.items() if category == name)
        assert found == pytest.approx(sum(end - start for *_, start, end in own), abs=0.1)


def test_slices_of_desktops_name_the_attempt_that_was_played(folder, read):
    played = read_attempts(folder / "attempts.jsonl")
    named = {found.args["attempt"] for slices in read.slices.values() for found in slices if "task" in found.args}
    assert {number for number, row in played.items() if row.columns.num_turns} <= named <= set(played)


def test_a_run_without_stays_has_no_trace(tmp_path):
    execute(load("dart", overrides=["run.hours=0.1", "run.max_segments=0"]), tmp_path / "run")
    with pytest.raises(ConfigError, match="no recorded stays"):
        perfetto(tmp_path / "run")
