"""``DataManager``: admission, groups, batches, and what becomes of every attempt."""

import asyncio

import pytest

from dartsim.config.sections.curation import GroupsConfig
from dartsim.core.errors import InvariantViolated, StoreFull
from dartsim.core.types import Drop, Ending, UpdateResult, Weights
from dartsim.curation import GroupFilter, SuccessPool
from dartsim.observe import DesktopState
from dartsim.store.memory import MemoryStore


def start(coroutine):
    return asyncio.get_running_loop().create_task(coroutine)


async def soon():
    """Let everything happen that is due."""
    for _ in range(5):
        await asyncio.sleep(0)


async def admitted(data, slots):
    """Let slots ask all at once, in this order, and return what they get."""
    return await asyncio.gather(*(data.admit(slot) for slot in slots))


def ahead(made):
    """An admission rule that lets one group be ahead of published weights."""
    return made.admission(ahead_batches=1.0)


async def train(data):
    """Take a batch and train on it, without publishing."""
    batch = await data.next_batch()
    data.trained(batch, result_of(batch))
    return batch


def result_of(batch):
    return UpdateResult(Weights(batch.update))


# -- admission ------------------------------------------------------------------------------------


async def test_attempts_of_a_group_are_of_one_task_and_have_seeds_of_their_own(made):
    data = made.make(attempts=2, seed=3)
    attempts = await admitted(data, range(4))
    assert [a.id for a in attempts] == [0, 1, 2, 3]
    assert [a.group for a in attempts] == [0, 0, 1, 1]
    assert [a.index for a in attempts] == [0, 1, 0, 1]
    assert [a.task for a in attempts[:2]] == [attempts[0].task] * 2
    assert attempts[2].task != attempts[0].task
    assert len({a.seed for a in attempts}) == 4
    assert {a.turn_limit for a in attempts} == {5}
    assert [a.seed for a in await admitted(made.make(seed=3), range(4))] == [a.seed for a in attempts]
    assert [a.seed for a in await admitted(made.make(seed=4), range(4))] != [a.seed for a in attempts]


async def test_room_is_made_by_publishing_and_not_before(made):
    data = made.make(num_envs=2, admission=ahead(made))
    for attempt, reward in zip(await admitted(data, [0, 1]), (0.0, 1.0), strict=True):
        data.finish(made.ended(attempt, reward))
    waiting = [start(data.admit(slot)) for slot in (0, 1)]
    batch = await train(data)
    await soon()
    assert data.ledger.admitted == 2
    data.published(batch.update)
    assert data.ledger.admitted == 4
    assert [attempt.version for attempt in await asyncio.gather(*waiting)] == [1, 1]


async def test_who_waits_longest_is_first(made):
    data = made.make(attempts=1, admission=ahead(made))
    first = await data.admit(0)
    waiting = [start(data.admit(slot)) for slot in (3, 1, 2)]
    await soon()
    data.finish(made.ended(first, None))
    await soon()
    assert [task.done() for task in waiting] == [True, False, False]


async def test_waiting_for_room_and_for_one_s_unit_are_told_apart(made):
    data = made.make(num_envs=2, unit="batch", admission=ahead(made))
    attempts = await admitted(data, [0, 1])
    data.recorder.desktops.tracks[1].enter(DesktopState.ACTING)
    first = start(data.admit(0))
    await asyncio.sleep(10.0)
    data.finish(made.ended(attempts[1]))
    second = start(data.admit(1))
    await asyncio.sleep(5.0)
    spent = data.recorder.desktops.seconds()
    assert (spent[DesktopState.WAIT_UNIT], spent[DesktopState.WAIT_ADMISSION]) == (10.0, 2 * 5.0)
    for task in (first, second):
        task.cancel()


# -- units ----------------------------------------------------------------------------------------


