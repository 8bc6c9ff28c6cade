"""Where the events and the time of a turn go."""

import pytest

from dartsim.core.compiled import is_compiled
from dartsim.sim.event_heap import EventHeap
from experiments.turn_profile import PARTS, part_of, profile


@pytest.mark.skipif(is_compiled(), reason="compiled functions cannot be counted")
def test_a_turn_arrives_once_and_wakes_its_attempt_three_times():
    call_at = EventHeap.call_at
    events, parts = profile(4, 0.2)
    names, scheduled = (list(column.cells) for column in events.columns[:2])
    per_turn = dict(zip(names, map(float, scheduled), strict=True))
    assert per_turn["_arrived"] == pytest.approx(1.0, abs=0.1)
    assert 3.0 <= per_turn["SimTask.task_wakeup"] < 5.0
    assert {*parts.columns[0].cells} <= {*PARTS.values(), "rest"}
    assert EventHeap.call_at is call_at


def test_a_path_belongs_to_the_first_part_that_fits():
    assert part_of("/a/dartsim/rollout/deadlines.py") == "deadlines"
    assert part_of("/a/dartsim/rollout/actors.py") == "attempts"
    assert part_of("/usr/lib/python3.11/asyncio/timeouts.py") == "tasks and futures"
    assert part_of("<string>") == "rest"
