"""The manager with a pool, turn limits by success and a task filter: what is stored never enters the accounts."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from dartsim.config.sections.curation import TaskFilterConfig
from dartsim.core.types import (
    Attempt,
    Drop,
    Task,
    Trajectory,
    UpdateResult,
    Weights,
)
from dartsim.curation import DataManager, GroupFilter
from dartsim.curation.success_pool import SuccessPool
from dartsim.curation.task_filter import TaskFilter
from dartsim.store.memory import MemoryStore

TASK = Task("t", "")


def played(made: ModuleType, attempt: Attempt, reward: float, num_turns: int = 2) -> Trajectory:
    return made.ended(attempt, reward, versions=[attempt.version] * num_turns)


def make(made: ModuleType, **options: Any) -> DataManager:
    """A manager of one task that trains on nothing old, two attempts a group."""
    plain = {"num_envs": 2, "tasks": [TASK], "bound": 0, "group_filter": GroupFilter()}
    return made.make(**plain | {"turn_limits": made.turn_limits(max_turns=30)} | options)


async def play_group(made: ModuleType, manager: DataManager, *rewards: float) -> None:
    for reward in rewards:
        attempt = await manager.admit(0)
        manager.finish(played(made, attempt, reward))
        manager.ledger.check()


def update(manager: DataManager, batch) -> None:
    manager.trained(batch, UpdateResult(Weights(batch.update)))
    manager.published(batch.update)
    manager.ledger.check()


async def test_an_all_failed_group_is_trained_with_one_stored_success(made: ModuleType):
    pool, store = SuccessPool(), MemoryStore()
    manager = make(made, pool=pool, store=store)
    await play_group(made, manager, 1.0, 0.0)
    update(manager, await manager.next_batch())
    await play_group(made, manager, 0.0, 0.0)
    batch = await manager.next_batch()
    manager.ledger.check()
    (group,) = batch.groups
    assert [t.attempt.id for t in group.trajectories] == [3, 0]
    assert [t.attempt.id for t in group.pooled] == [0]
    update(manager, batch)
    # four attempts: three trained, and the failure whose place was taken is dropped for that reason
    assert (manager.ledger.admitted, manager.ledger.trained, manager.ledger.dropped) == (4, 3, 1)
    assert store.reasons == {Drop.REPLACED: 1}
    assert pool.counts["trained"] == 1


async def test_a_batch_with_a_stored_success_can_be_returned_and_taken_again(made: ModuleType):
    pool = SuccessPool()
    pool.add(played(made, Attempt(0, TASK, 0, 0, 0, 30, 0), 1.0), now=0.0)
    manager = make(made, pool=pool)
    await play_group(made, manager, 0.0, 0.0)
    batch = await manager.next_batch()
    manager.release(batch)
    manager.ledger.check()
    assert await manager.next_batch() == batch
    update(manager, batch)
    assert (pool.counts["rescued"], pool.counts["trained"]) == (1, 1)


async def test_without_a_stored_success_the_group_is_dropped(made: ModuleType):
    pool, store = SuccessPool(), MemoryStore()
    manager = make(made, pool=pool, store=store)
    await play_group(made, manager, 0.0, 0.0)
    assert store.reasons == {Drop.ALL_FAILED: 2}
    assert pool.counts["none_stored"] == 1


async def test_a_stored_success_may_be_older_than_the_bound_but_the_rest_of_its_group_may_not(made: ModuleType):
    pool, store = SuccessPool(), MemoryStore()
    manager = make(made, pool=pool, store=store)  # bound 0
    await play_group(made, manager, 1.0, 0.0)
    update(manager, await manager.next_batch())
    await play_group(made, manager, 0.0, 0.0)
    await play_group(made, manager, 0.0, 0.0)
    batch = await manager.next_batch()
    assert batch.groups[0].pooled[0].oldest_version < manager.ledger.trainer_version
    update(manager, batch)
    assert store.reasons == {Drop.REPLACED: 2, Drop.STALE: 1}


async def test_closing_with_a_rescued_group_accounts_for_the_runs_attempts_only(made: ModuleType):
    pool, store = SuccessPool(), MemoryStore()
    manager = make(made, pool=pool, store=store)
    pool.add(played(made, Attempt(0, TASK, 0, 0, 0, 30, 0), 1.0), now=0.0)
    await play_group(made, manager, 0.0, 0.0)
    manager.close()
    manager.ledger.check()
    assert store.reasons == {Drop.REPLACED: 1, Drop.UNUSED: 1}


async def test_turn_limits_follow_successes_and_are_the_same_within_a_group(made: ModuleType):
    manager = make(made, turn_limits=made.turn_limits("by_success", 30))
    first = await manager.admit(0)
    manager.finish(played(made, first, 1.0, num_turns=7))
    second = await manager.admit(0)
    manager.finish(played(made, second, 0.0))
    third = await manager.admit(0)
    assert [first.turn_limit, second.turn_limit, third.turn_limit] == [30, 30, 7]


async def test_the_filter_learns_from_complete_groups(made: ModuleType):
    tasks = [TASK, Task("u", "")]
    parameters = TaskFilterConfig(window=2, max_mean=0.5)
    manager = make(made, order=TaskFilter(made.order(tasks), parameters, num_tasks=2))
    first = await manager.admit(0)
    manager.finish(played(made, first, 1.0))
    manager.finish(played(made, await manager.admit(0), 1.0))
    seen = set()
    for _ in range(4):
        attempt = await manager.admit(0)
        seen.add(attempt.task.id)
        manager.finish(played(made, attempt, 0.0))
    assert seen == {"t", "u"} - {first.task.id}