async def test_a_batch_is_sampled_in_waves_if_there_are_fewer_slots(made):
    """Two slots, four attempts a batch: both end before two others start; then all wait for the version."""
    data = made.make(num_envs=2, unit="batch", attempts=4, admission=ahead(made))
    waiting = [start(data.admit(slot)) for slot in (0, 1)]
    for _ in range(2):
        one, two = await asyncio.gather(*waiting)
        data.finish(made.ended(one))
        waiting = [start(data.admit(0))]
        await soon()
        assert not waiting[0].done()
        data.finish(made.ended(two))
        waiting.append(start(data.admit(1)))
    await soon()
    assert [task.done() for task in waiting] == [False, False]
    batch = await train(data)
    data.published(batch.update)
    assert [attempt.version for attempt in await asyncio.gather(*waiting)] == [1, 1]


# -- masked attempts ------------------------------------------------------------------------------


async def test_a_masked_attempt_is_tried_again_in_its_group(made):
    data = made.make(attempts=2)
    first, second, third = await admitted(data, range(3))
    data.finish(made.ended(first, None))
    replacement = await data.admit(0)
    assert (replacement.group, replacement.task, replacement.index) == (0, first.task, 2)
    assert replacement.seed != first.seed
    assert (await data.admit(3)).group == third.group == 1
    data.finish(made.ended(second, 0.0))
    data.finish(made.ended(replacement, 1.0))
    batch = await data.next_batch()
    assert [t.attempt.id for t in batch.trajectories] == [second.id, replacement.id]


async def test_a_group_that_is_still_filled_takes_its_replacement_last(made):
    data = made.make(attempts=3)
    first = await data.admit(0)
    data.finish(made.ended(first, None))
    again = await admitted(data, range(4))
    assert [a.group for a in again] == [0, 0, 0, 1]
    assert [a.index for a in again] == [1, 2, 3, 0]


async def test_only_so_many_are_tried_again(made):
    data = made.make(attempts=2, max_replacements=1, group_filter=GroupFilter(), store=MemoryStore())
    first, second = await admitted(data, range(2))
    data.finish(made.ended(first, None))
    data.finish(made.ended(second, None))
    replacement = await data.admit(0)
    assert replacement.group == 0
    data.finish(made.ended(replacement, 1.0))
    assert (await data.admit(1)).group == 1
    assert data.store.reasons == {Drop.MASKED: 2, Drop.TOO_SMALL: 1}


async def test_a_cancelled_attempt_is_always_tried_again(made):
    data = made.make(attempts=1, max_replacements=0)
    data.finish(made.ended(await data.admit(0), None, ending=Ending.CANCELLED))
    assert (await data.admit(0)).group == 0


# -- batches --------------------------------------------------------------------------------------


async def fill(data, made, rewards, versions=(0,)):
    """Run one group after the other to its end; ``rewards`` has a list for each."""
    for group in rewards:
        attempts = await admitted(data, range(len(group)))
        for attempt, reward in zip(attempts, group, strict=True):
            data.finish(made.ended(attempt, reward, versions=versions))


async def test_a_batch_waits_for_enough_groups_and_takes_the_longest_ready(made):
    data = made.make(batch=(2, 3))
    waiting = start(data.next_batch())
    await fill(data, made, [[0.0, 1.0]])
    await soon()
    assert not waiting.done()
    await asyncio.sleep(7.0)
    await fill(data, made, [[0.0, 1.0]])
    batch = await waiting
    assert [(group.id, group.ready) for group in batch.groups] == [(0, 0.0), (1, 7.0)]
    assert (batch.update, batch.version, batch.num_turns) == (1, 0, 4)
    await fill(data, made, [[0.0, 1.0]] * 4)
    assert [group.id for group in (await data.next_batch()).groups] == [2, 3, 4]
    waiting = start(data.next_batch())
    await soon()
    assert not waiting.done()
    waiting.cancel()


async def test_what_is_too_old_is_dropped_before_a_batch_is_chosen(made):
    data = made.make(bound=1)
    await fill(data, made, [[0.0, 1.0]] * 3, versions=(0,))
    await train(data)
    assert (await train(data)).groups[0].id == 1  # version 1 on 0: one behind
    waiting = start(data.next_batch())
    await soon()
    assert not waiting.done()
    assert data.store.reasons == {Drop.STALE: 2}
    await fill(data, made, [[0.0, 1.0]], versions=(1,))
    batch = await waiting
    assert (batch.version, batch.groups[0].id) == (2, 3)


