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
PLACES = st.builds(GroupCounts, COUNTS, COUNTS, COUNTS, COUNTS)


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
