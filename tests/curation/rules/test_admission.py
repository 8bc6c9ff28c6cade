"""Admission rules: bounds on places, alone and together."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dartsim.curation import GroupCounts
from dartsim.curation.rules.admission import GroupBounds


def bounds_of(**bounds):
    """Return the rule with bounds in groups: a batch is one group."""
    found = {f"{name}_batches": None if number is None else float(number) for name, number in bounds.items()}
    return GroupBounds(GroupBounds.Parameters(**found), batch_groups=1, group_size=2)


COUNTS = st.integers(0, 9)
BOUNDS = st.none() | st.integers(1, 12)
PLACES = st.builds(GroupCounts, COUNTS, COUNTS, COUNTS, COUNTS)
RULES = st.builds(bounds_of, ahead=BOUNDS, open=BOUNDS, ready=BOUNDS, waiting=BOUNDS)


@pytest.mark.parametrize(
    ("bounds", "places", "lacks"),
    [
        ({"ahead": 8}, GroupCounts(1, 2, 3, 1), None),
        ({"ahead": 8}, GroupCounts(1, 2, 3, 2), "8 groups are ahead of published weights, at most 8 may be"),
        ({"open": 2}, GroupCounts(1, 9, 9, 9), None),
        ({"open": 2}, GroupCounts(2, 0, 0, 0), "2 groups are running, at most 2 may be"),
        ({"ready": 3}, GroupCounts(9, 2, 9, 9), None),
        ({"ready": 3}, GroupCounts(0, 4, 0, 0), "4 groups are ready, at most 3 may be"),
        ({"waiting": 3}, GroupCounts(1, 1, 9, 9), None),
        ({"waiting": 3}, GroupCounts(1, 2, 0, 0), "3 groups are waiting for an update, at most 3 may be"),
    ],
)
def test_each_bound_counts_its_own_places(bounds, places, lacks):
    rule = bounds_of(**bounds)
    assert rule.blocked_by(places) == lacks
    assert not rule.unbounded


@given(PLACES)
def test_without_bounds_there_is_always_room(places):
    assert bounds_of().blocked_by(places) is None
    assert bounds_of().unbounded


@given(RULES, PLACES, st.integers(0, 3))
def test_one_group_more_anywhere_never_makes_room(rule, places, where):
    more = places._replace(**{places._fields[where]: places[where] + 1})
    assert rule.blocked_by(places) is None or rule.blocked_by(more) is not None


@given(RULES, st.lists(st.sampled_from(["begin", "complete", "lease", "train", "publish"]), max_size=60))
def test_no_bound_is_ever_passed(rule, moves):
    """Whatever happens to groups, counts stay within every bound that only beginning a group can pass."""
    places = GroupCounts()
    for move in moves:
        if move == "begin" and rule.blocked_by(places) is None:
            places = places._replace(open=places.open + 1)
        elif move == "complete" and places.open:
            places = places._replace(open=places.open - 1, ready=places.ready + 1)
        elif move == "lease" and places.ready:
            places = places._replace(ready=places.ready - 1, leased=places.leased + 1)
        elif move == "train":
            places = places._replace(leased=0, unpublished=places.unpublished + places.leased)
        elif move == "publish":
            places = places._replace(unpublished=0)
        assert rule.max_ahead is None or sum(places) <= rule.max_ahead
        assert rule.max_open is None or places.open <= rule.max_open
        assert rule.max_waiting is None or places.open + places.ready <= rule.max_waiting
