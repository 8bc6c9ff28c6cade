"""``DataManager`` under the rules of other systems: bounds on groups, waits before a publication, eviction."""

import asyncio
import json

import pytest

from dartsim.core.types import Drop, Ending, Restored, UpdateResult, Weights
from dartsim.curation.scheduler_state import SCHEDULER

CANCELS = {"measured_by": "start", "cancel_running": True}


def start(coroutine):
    return asyncio.get_running_loop().create_task(coroutine)


async def soon():
    """Let everything happen that is due."""
    for _ in range(5):
        await asyncio.sleep(0)


async def begin(data, slots):
    """Let slots ask; return what was admitted, and who still waits."""
    asked = [start(data.admit(slot)) for slot in slots]
    await soon()
    return [task.result() for task in asked if task.done()], [task for task in asked if not task.done()]


def finish(made, data, attempts, **options):
    for attempt in attempts:
        data.finish(made.ended(attempt, **options))


async def train(data, *, publish=True):
    batch = await data.next_batch()
    data.trained(batch, UpdateResult(Weights(batch.update)))
    if publish:
        data.published(batch.update)
    return [group.id for group in batch.groups]


async def test_a_bound_on_groups_lets_a_begun_group_be_completed(made):
    data = made.make(num_envs=6, attempts=2, admission=made.admission(open_batches=2.0))
    attempts, waiting = await begin(data, range(6))
    assert [a.group for a in attempts] == [0, 0, 1, 1]
    assert data.status().admission() == "2 groups are running, at most 2 may be"
    assert data.idle_without_reason() is None
    finish(made, data, attempts[:1])
    await soon()
    assert not any(task.done() for task in waiting)
    finish(made, data, attempts[1:2])
    await soon()
    assert [task.result().group for task in waiting] == [2, 2]


async def test_what_is_ahead_counts_from_begin_to_publication(made):
    data = made.make(num_envs=4, attempts=1, admission=made.admission(ahead_batches=2.0))
    attempts, waiting = await begin(data, range(4))
    assert len(attempts) == 2
    finish(made, data, attempts)
    assert await train(data, publish=False) == [0]
    await soon()
    assert not waiting[0].done()
    data.published(1)
    await soon()
    assert [task.done() for task in waiting] == [True, False]


async def test_a_ready_group_closes_the_queue_until_an_update_takes_it(made):
    data = made.make(num_envs=3, attempts=1, admission=made.admission(ready_batches=1.0))
    attempts, _ = await begin(data, range(3))
    assert len(attempts) == 3
    finish(made, data, attempts[:1])
    _, (waiting,) = await begin(data, [0])
    await data.next_batch()
    await soon()
    assert waiting.done()


async def test_a_dropped_group_gives_its_place_back(made):
    data = made.make(num_envs=2, attempts=1, admission=made.admission(ahead_batches=1.0), bound=0)
    (attempt,), (waiting,) = await begin(data, range(2))
    finish(made, data, [attempt], versions=[-1])
    asking = start(data.next_batch())
    await soon()
    assert waiting.result().group == 1
    asking.cancel()


async def test_new_weights_wait_for_running_groups_and_none_begins_meanwhile(made):
    data = made.make(num_envs=3, attempts=2, publish_wait="running")
    attempts, _ = await begin(data, range(3))
    assert [a.group for a in attempts] == [0, 0, 1]
    waiting = start(data.before_publication())
    await soon()
    finish(made, data, attempts[:2])
    (member,), (held,) = await begin(data, [0, 1])
    assert (member.group, member.index) == (1, 1)
    assert data.status().admission() == "new weights wait for running attempts"
    finish(made, data, [attempts[2]])
    await soon()
    assert not waiting.done()
    assert data.holds_publication
    assert data.status().publication() == "1 attempt that new weights wait for"
    finish(made, data, [member])
    await soon()
    assert waiting.done()
    assert not held.done()
    data.published(1)
    await soon()
    assert held.done()


async def test_new_weights_wait_for_the_whole_next_batch(made):
    data = made.make(
        num_envs=2, attempts=1, batch=(2, 2), publish_wait="batch", admission=made.admission(waiting_batches=2.0)
    )
    attempts, _ = await begin(data, range(2))
    waiting = start(data.before_publication())
    finish(made, data, attempts[:1])
    await soon()
    assert not waiting.done()
    assert data.holds_publication
    lacking = "the batch needs 1 more group of 2; group 1 lacks 1 of 1 attempts"
    assert data.status().publication() == f"1 attempt that new weights wait for; {lacking}"
    finish(made, data, attempts[1:])
    assert not data.holds_publication
    await soon()
    assert waiting.done()


async def test_a_run_that_ends_waits_for_no_publication(made):
    data = made.make(publish_wait="running")
    await begin(data, range(1))
    data.end_admission()
    await asyncio.wait_for(data.before_publication(), 1.0)


