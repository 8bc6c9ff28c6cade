"""Which slots start together."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dartsim.curation import Units
from dartsim.curation.units import Gang


@pytest.mark.parametrize(
    ("unit", "gangs"),
    [("rollout", [0, 1, 2, 3, 4, 5, 6]), ("task", [0, 0, 0, 1, 1, 1, 2]), ("batch", [0] * 7)],
)
def test_a_unit_is_one_slot_one_group_or_all(unit, gangs):
    units = Units(unit, num_envs=7, attempts_per_task=3)
    found = [units.gang(slot) for slot in range(7)]
    distinct = list(dict.fromkeys(map(id, found)))
    assert [distinct.index(id(gang)) for gang in found] == gangs


@given(st.lists(st.booleans(), max_size=40))
def test_no_attempt_starts_between_the_first_end_and_the_last(moves):
    gang, ended = Gang(), False
    for start in moves:
        if start and gang.open:
            assert not ended
            gang.start()
        elif not start and gang.running:
            gang.end()
            ended = gang.running > 0
        assert gang.open == (not ended)
