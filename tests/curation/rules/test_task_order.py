"""The order of tasks."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dartsim.core.registry import ComponentSection
from dartsim.core.types import Task
from dartsim.curation.rules.task_order import ShuffledTasks


@given(st.integers(1, 12), st.integers(0, 2**32))
def test_every_epoch_has_each_task_once(count, seed):
    tasks = [Task(str(number), "") for number in range(count)]
    order = ShuffledTasks(ComponentSection(), tasks=tasks, rng=np.random.default_rng(seed))
    for _ in range(3):
        drawn = [order.next().id for _ in range(count)]
        assert sorted(drawn) == sorted(task.id for task in tasks)
