"""Further attempts for groups in which all failed."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dartsim.core.types import Ending
from dartsim.curation import AdmissionRule, FurtherRule, GroupFilter
from dartsim.curation.scheduler_state import read_open, save_open


@given(st.lists(st.sampled_from([0.0, 1.0])), st.integers(0, 9), st.integers(0, 9), st.integers(-2, 9))
def test_only_failures_get_more_and_never_more_than_most_or_than_slots(rewards, most, already, slots):
    number = FurtherRule(most=most).attempts(rewards, given=already, slots=slots)
    assert 0 <= number <= max(0, slots)
    assert number + already <= max(most, already)
    if any(rewards) or not rewards:
        assert number == 0


async def full(made, *, further, **options):
    """Four slots of which two play the only group that admission allows; the others wait."""
    rule = AdmissionRule(max_open=1)
    data = made.make(further=FurtherRule(most=further), admission=rule, group_rule=GroupFilter(), **options)
    loop = asyncio.get_running_loop()
    asked = [loop.create_task(data.admit(slot)) for slot in range(4)]
    await asyncio.sleep(0)
    return data, asked


async def test_slots_that_wait_add_attempts_until_one_succeeds(made):
    data, asked = await full(made, further=3)
    data.finish(made.ended(await asked[0], 0.0))
    data.finish(made.ended(await asked[1], 0.0))
    more = await asyncio.gather(*asked[2:])
    assert [(a.group, a.index) for a in more] == [(0, 2), (0, 3)]
    data.check()
    data.finish(made.ended(more[0], 1.0))
    data.finish(made.ended(more[1], 0.0))
    batch = await data.next_batch()
    assert [t.reward for t in batch.trajectories] == [0.0, 0.0, 1.0, 0.0]
    data.check()


async def test_at_most_so_many_are_added_and_then_the_group_is_dropped(made):
    data, asked = await full(made, further=1)
    for task in asked[:2]:
        data.finish(made.ended(await task, 0.0))
    data.finish(made.ended(await asked[2], 0.0))
    assert data.dropped == 3
    assert (await asked[3]).group == 1  # there is room again


@pytest.mark.parametrize(
    "options", [{"admission": AdmissionRule()}, {"unit": "batch", "admission": AdmissionRule(max_open=1)}]
)
async def test_nothing_is_added_where_no_slot_could_take_it(made, options):
    """Without a bound nobody waits for admission; a batch-wise slot waits for the others."""
    data = made.make(num_envs=2, further=FurtherRule(most=4), group_rule=GroupFilter(), **options)
    for attempt in await asyncio.gather(data.admit(0), data.admit(1)):
        data.finish(made.ended(attempt, 0.0))
    assert (data.dropped, data._open.groups) == (2, {})


async def test_a_bound_in_attempts_is_kept(made):
    """What it counts is not room for an attempt that its group would wait for."""
    data = made.make(max_ahead=2, further=FurtherRule(most=4), group_rule=GroupFilter())
    loop = asyncio.get_running_loop()
    asked = [loop.create_task(data.admit(slot)) for slot in range(3)]
    await asyncio.sleep(0)
    for task in asked[:2]:
        data.finish(made.ended(await task, 0.0))
    assert data.dropped == 2
    assert (await asked[2]).group == 1


async def test_a_masked_further_attempt_is_tried_again(made):
    data, asked = await full(made, further=1)
    for task in asked[:2]:
        data.finish(made.ended(await task, 0.0))
    data.finish(made.ended(await asked[2], None, ending=Ending.BROKEN))
    again = await asked[3]
    assert (again.group, again.index) == (0, 3)
    data.finish(made.ended(again, 1.0))
    assert len((await data.next_batch()).trajectories) == 3


async def test_a_group_that_goes_on_survives_a_crash(made):
    data, asked = await full(made, further=2)
    for task in asked[:2]:
        data.finish(made.ended(await task, 0.0))
    group = data._open.groups[0]
    found = {t.attempt.id: t for t in group.usable}
    assert read_open(save_open(group), group.task, found) == group
    assert (group.further, group.planned) == (2, 4)