async def test_the_task_of_a_stale_group_is_offered_again(made):
    data = made.make(num_envs=2, attempts=1, bound=0, staleness={"requeue": True})
    (first, second), _ = await begin(data, range(2))
    finish(made, data, [first])
    await train(data)
    finish(made, data, [second])
    asking = start(data.next_batch())
    await soon()
    (again,), _ = await begin(data, [1])
    assert again.task == second.task
    assert again.group == 2
    asking.cancel()


@pytest.mark.parametrize("cancel", [True, False])
async def test_a_group_too_old_to_be_trained_is_withdrawn_while_it_runs(made, cancel):
    data = made.make(num_envs=3, attempts=2, bound=0, staleness={"measured_by": "start", "cancel_running": cancel})
    withdrawn = []
    data.withdraw = withdrawn.append
    attempts, _ = await begin(data, range(3))
    finish(made, data, attempts[:1])
    data.published(1)
    assert withdrawn == ([1, 2] if cancel else [])
    for attempt in withdrawn:
        data.finish(made.ended(attempts[attempt], None, ending=Ending.CANCELLED))
    data.check()
    if cancel:
        assert data.ledger.dropped == 3
        assert data.recorder.counts[f"dropped/{Drop.STALE}"] == 1
        (new,), _ = await begin(data, [0])
        assert (new.group, new.version) == (2, 1)


async def test_a_batch_in_order_comes_when_the_group_before_it_is_dropped(made):
    in_order = made.batch_rule("in_order")
    data = made.make(num_envs=2, attempts=1, max_replacements=0, batch_rule=in_order)
    (first, second), _ = await begin(data, range(2))
    finish(made, data, [second])
    asking = start(data.next_batch())
    await soon()
    assert not asking.done()
    finish(made, data, [first], reward=None)
    await soon()
    assert [group.id for group in asking.result().groups] == [1]


async def test_a_withdrawn_group_makes_room_at_once(made):
    rule = made.admission(ahead_batches=1.0)
    data = made.make(num_envs=3, attempts=2, bound=0, staleness=CANCELS, admission=rule)
    attempts, (third,) = await begin(data, range(3))
    finish(made, data, attempts[:1])
    data.published(1)
    await soon()
    assert third.result().group == 1


async def test_an_attempt_that_ends_while_its_group_is_withdrawn_is_stale(made):
    data = made.make(num_envs=2, attempts=2, bound=0, staleness=CANCELS)
    attempts, _ = await begin(data, range(2))
    data.published(1)
    finish(made, data, attempts)
    assert data.recorder.counts[f"dropped/{Drop.STALE}"] == 2
    assert data.recorder.counts[f"dropped/{Drop.UNUSED}"] == 0


async def test_crashes_use_up_none_of_the_second_tries(made):
    data = made.make(num_envs=2, max_replacements=1)
    await begin(data, [0, 1])
    for _ in range(3):
        saved = json.loads(json.dumps(data.documents()[SCHEDULER]))
        data = made.make(num_envs=2, max_replacements=1)
        data.restore(saved, Restored(version=0), {task.id: task for task in made.TASKS})
        (first, second), _ = await begin(data, [0, 1])
        assert (first.group, second.group, first.index, second.index) == (0, 0, 0, 1)
    group = data.open_groups.groups[0]
    data.finish(made.ended(first, None))
    ((third,), _) = await begin(data, [0])
    assert (third.group, third.index) == (0, 2)
    data.check()
    data.finish(made.ended(third, None))
    data.finish(made.ended(second))
    assert group.complete


async def test_a_batch_is_looked_at_again_when_the_old_group_it_waits_for_gets_younger(made):
    """Its only attempt was masked: the one that is tried again will be of newer weights."""
    data = made.make(num_envs=3, attempts=1, batch_rule=made.batch_rule(wait_age=1))
    (old, first, second), _ = await begin(data, range(3))
    finish(made, data, [first])
    assert await train(data) == [first.group]
    finish(made, data, [second])
    waiting = start(data.next_batch())
    await soon()
    assert not waiting.done(), "a group of version 0 runs"
    finish(made, data, [old], reward=None, ending=Ending.BROKEN)
    await soon()
    assert [group.id for group in waiting.result().groups] == [second.group]
    assert data.idle_without_reason() is None


async def test_a_batch_is_looked_at_again_when_the_old_group_it_waits_for_is_withdrawn(made):
    patient = made.batch_rule(wait_age=2)
    data = made.make(num_envs=2, attempts=1, batch_rule=patient, bound=1, staleness=CANCELS)
    (_, first), _ = await begin(data, range(2))
    finish(made, data, [first])
    await train(data)
    (second,), _ = await begin(data, [1])
    finish(made, data, [second])
    await train(data, publish=False)
    (third,), _ = await begin(data, [1])
    finish(made, data, [third])
    waiting = start(data.next_batch())
    await soon()
    assert not waiting.done(), "a group of version 0 runs, and the trainer is at 2"
    data.published(2)
    await soon()
    assert [group.id for group in waiting.result().groups] == [third.group]