async def test_a_group_that_is_partly_too_old_goes_on_without_that_part(made):
    data = made.make(attempts=3, bound=0, group_filter=GroupFilter(GroupsConfig(drop_equal=False)))
    await fill(data, made, [[0.0, 1.0, 1.0]])
    await train(data)
    attempts = await admitted(data, range(3))
    for attempt, reward, version in zip(attempts, (0.0, 1.0, 0.0), (1, 1, 0), strict=True):
        data.finish(made.ended(attempt, reward, versions=[version]))
    batch = await data.next_batch()
    assert [t.attempt.id for t in batch.trajectories] == [3, 4]
    assert data.store.reasons == {Drop.STALE: 1}


async def test_a_group_whose_fresh_part_has_no_signal_is_dropped_whole(made):
    data = made.make(attempts=3, bound=0, group_filter=GroupFilter())
    await fill(data, made, [[0.0, 1.0, 1.0]])
    await train(data)
    attempts = await admitted(data, range(3))
    for attempt, reward, version in zip(attempts, (1.0, 1.0, 0.0), (1, 1, 0), strict=True):
        data.finish(made.ended(attempt, reward, versions=[version]))
    data.published(1)
    assert data.store.reasons == {Drop.STALE: 3}


async def test_a_released_batch_is_first_again(made):
    data = made.make(batch=(1, 2))
    await fill(data, made, [[0.0, 1.0]] * 4)
    batch = await data.next_batch()
    data.release(batch)
    assert data.ledger.leased == 0
    again = await data.next_batch()
    assert again == batch
    assert data.recorder.counts["failed_updates"] == 1
    assert data.recorder.counts["admitted_turns"] == 4
    data.trained(again, result_of(again))
    assert [group.id for group in (await data.next_batch()).groups] == [2, 3]


async def test_a_group_that_a_stored_success_would_leave_without_attempts_of_its_own_is_not_rescued(made):
    pool = SuccessPool()
    data = made.make(attempts=1, pool=pool, tasks=made.TASKS[:1])
    await fill(data, made, [[1.0], [0.0]])
    batches = [await train(data) for _ in range(2)]
    assert [[t.attempt.id for t in batch.trajectories] for batch in batches] == [[0], [1]]
    assert pool.counts["rescued"] == 0


async def test_a_rescued_group_whose_own_attempts_are_too_old_is_dropped(made):
    pool = SuccessPool()
    data = made.make(attempts=2, bound=0, pool=pool, tasks=made.TASKS[:1])
    await fill(data, made, [[1.0, 0.0], [0.0, 0.0]])
    assert pool.counts["rescued"] == 1
    await train(data)
    data.published(1)
    assert (data.ledger.ready, data.ledger.dropped, data.ledger.trained) == ([], 2, 2)
    data.ledger.check()


# -- cancellation ---------------------------------------------------------------------------------


async def test_a_slot_that_is_cancelled_in_the_instant_of_its_grant_gives_its_attempt_back(made):
    data = made.make(num_envs=2, unit="batch", attempts=2, admission=ahead(made))
    attempts = await admitted(data, [0, 1])
    for attempt in attempts:
        data.finish(made.ended(attempt))
    waiting = [start(data.admit(slot)) for slot in (0, 1)]
    await soon()
    batch = await train(data)
    data.published(batch.update)  # both are given an attempt now, and learn of it when they next run
    waiting[0].cancel()
    await asyncio.wait(waiting)
    assert waiting[0].cancelled()
    taken = waiting[1].result()
    assert (data.ledger.admitted, len(data.ledger.running), data.ledger.dropped) == (4, 1, 1)
    data.ledger.check()
    # The unit is open again once the other one has ended, and the cancelled attempt is tried again.
    data.finish(made.ended(taken))
    again = await data.admit(1)
    assert (again.group, again.index) == (1, 2)
    data.ledger.check()


