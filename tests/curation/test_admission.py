"""Which slots start together."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dartsim.curation import slot_groups
from dartsim.curation.admission import SlotGroup


@pytest.mark.parametrize(
    ("unit", "expected"),
    [("rollout", [0, 1, 2, 3, 4, 5, 6]), ("task", [0, 0, 0, 1, 1, 1, 2]), ("batch", [0] * 7)],
)
def test_a_unit_is_one_slot_one_group_or_all(unit, expected):
    found = slot_groups(unit, num_envs=7, attempts_per_task=3)
    distinct = list(dict.fromkeys(map(id, found)))
    assert [distinct.index(id(slot_group)) for slot_group in found] == expected


@given(st.lists(st.booleans(), max_size=40))
def test_no_attempt_starts_between_the_first_end_and_the_last(moves):
    slot_group, ended = SlotGroup(), False
    for start in moves:
        if start and slot_group.open:
            assert not ended
            slot_group.start()
        elif not start and slot_group.running:
            slot_group.end()
            ended = slot_group.running > 0
        assert slot_group.open == (not ended)
