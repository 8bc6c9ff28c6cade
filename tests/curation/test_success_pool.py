"""The success pool: one success for a group in which all failed, with its own log-probabilities, on record."""

from __future__ import annotations

from typing import Any

import pytest

from dartsim.config.sections.curation import PoolConfig
from dartsim.core.types import Attempt, Batch, Ending, Group, Observation, Reply, SuccessSource, Task, Trajectory, Turn
from dartsim.curation.eligibility import GroupFilter
from dartsim.curation.success_pool import SuccessPool


def played(
    number: int, reward: float | None, *, task: str = "t", group: int = 0, finished: float = 1.0, version: int = 0
) -> Trajectory:
    made = Task(task, "")
    attempt = Attempt(id=number, task=made, group=group, index=0, seed=0, turn_limit=30, version=version)
    answer = Reply("click", version, version, 0, 10, 2, tokens=[1, 2], logprobs=[-0.5, -1.5])
    return Trajectory(attempt, (Turn(Observation(None, ""), answer),), Ending.DONE, reward, None, 0.0, finished)


def failed(group: int = 9, finished: tuple[float, ...] = (5.0, 3.0, 4.0), task: str = "t") -> list[Trajectory]:
    return [played(90 + i, 0.0, group=group, finished=at, task=task) for i, at in enumerate(finished)]


def test_a_group_in_which_all_failed_gets_one_success_for_its_oldest_failure():
    pool = SuccessPool()
    success = played(1, 1.0, group=2, version=4)
    pool.learn([success], now=10.0)
    group = failed()
    rescue = pool.rescue(group)
    assert rescue is not None
    assert rescue.trajectories == (group[0], group[2], success)
    assert rescue.replaced is group[1]
    assert rescue.trajectories[-1] is success  # its own log-probabilities, untouched
    assert (rescue.success.origin, rescue.success.uses, rescue.success.stored) == (SuccessSource.ONLINE, 1, 10.0)
    assert GroupFilter().reason_to_drop(rescue.trajectories) is None


def test_collected_successes_keep_their_turns_and_never_meet_the_runs_numbers():
    pool = SuccessPool()
    success = played(0, 1.0, group=9)
    assert pool.add(success, now=0.0)
    assert not pool.add(played(5, 0.0), now=0.0)
    rescue = pool.rescue(failed(group=9))
    assert rescue is not None
    entered = rescue.trajectories[-1]
    assert entered.turns is success.turns
    assert (entered.attempt.id, entered.attempt.group) == (-1, -1)
    assert rescue.success.origin is SuccessSource.COLLECTED
    assert pool.counts["not_a_success"] == 1


def test_pooled_and_own_trajectories_of_a_group_are_told_apart():
    pool = SuccessPool()
    pool.learn([played(1, 1.0, group=2)], now=0.0)
    rescue = pool.rescue(failed())
    assert rescue is not None
    group = Group(9, rescue.trajectories[0].attempt.task, rescue.trajectories, 1.0)
    assert [t.attempt.id for t in group.pooled] == [1]
    assert [t.attempt.id for t in group.own] == [90, 92]
    pool.trained([group])
    assert pool.counts["trained"] == 1
    batch = Batch(1, 0, (group,))
    assert [t.attempt.id for t in batch.own.trajectories] == [90, 92]
    assert batch.own.own == batch.own


@pytest.mark.parametrize(("choice", "expected"), [("newest", [3, 3, 3, 3]), ("least_used", [3, 2, 1, 3])])
def test_which_success_is_used(choice: Any, expected: list[int]):
    # newest: the released code, which takes it again and again; least used: re-training is spread
    pool = SuccessPool(PoolConfig(choice=choice))
    for number in (1, 2, 3):
        pool.learn([played(number, 1.0)], now=float(number))
    uses = [
        (rescue.trajectories[-1].attempt.id, rescue.success.uses)
        for rescue in (pool.rescue(failed(group)) for group in range(9, 13))
        if rescue is not None
    ]
    assert [attempt for attempt, _ in uses] == expected
    assert [use for _, use in uses] == ([1, 2, 3, 4] if choice == "newest" else [1, 1, 1, 2])


def test_the_pool_is_bounded_and_keeps_the_newest():
    pool = SuccessPool(max_per_task=2)
    pool.add(played(0, 1.0), now=0.0)
    pool.learn([played(1, 1.0), played(2, 1.0), played(3, 1.0, task="another")], now=1.0)
    assert [entry.trajectory.attempt.id for entry in pool.stored("t")] == [2, 1]
    assert len(pool) == 3
    assert pool.counts == {"stored_collected": 1, "stored_online": 3, "displaced": 1}


def test_only_successes_with_turns_are_stored_and_each_once():
    pool = SuccessPool()
    empty = played(4, 1.0)
    empty = Trajectory(empty.attempt, (), empty.ending, 1.0, None, 0.0, 1.0)
    success = played(3, 1.0)
    pool.learn([played(1, None), played(2, 0.5), success, success, empty], now=0.0)
    assert [entry.trajectory.attempt.id for entry in pool.stored("t")] == [3]


def test_a_group_that_did_not_fail_throughout_is_not_rescued():
    pool = SuccessPool()
    with pytest.raises(ValueError, match=r"failures is rescued, got \[0.0, 0.5\]"):
        pool.rescue([played(1, 0.0), played(2, 0.5)])


def test_a_run_s_own_newest_successes_can_be_taken_along():
    pool = SuccessPool()
    pool.add(played(0, 1.0, task="a"), now=0.0)
    pool.learn([played(n, 1.0, task=task) for n, task in ((1, "a"), (2, "b"), (3, "a"), (4, "c"))], now=1.0)
    pool.add(played(0, 1.0, task="d"), now=2.0)
    assert [success.attempt.id for success in pool.learned()] == [3, 2, 4]
