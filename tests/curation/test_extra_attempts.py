"""Extra attempts for groups in which all failed."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dartsim.core.types import Ending
from dartsim.curation import GroupFilter
from dartsim.curation.open_groups import read_open, save_open


@given(st.lists(st.sampled_from([0.0, 1.0])), st.integers(0, 9), st.integers(0, 9), st.integers(-2, 9))
def test_only_failures_get_more_and_never_more_than_most_or_than_slots(made, rewards, most, already, slots):
    number = made.attempts_rule(extra_attempts=most).num_extra(rewards, given=already, slots=slots)
    assert 0 <= number <= max(0, slots)
    assert number + already <= max(most, already)
    if any(rewards) or not rewards:
        assert number == 0


async def full(made, *, extra, **options):
    """Four slots of which two play the only group that admission allows; the others wait."""
    rule = made.admission(open_batches=1.0)
    data = made.make(extra_attempts=extra, admission=rule, group_filter=GroupFilter(), **options)
    loop = asyncio.get_running_loop()
    asked = [loop.create_task(data.admit(slot)) for slot in range(4)]
    await asyncio.sleep(0)
    return data, asked


async def test_slots_that_wait_add_attempts_until_one_succeeds(made):
    data, asked = await full(made, extra=3)
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
    data, asked = await full(made, extra=1)
    for task in asked[:2]:
        data.finish(made.ended(await task, 0.0))
    data.finish(made.ended(await asked[2], 0.0))
    assert data.ledger.dropped == 3
    assert (await asked[3]).group == 1  # there is room again


@pytest.mark.parametrize(("unit", "bounds"), [("rollout", {}), ("batch", {"open_batches": 1.0})])
async def test_nothing_is_added_where_no_slot_could_take_it(made, unit, bounds):
    """Without a bound nobody waits for admission; a batch-wise slot waits for the others."""
    data = made.make(
        num_envs=2, unit=unit, admission=made.admission(**bounds), extra_attempts=4, group_filter=GroupFilter()
    )
    for attempt in await asyncio.gather(data.admit(0), data.admit(1)):
        data.finish(made.ended(attempt, 0.0))
    assert (data.ledger.dropped, data.open_groups.groups) == (2, {})


async def test_a_bound_in_attempts_is_kept(made):
    """What it counts is not room for an attempt that its group would wait for."""
    data = made.make(max_ahead=2, extra_attempts=4, group_filter=GroupFilter())
    loop = asyncio.get_running_loop()
    asked = [loop.create_task(data.admit(slot)) for slot in range(3)]
    await asyncio.sleep(0)
    for task in asked[:2]:
        data.finish(made.ended(await task, 0.0))
    assert data.ledger.dropped == 2
    assert (await asked[2]).group == 1


async def test_a_masked_extra_attempt_is_tried_again(made):
    data, asked = await full(made, extra=1)
    for task in asked[:2]:
        data.finish(made.ended(await task, 0.0))
    data.finish(made.ended(await asked[2], None, ending=Ending.BROKEN))
    again = await asked[3]
    assert (again.group, again.index) == (0, 3)
    data.finish(made.ended(again, 1.0))
    assert len((await data.next_batch()).trajectories) == 3


async def test_a_group_that_goes_on_survives_a_crash(made):
    data, asked = await full(made, extra=2)
    for task in asked[:2]:
        data.finish(made.ended(await task, 0.0))
    group = data.open_groups.groups[0]
    found = {t.attempt.id: t for t in group.usable}
    assert read_open(save_open(group), group.task, found) == group
    assert (group.extra, group.planned) == (2, 4)
