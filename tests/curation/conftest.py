"""What curation is given: attempts that ended in every way. Tests reach it through the fixture ``made``."""

from __future__ import annotations

import asyncio
import sys
from types import ModuleType

import numpy as np
import pytest

from dartsim.core.types import (
    Attempt,
    Ending,
    Group,
    Observation,
    Reply,
    Task,
    Trajectory,
    Turn,
    UpdateResult,
    Weights,
)
from dartsim.curation import (
    BatchRule,
    DataManager,
    FixedAttempts,
    FixedTurnLimit,
    GroupFilter,
    Rules,
    SamplingUnit,
    StalenessRule,
    TaskOrder,
)
from dartsim.observe import Recorder
from dartsim.store.memory import MemoryStore

TASKS = [Task(f"task-{number}", "Do it.") for number in range(5)]


@pytest.fixture(scope="session")
def made() -> ModuleType:
    return sys.modules[__name__]


def now():
    return asyncio.get_running_loop().time()


def turns(*versions):
    """One turn for each version; a pair is (oldest, newest)."""
    pairs = [version if isinstance(version, tuple) else (version, version) for version in versions]
    return tuple(Turn(Observation(None, ""), Reply("act", newest, oldest, 0, 100, 10)) for oldest, newest in pairs)


def attempt(number=0, *, version=0, group=0):
    return Attempt(number, TASKS[0], group, number, seed=number, turn_limit=5, version=version)


def ended(attempt, reward=1.0, *, versions=None, ending=None):
    """What an attempt left behind; without a reward it is masked."""
    played = turns(*([attempt.version] if versions is None else versions))
    if reward is None:
        return Trajectory(attempt, played, ending or Ending.BROKEN, None, "EnvBroken", 0.0, 0.0)
    return Trajectory(attempt, played, Ending.DONE, reward, None, 0.0, 0.0)


def trajectory(number=0, reward=1.0, *, versions=(0,), version=0):
    return ended(attempt(number, version=version), reward, versions=versions)


def group(number, rewards=(0.0, 1.0)):
    trajectories = tuple(trajectory(10 * number + index, reward) for index, reward in enumerate(rewards))
    return Group(number, TASKS[0], trajectories, ready=float(number))


def result(batch):
    return UpdateResult(Weights(batch.update))


def make(
    *,
    num_envs=4,
    unit="rollout",
    attempts=2,
    rule=None,
    bound=None,
    measured_by="oldest",
    batch=(1, 1),
    batch_rule=None,
    store=None,
    group_rule=None,
    tasks=TASKS,
    seed=0,
    **options,
):
    """A data manager that trains on everything, one group of two at a time, unless told otherwise."""
    everything = GroupFilter(min_size=1, drop_all_failed=False, drop_solved=False, drop_equal=False)
    rules = Rules(
        order=TaskOrder(tasks, np.random.default_rng(0)),
        attempts=rule or FixedAttempts(attempts),
        group_rule=group_rule or everything,
        batch_rule=batch_rule or BatchRule(min_groups=batch[0], max_groups=batch[1]),
        staleness=StalenessRule(bound=bound, measured_by=measured_by),
        turn_limits=FixedTurnLimit(5),
        **options,
    )
    return DataManager(
        rules,
        unit=SamplingUnit(unit, num_envs=num_envs, attempts_per_task=attempts),
        store=store or MemoryStore(),
        recorder=Recorder(asyncio.get_running_loop().time, num_envs=num_envs, num_workers=1),
        seed=seed,
    )
