"""Tasks that score above 0 if nothing is done are reported, or left out."""

import logging

import pytest

from dartsim.core.errors import ConfigError, EnvBroken
from dartsim.core.types import Task

pytest.importorskip("httpx", reason="needs the extra `real`")

from dartsim.real.desktop.tasks.playing import trainable_tasks

EVALUATOR = {"func": "exact_match"}


class FreeDesktop:
    """A desktop on which the task ``free`` is solved before it begins, and ``broken`` breaks."""

    async def reset(self, task, *, seed):
        self.task = task
        if task.id == "broken":
            raise EnvBroken("it broke")

    async def step(self, action):
        pass

    async def evaluate(self):
        return 0.5 if self.task.id == "free" else 0.0

    async def close(self):
        pass


class FreeProvider:
    async def start(self, slot):
        return FreeDesktop()


def tasks(*names):
    return [Task(name, "do it", "os", {"evaluator": EVALUATOR}) for name in names]


async def test_a_task_that_is_solved_by_doing_nothing_is_reported(caplog):
    offered = tasks("honest", "free", "broken")
    with caplog.at_level(logging.WARNING):
        assert await trainable_tasks(FreeProvider(), offered, exclude=False, slots=2) == offered
    assert "task free scores 0.5 if nothing is done" in caplog.text
    assert "task broken could not be tried" in caplog.text
    assert "honest" not in caplog.text


async def test_it_can_be_left_out(caplog):
    offered = tasks("honest", "free", "broken")
    kept = await trainable_tasks(FreeProvider(), offered, exclude=True, slots=2)
    assert [task.id for task in kept] == ["honest", "broken"]
    with pytest.raises(ConfigError, match="nothing to train on"):
        await trainable_tasks(FreeProvider(), tasks("free"), exclude=True, slots=1)


async def test_an_infeasible_task_is_not_tried():
    offered = [Task("free", "do it", "os", {"evaluator": {"func": "infeasible"}})]
    assert await trainable_tasks(FreeProvider(), offered, exclude=True, slots=1) == offered
