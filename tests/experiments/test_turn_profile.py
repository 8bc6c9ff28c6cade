"""Where the events and the time of a turn go."""

import pytest

from dartsim.core.compiled import is_compiled
from dartsim.sim.event_heap import EventHeap
from experiments.turn_profile import PARTS, event_rows, part_of, part_rows, profile


@pytest.mark.skipif(is_compiled(), reason="compiled functions cannot be counted")
def test_a_turn_arrives_once_and_wakes_its_attempt_three_times():
    call_at = EventHeap.call_at
    found = profile(4, 0.2)
    per_turn = {name: row["scheduled"] for name, row in found["calls"].items()}
    assert per_turn["_arrived"] == pytest.approx(1.0, abs=0.1)
    assert 3.0 <= per_turn["SimTask.task_wakeup"] < 5.0
    assert {*found["parts_us"]} <= {*PARTS.values(), "rest"}
    assert sum(found["parts_us"].values()) == pytest.approx(found["cpu_us_per_turn"], abs=0.5)
    assert EventHeap.call_at is call_at


def test_the_tables_name_what_happens_and_set_the_parts_side_by_side():
    def size(num_envs, us):
        calls = {"_arrived": {"scheduled": 1.0, "canceled": 0.0}, "new": {"scheduled": 0.5, "canceled": 0.25}}
        return {"num_envs": num_envs, "calls": calls, "cpu_us_per_turn": us, "parts_us": {"engines": us / 2}}

    figures = {"sizes": [size(80, 40.0), size(5_000, 80.0)]}
    assert event_rows(figures)[1] == [["a request arrives at its engine", "1.00", "0.00"], ["`new`", "0.50", "0.25"]]
    assert part_rows(figures) == (
        ["µs per turn", "80 desktops", "5,000 desktops"],
        [["all", "40.0", "80.0"], ["engines", "20.0", "40.0"]],
    )


def test_a_path_belongs_to_the_first_part_that_fits():
    assert part_of("/a/dartsim/rollout/deadlines.py") == "deadlines"
    assert part_of("/a/dartsim/rollout/actors.py") == "attempts"
    assert part_of("/usr/lib/python3.11/asyncio/timeouts.py") == "tasks and futures"
    assert part_of("<string>") == "named tuples"
    assert part_of("/usr/lib/python3.11/gc.py") == "rest"
