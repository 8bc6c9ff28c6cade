"""Tasks of a family, and suites of several families.

A task is drawn from (seed, family, difficulty, number, held out or not), so held-out tasks never share a random stream
with training tasks.
"""

from __future__ import annotations

import zlib
from functools import lru_cache
from typing import Any

import numpy as np

from dartsim.core.errors import ConfigError
from dartsim.core.types import Task
from dartsim.envs.mock.families import clicks, jobs
from dartsim.envs.mock.families.drafts import MAX_DIFFICULTY, Family

FAMILIES: dict[str, Family] = {family.name: family for part in (clicks, jobs) for family in part.FAMILIES}
"""All families by name."""


def _suite(text: str) -> tuple[tuple[str, int], ...]:
    """Return the (family, difficulty) pairs of ``family difficulty, …``."""
    pairs = (part.split() for part in text.split(","))
    return tuple((family, int(difficulty)) for family, difficulty in pairs)


SUITES: dict[str, tuple[tuple[str, int], ...]] = {
    "errands": _suite("errands 1, errands 2, errands 3, errands 4, errands 5"),
    "locks": _suite("plain_locks 1, mixed_locks 3, odd_locks 3, plain_locks 3, mixed_locks 5, odd_locks 4"),
    "long": _suite(
        "plain_jobs 3, mixed_jobs 4, odd_jobs 2, recall_jobs 3, missing_jobs 3, odd_jobs 4, plain_jobs 8, "
        "mixed_jobs 9, odd_jobs 6, recall_jobs 6"
    ),
}
"""Name -> (family, difficulty) of its tasks, taken in turn.

Turns of a task: ``errands`` 2 to 6, ``locks`` 1 to 5, ``long`` 6 to 15.
"""


def mock_tasks(family: str, n: int, seed: int = 0, difficulty: int = 1, *, held_out: bool = False) -> list[Task]:
    """Return tasks of one family; equal arguments give equal tasks, and a smaller ``n`` the first of them.

    Args:
        family: One of ``FAMILIES``, which is also the tasks' domain.
        n: Number of tasks.
        seed: Seed of the draws.
        difficulty: 1 to 10; the family's ``about`` says what it means.
        held_out: Draw held-out tasks, which differ from all training tasks.

    Raises:
        ConfigError: If there is no such family or difficulty, or ``n`` or ``seed`` is negative.
    """
    if family not in FAMILIES:
        raise ConfigError(f"found no task family {family!r}, wanted one of {', '.join(FAMILIES)}")
    if not 1 <= difficulty <= MAX_DIFFICULTY:
        raise ConfigError(f"difficulty must be 1 to {MAX_DIFFICULTY}, got {difficulty}")
    if n < 0 or seed < 0:
        raise ConfigError(f"n and seed must not be negative, got {n} and {seed}")
    return [_task(FAMILIES[family], seed, difficulty, number, held_out) for number in range(n)]


def mock_suite(name: str, n: int, seed: int = 0, *, held_out: bool = False) -> list[Task]:
    """Return ``n`` tasks of a suite, its families in turn.

    Raises:
        ConfigError: If there is no such suite.
    """
    if name not in SUITES:
        raise ConfigError(f"found no suite {name!r}, wanted one of {', '.join(SUITES)}")
    parts = SUITES[name]
    seen: dict[tuple[str, int], int] = {}
    tasks = []
    for i in range(n):
        family, difficulty = part = parts[i % len(parts)]
        number = seen[part] = seen.get(part, -1) + 1
        tasks.append(_task(FAMILIES[family], seed, difficulty, number, held_out))
    return tasks


def _task(family: Family, seed: int, difficulty: int, number: int, held_out: bool) -> Task:
    key = [seed, int(held_out), zlib.crc32(family.name.encode()), difficulty, number]
    draft = family.draw(np.random.default_rng(key), difficulty)
    task_id = f"{family.name}-d{difficulty}-s{seed}-{number:05}{'-held-out' if held_out else ''}"
    spec: dict[str, Any] = {
        "id": task_id,
        "snapshot": "mock",
        "instruction": draft.instruction,
        "source": "dartsim",
        "config": draft.config,
        "trajectory": "",
        "related_apps": ["mock"],
        "evaluator": draft.evaluator,
        "proxy": False,
        "fixed_ip": False,
        "possibility_of_env_change": "low",
        # Beyond OSWorld's schema, for the mock desktop and its oracle:
        "family": family.name,
        "difficulty": difficulty,
        "auto_done": draft.auto_done,
        "goals": draft.goals,
    }
    return Task(task_id, draft.instruction, family.name, spec)


@lru_cache(maxsize=1)
def default_task() -> Task:
    """Return the task that an environment without a task begins."""
    return mock_tasks("click_button", 1)[0]
