"""Admission rules: bounds on places, alone and together."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dartsim.curation import AdmissionRule, GroupCounts

COUNTS = st.integers(0, 9)
BOUNDS = st.none() | st.integers(1, 12)
PLACES = st.builds(GroupCounts, COUNTS, COUNTS, COUNTS, COUNTS)
RULES = st.builds(AdmissionRule, max_ahead=BOUNDS, max_open=BOUNDS, max_ready=BOUNDS, max_waiting=BOUNDS)


@pytest.mark.parametrize(
    ("bounds", "places", "lacks"),
    [
        ({"max_ahead": 8}, GroupCounts(1, 2, 3, 1), None),
        ({"max_ahead": 8}, GroupCounts(1, 2, 3, 2), "8 groups are ahead of published weights, at most 8 may be"),
        ({"max_open": 2}, GroupCounts(1, 9, 9, 9), None),
        ({"max_open": 2}, GroupCounts(2, 0, 0, 0), "2 groups are running, at most 2 may be"),
        ({"max_ready": 3}, GroupCounts(9, 2, 9, 9), None),
        ({"max_ready": 3}, GroupCounts(0, 4, 0, 0), "4 groups are ready, at most 3 may be"),
        ({"max_waiting": 3}, GroupCounts(1, 1, 9, 9), None),
        ({"max_waiting": 3}, GroupCounts(1, 2, 0, 0), "3 groups are waiting for an update, at most 3 may be"),
    ],
)
def test_each_bound_counts_its_own_places(bounds, places, lacks):
    rule = AdmissionRule(**bounds)
    assert rule.lacks(places) == lacks
    assert rule.room(places) is (lacks is None)
    assert not rule.unbounded


@given(PLACES)
def test_without_bounds_there_is_always_room(places):
    assert AdmissionRule().room(places)
    assert AdmissionRule().unbounded


@given(RULES, PLACES, st.integers(0, 3))
def test_one_group_more_anywhere_never_makes_room(rule, places, where):
    more = places._replace(**{places._fields[where]: places[where] + 1})
    assert rule.room(places) or not rule.room(more)


@given(RULES, st.lists(st.sampled_from(["begin", "complete", "lease", "train", "publish"]), max_size=60))
def test_no_bound_is_ever_passed(rule, moves):
    """Whatever happens to groups, counts stay within every bound that only beginning a group can pass."""
    places = GroupCounts()
    for move in moves:
        if move == "begin" and rule.room(places):
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
