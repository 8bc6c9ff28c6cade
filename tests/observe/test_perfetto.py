"""The Perfetto trace, read back: slices that nest, and arrows from turn to request to batch to update."""

from __future__ import annotations

import gzip
import json
from bisect import bisect_right
from collections import Counter, defaultdict
from itertools import pairwise
from typing import Any, NamedTuple

import pytest

from dartsim.config import load
from dartsim.observe.perfetto import FLOW, MAX_OTHERS, MAX_TRAINED, perfetto
from dartsim.run.prepare import prepare
from dartsim.run.simulation import run_simulation

Track = tuple[int, int]


class Slice(NamedTuple):
    """One slice of a track."""

    start: int
    end: int
    name: str
    args: dict[str, Any]


class TraceFile:
    """A strict reader of the Chrome trace format, by the rules of the standard viewer.

    Slices of a track must not overlap unless one encloses the other; an arrow has one beginning, then steps, then one
    end, in the order of their times, and each of its points lies in a slice of its track.
    """

    def __init__(self, data: bytes) -> None:
        content = json.loads(gzip.decompress(data))
        assert set(content) == {"displayTimeUnit", "otherData", "traceEvents"}
        self.processes: dict[int, str] = {}
        self.threads: dict[Track, str] = {}
        self.slices: dict[Track, list[Slice]] = defaultdict(list)
        points: dict[int, list[dict[str, Any]]] = defaultdict(list)
        for event in content["traceEvents"]:
            self._read(event, points)
        for slices in self.slices.values():
            slices.sort(key=lambda found: found.start)
            assert all(before.end <= after.start for before, after in pairwise(slices)), "slices overlap"
        self.flows = {number: self._flow(events) for number, events in points.items()}
        self.beginnings = {
            number: (events[0]["args"], self._slice(events[0]).args) for number, events in points.items()
        }

    def _read(self, event: dict[str, Any], points: dict[int, list[dict[str, Any]]]) -> None:
        track = event["pid"], event["tid"]
        kind = event["ph"]
        if kind == "M":
            if event["name"] == "process_name":
                self.processes[event["pid"]] = event["args"]["name"]
            elif event["name"] == "thread_name":
                assert track not in self.threads, "a thread is named twice"
                self.threads[track] = event["args"]["name"]
        elif kind == "X":
            assert isinstance(event["ts"], int)
            assert event["dur"] > 0
            self.slices[track].append(
                Slice(event["ts"], event["ts"] + event["dur"], event["name"], event.get("args", {}))
            )
        else:
            assert kind in "stf", f"unknown phase {kind}"
            assert event["name"] == event["cat"] == FLOW
            points[event["id"]].append(event)

    def _flow(self, events: list[dict[str, Any]]) -> list[tuple[str, str]]:
        kinds = "".join(event["ph"] for event in events)
        assert kinds[0] == "s"
        assert kinds[-1] == "f"
        assert set(kinds[1:-1]) <= {"t"}
        assert events[-1]["bp"] == "e"
        times = [event["ts"] for event in events]
        assert times == sorted(times)
        return [self._bound(event) for event in events]

    def _bound(self, event: dict[str, Any]) -> tuple[str, str]:
        """Return the names of the track and of the slice that a point binds to."""
        return self.threads[event["pid"], event["tid"]], self._slice(event).name

    def _slice(self, event: dict[str, Any]) -> Slice:
        slices = self.slices[event["pid"], event["tid"]]
        place = bisect_right(slices, event["ts"], key=lambda found: found.start) - 1
        assert place >= 0, "a point before the first slice"
        assert slices[place].start <= event["ts"] < slices[place].end, "a point outside of all slices"
        return slices[place]


@pytest.fixture(scope="module")
def result():
    config = load(preset_name="dart-measured", overrides=["run.hours=1.8", "rollout.num_envs=16", "run.seed=3"])
    return run_simulation(prepare(config))


@pytest.fixture(scope="module")
def read(result) -> TraceFile:
    return TraceFile(gzip.compress(json.dumps(perfetto(result.recorder)).encode()))


def test_every_part_has_a_track_and_every_track_slices(read):
    assert list(read.processes.values()) == ["Trainer", "Engines", "Desktops"]
    names = Counter(name.split()[0] for name in read.threads.values())
    assert names == {"desktop": 16, "engine": 4, "trainer": 1, "updates": 1, "batches": 1}
    assert set(read.slices) == set(read.threads)


def test_arrows_lead_from_turn_to_request_to_batch_to_update(read):
    lengths = Counter(map(len, read.flows.values()))
    assert set(lengths) == {2, 4}
    assert lengths[4] > 500
    assert lengths[4] <= MAX_TRAINED
    assert lengths[2] <= MAX_OTHERS
    for points in read.flows.values():
        assert points[0][0].startswith("desktop ")
        assert points[0][1] in ("generating", "weight sync")
        assert points[1][0].startswith("engine ")
        assert points[1][1] in ("busy", "draining")
        if len(points) == 4:
            assert (points[2][0], points[3][0]) == ("batches", "updates")
            assert points[2][1].replace("batch", "update") == points[3][1]


def test_a_wait_for_a_reply_says_whose_turn_it_is(read):
    for number, (asked, shown) in read.beginnings.items():
        assert shown == {**asked, "engine": int(read.flows[number][1][0].removeprefix("engine "))}


def test_arrows_to_an_update_are_its_turns(result, read):
    by_update = Counter(points[3][1] for points in read.flows.values() if len(points) == 4)
    turns = {f"update {record.update}": record.num_turns for record in result.recorder.updates}
    # The newest requests are kept: all turns of a batch, or those of its newer attempts.
    assert all(by_update[name] <= turns[name] for name in turns)
    assert any(by_update[name] == turns[name] for name in turns)


@pytest.mark.parametrize("mode", ["drain", "keep"])
def test_arrows_bind_under_every_sync_mode(mode):
    config = load(
        preset_name="dart",
        overrides=["run.hours=1.0", "rollout.num_envs=8", "rollout.num_workers=2", f"rollout.sync.mode={mode}"],
    )
    found = TraceFile(gzip.compress(json.dumps(perfetto(run_simulation(prepare(config)).recorder)).encode()))
    assert any(len(points) == 4 for points in found.flows.values())
