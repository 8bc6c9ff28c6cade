import pytest

from dartsim.envs.tasks import generated_tasks


@pytest.mark.parametrize("num_tasks", [1, 181, 12_345])
def test_tasks_are_distinct_and_always_the_same(num_tasks):
    tasks = generated_tasks(num_tasks)
    assert len({task.id for task in tasks}) == len({task.instruction for task in tasks}) == num_tasks
    assert tasks == generated_tasks(num_tasks)
    assert {task.domain for task in tasks} == {"generated"}
    assert [task.id for task in tasks] == sorted(task.id for task in tasks)