async def test_a_slot_that_is_cancelled_while_it_waits_may_come_back(made):
    data = made.make(attempts=1, admission=ahead(made))
    first = await data.admit(0)
    waiting = start(data.admit(1))
    await soon()
    waiting.cancel()
    await asyncio.wait([waiting])
    again = [start(data.admit(slot)) for slot in (2, 1)]
    await soon()
    data.finish(made.ended(first, None))
    await soon()
    assert [task.done() for task in again] == [True, False]
    data.finish(made.ended(again[0].result(), None))
    assert (await again[1]).id == 2
    data.ledger.check()


# -- the end --------------------------------------------------------------------------------------


async def test_at_the_end_nothing_more_is_admitted_and_nobody_waits(made):
    data = made.make(attempts=1, admission=ahead(made))
    running = await data.admit(0)
    slot, trainer = start(data.admit(1)), start(data.next_batch())
    await soon()
    data.close()
    assert (await slot, await trainer) == (None, None)
    assert await data.admit(2) is None
    assert await data.next_batch() is None
    data.finish(made.ended(running))
    assert data.store.reasons == {Drop.UNUSED: 1}
    data.ledger.check()


async def test_admission_can_end_before_the_run_does(made):
    data = made.make(admission=ahead(made))
    attempts = await admitted(data, [0, 1])
    waiting = start(data.admit(2))
    await soon()
    data.end_admission()
    assert await waiting is None
    for attempt in attempts:
        data.finish(made.ended(attempt))
    assert len((await train(data)).trajectories) == 2
    data.published(1)
    assert await data.admit(0) is None
    assert data.ledger.admitted == 2


@pytest.mark.parametrize("ending", [1.0, None])
async def test_an_attempt_is_handed_over_once(made, ending):
    data = made.make()
    attempt = await data.admit(0)
    data.finish(made.ended(attempt, ending))
    with pytest.raises(InvariantViolated, match="attempt 0 was handed over, but it is not running"):
        data.finish(made.ended(attempt, ending))
    data.ledger.check()


@pytest.mark.parametrize(("name", "change"), [("leased", 1), ("trained", -1), ("dropped", 5)])
async def test_counts_that_do_not_add_up_are_found(made, name, change):
    data = made.make()
    await fill(data, made, [[0.0, 1.0]])
    await train(data)
    data.ledger.check()
    setattr(data.ledger, name, getattr(data.ledger, name) + change)
    with pytest.raises(InvariantViolated, match="2 attempts were admitted, but they are in these places"):
        data.ledger.check()


class Full(MemoryStore):
    """A store whose disk is full for the attempts named; it writes down what it was told when it was suspended."""

    def __init__(self, *full):
        super().__init__()
        self.full = full
        self.calls = []

    def record(self, trajectory):
        if trajectory.attempt.id in self.full:
            raise StoreFull("make room")
        super().record(trajectory)

    def settle(self, source, *, now=False):
        self.calls.append("settle")

    def suspend(self):
        self.calls.append("suspend")


async def test_a_store_that_fails_keeps_nothing_from_then_on(made):
    """What failed is recorded nowhere: a later transaction would make its group wait for it forever."""
    store = Full(0)
    data = made.make(num_envs=2, store=store)
    attempts = await admitted(data, range(2))
    store.calls.clear()
    data.finish(made.ended(attempts[1]))
    assert store.calls == ["settle"]
    with pytest.raises(StoreFull):
        data.finish(made.ended(attempts[0]))
    assert store.calls == ["settle", "suspend"]


async def test_an_admission_that_cannot_be_stored_fails_the_run_and_is_not_stored_later(made):
    class Broken(Full):
        def settle(self, source, *, now=False):
            raise StoreFull("make room")

    store = Broken()
    data = made.make(num_envs=1, store=store)
    with pytest.raises(StoreFull):
        await data.admit(0)
    assert isinstance(data.failure, StoreFull)
    assert store.calls == ["suspend"]
