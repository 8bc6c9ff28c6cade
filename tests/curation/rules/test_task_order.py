"""The order of tasks."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dartsim.core.registry import ComponentSection
from dartsim.core.types import Task
from dartsim.curation.rules.task_order import LearnableTasks, ShuffledTasks


@given(st.integers(1, 12), st.integers(0, 2**32))
def test_every_epoch_has_each_task_once(count, seed):
    tasks = [Task(str(number), "") for number in range(count)]
    order = ShuffledTasks(ComponentSection(), tasks=tasks, rng=np.random.default_rng(seed))
    for epoch in range(3):
        drawn = [order.next().id for _ in range(count)]
        assert sorted(drawn) == sorted(task.id for task in tasks)
        assert order.epoch == epoch


def test_the_seed_decides_the_order():
    tasks = [Task(str(number), "") for number in range(20)]
    one, same, other = (
        ShuffledTasks(ComponentSection(), tasks=tasks, rng=np.random.default_rng(seed)) for seed in (1, 1, 2)
    )
    first = [one.next().id for _ in range(40)]
    assert first == [same.next().id for _ in range(40)]
    assert first != [other.next().id for _ in range(40)]
    assert first[:20] != first[20:]


def test_an_order_needs_a_task():
    with pytest.raises(ValueError, match="at least one task, got none"):
        ShuffledTasks(ComponentSection(), tasks=[], rng=np.random.default_rng(0))


def learnable(count, seed=0, **parameters):
    tasks = [Task(str(number), "") for number in range(count)]
    return LearnableTasks(LearnableTasks.Parameters(**parameters), tasks=tasks, rng=np.random.default_rng(seed))


@given(
    st.integers(1, 8), st.integers(1, 5), st.data(), st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=8, max_size=8)
)
def test_no_task_waits_longer_than_the_longest_interval(count, longest, data, rewards):
    unsolved = data.draw(st.integers(1, longest))
    order = learnable(count, max_interval=longest, unsolved_interval=unsolved)
    came = {}
    for _ in range(60):
        task, began = order.next(), order.epoch
        before = came.get(task.id, -1)
        assert before < began <= before + longest, "once in an epoch, and in each max_interval"
        came[task.id] = began
        order.learn(task.id, [rewards[int(task.id)]] * 4)
    assert all(order.epoch - came.get(str(number), -1) <= longest for number in range(count))


def test_tasks_come_the_more_often_the_nearer_they_are_to_half_solved():
    order = learnable(6, max_interval=4, unsolved_interval=2)
    rates = {"0": [], "1": [0, 1], "2": [0, 0, 0, 1], "3": [0] * 15 + [1], "4": [1, 1], "5": [0, 0]}
    for task, rewards in rates.items():
        order.learn(task, [float(reward) for reward in rewards])
    assert [order.interval(task) for task in rates] == [1, 1, 2, 3, 4, 2]
    counts = Counter()
    while order.epoch < 24:
        counts[order.next().id] += 1
    assert counts["1"] > counts["2"] > counts["3"] > counts["4"]


def test_an_interval_above_the_longest_is_refused():
    assert list(LearnableTasks.Parameters(max_interval=2, unsolved_interval=3).problems("curation.task_order"))
    assert not list(LearnableTasks.Parameters().problems("curation.task_order"))
