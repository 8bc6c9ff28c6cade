"""Successes of other agents, from OSWorld's result directories, as a pool for a run (``curation.pool.file``)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from dartsim.config import Config
from dartsim.core.errors import ConfigError, NothingCollected
from dartsim.core.rewards import SUCCESS
from dartsim.core.types import Trajectory
from dartsim.real.osworld.result_import import ImportCounts, import_attempts
from dartsim.real.pool_files import pool_source, token_meaning, write_pool
from dartsim.real.vlm.model import reply_writer
from dartsim.real.vlm.plan import vlm_config
from dartsim.run.prepare import prepare

IMPORTED = "osworld_results"
"""Kind of source of an imported pool."""


def import_successes(
    config: Config, results: Sequence[Path], pool: Path, on_step: Callable[[int, int], None] | None = None
) -> tuple[dict[str, Any], ImportCounts]:
    """Write other agents' successes at a configuration's tasks as a pool; return its figures, and what was left out.

    They have no log-probabilities; the initial weights of the run that starts with them compute these. An earlier
    imported pool is replaced once the new one is complete.

    Raises:
        ConfigError: If a task file cannot be used, or the pool's folder contains something else.
        NothingCollected: If no attempt could be imported.
    """
    if pool.exists() and pool_source(pool).get("kind") != IMPORTED:
        raise ConfigError(f"{pool} already exists; name another folder with --keep-successes")
    tasks, writer, counts = prepare(config).tasks, reply_writer(vlm_config(config)), ImportCounts()
    turns, solved = 0, set()

    def attempts() -> Iterator[Trajectory]:
        nonlocal turns
        for success in import_attempts(results, config, tasks, writer, counts, min_score=SUCCESS, on_step=on_step):
            turns += len(success.turns)
            solved.add(success.attempt.task.id)
            yield success
        if not counts.origins:
            reasons = ", ".join(f"{reason} {count}" for reason, count in counts.refused.most_common())
            first = next(iter(counts.examples.values()))
            raise NothingCollected(f"none of {counts.found} attempts could be imported ({reasons}), such as {first}")

    source = {
        "kind": IMPORTED,
        "directories": [str(folder.resolve()) for folder in results],
        "models": counts.models,
        "refused": counts.refused,
    }
    meaning = token_meaning(writer, config.policy.screen)
    successes = write_pool(pool, attempts(), writes=meaning, source=source, origins=counts.origins)
    figures = {
        "source": source,
        "successes": successes,
        "turns": turns,
        "attempts": counts.found,
        "tasks": len(tasks),
        "tasks_solved": len(solved),
        "unknown_tasks": list(counts.unknown),
        "pool": str(pool),
    }
    return figures, counts
