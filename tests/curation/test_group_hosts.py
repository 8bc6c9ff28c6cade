"""Attempts of a group prefer the host that has their task's saved state."""

import asyncio


async def admitted(data, slots):
    """The group of each slot's attempt, slot after slot."""
    return [(await data.admit(slot)).group for slot in slots]


async def test_each_host_fills_a_group_of_its_own(made):
    data = made.make(num_envs=8, attempts=4)
    data.host_of = lambda slot: "even" if slot % 2 == 0 else "odd"
    assert await admitted(data, range(8)) == [0, 1, 0, 1, 0, 1, 0, 1]


async def test_without_hosts_a_group_is_filled_before_the_next_begins(made):
    data = made.make(num_envs=8, attempts=4)
    assert await admitted(data, range(8)) == [0, 0, 0, 0, 1, 1, 1, 1]


async def test_no_more_groups_lack_attempts_at_once_than_the_slots_can_fill(made):
    data = made.make(num_envs=8, attempts=4)
    data.host_of = str  # every desktop keeps its own states
    for slot in range(8):
        await data.admit(slot)
        assert sum(group.lacking for group in data.open_groups.groups.values()) <= 4


async def test_a_group_whose_host_is_gone_is_filled_by_others(made):
    """Otherwise the other hosts would begin one group of their own after the other."""
    data = made.make(num_envs=8, attempts=4)
    data.host_of = lambda slot: "gone" if slot == 0 else "there"
    await data.admit(0)
    groups = [(await data.admit(1)).group for _ in range(60)]
    assert groups.count(0) == 3
    assert max(groups[: groups.index(0)]) <= 8, "about twice as many groups as may lack attempts at once overtake it"


async def test_a_group_that_began_before_hosts_were_known_goes_to_the_first_that_is_free(made):
    data = made.make(num_envs=8, attempts=4)
    assert await admitted(data, range(2)) == [0, 0]
    data.host_of = lambda slot: "even" if slot % 2 == 0 else "odd"
    assert await admitted(data, range(2, 8)) == [0, 1, 0, 1, 2, 1]


async def test_a_bound_on_open_groups_holds(made):
    data = made.make(num_envs=8, attempts=4, admission=made.admission(open_batches=1.0))
    data.host_of = lambda slot: "even" if slot % 2 == 0 else "odd"
    assert await admitted(data, range(4)) == [0, 0, 0, 0]
    waiting = asyncio.ensure_future(data.admit(4))
    await asyncio.sleep(1.0)
    assert not waiting.done()
    waiting.cancel()


async def test_groups_that_could_never_be_complete_do_not_begin(made):
    """With one more group than max_ahead has places for, no group would ever be complete."""
    data = made.make(num_envs=8, attempts=4, max_ahead=7)
    data.host_of = lambda slot: "even" if slot % 2 == 0 else "odd"
    assert await admitted(data, range(7)) == [0, 0, 0, 0, 1, 1, 1]


async def test_hosts_are_forgotten_and_groups_are_not_when_a_run_resumes(made):
    data = made.make(num_envs=8, attempts=4)
    data.host_of = lambda slot: "even" if slot % 2 == 0 else "odd"
    await admitted(data, range(4))
    again = made.make(num_envs=8, attempts=4)
    again.host_of = data.host_of
    again.open_groups.restore(data.open_groups.state(), {task.id: task for task in made.TASKS}, {})
    assert again.open_groups.lacking
    assert await admitted(again, range(4)) == [0, 1, 0, 1]
