"""What curation is given: attempts that ended in every way. Tests reach it through the fixture ``made``."""

from __future__ import annotations

import asyncio
import sys
from types import ModuleType

import numpy as np
import pytest

from dartsim.config.sections.curation import GroupsConfig, StalenessConfig
from dartsim.core.registry import parameters
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
from dartsim.curation import DataManager, GroupFilter, Rules, StalenessRule, slot_groups
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


def build(kind, name, /, context=None, **values):
    """A rule, by its kind and name."""
    return parameters(kind, name)(**values).build(**context or {})


def order(tasks=TASKS, seed=0):
    return build("task_order", "shuffled", {"tasks": tasks, "rng": np.random.default_rng(seed)})


def attempts_rule(name="fixed", **values):
    return build("attempts", name, **values)


def batch_rule(name="ready", **values):
    return build("batch", name, **{"min_groups": 1, "max_groups": 1} | values)


def admission(name="bounds", /, caches=None, group_size=2, **values):
    """An admission rule, whose bounds are in groups: a batch is one group."""
    return build("admission", name, {"batch_groups": 1, "group_size": group_size, "caches": caches}, **values)


def turn_limits(name="fixed", max_turns=5, **values):
    return build("turn_limit", name, {"max_turns": max_turns}, **values)


def make(
    *,
    num_envs=4,
    unit="rollout",
    attempts=2,
    rule=None,
    max_replacements=2,
    bound=None,
    batch=(1, 1),
    store=None,
    tasks=TASKS,
    seed=0,
    staleness=None,
    **options,
):
    """A data manager that trains on everything, one group of two at a time, unless told otherwise."""
    rules = {
        "order": order(tasks),
        "attempts": rule or attempts_rule(group_size=attempts, max_replacements=max_replacements),
        "admission": admission(),
        "group_filter": GroupFilter(
            GroupsConfig(min_size=1, drop_all_failed=False, drop_solved=False, drop_equal=False)
        ),
        "batch_rule": batch_rule(min_groups=batch[0], max_groups=batch[1]),
        "staleness": StalenessRule(StalenessConfig(max_staleness=bound, **staleness or {})),
        "turn_limits": turn_limits(),
    }
    return DataManager(
        Rules(**rules | {name: value for name, value in options.items() if value is not None}),
        slot_groups=slot_groups(unit, num_envs=num_envs, attempts_per_task=attempts) if isinstance(unit, str) else unit,
        store=store or MemoryStore(),
        recorder=Recorder(asyncio.get_running_loop().time, num_envs=num_envs, num_engines=1),
        seed=seed,
    )
