"""Scores the stored attempts of a run again, from the recorded inputs of their metrics, and compares."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

from dartsim.core.errors import ConfigError, ScoreUnavailable, cause_of
from dartsim.core.files import below
from dartsim.core.rewards import all_equal
from dartsim.core.types import MetricRecord
from dartsim.real.scoring.archive import SCORES, ScoreArchive
from dartsim.real.scoring.container import open_pool
from dartsim.real.scoring.evaluator_venv import default_home
from dartsim.real.scoring.pool import SandboxPool
from dartsim.run.resume import stored_config
from dartsim.store.database import DATABASE_FILE
from dartsim.store.load import StoredScore, load_scores


@dataclass(frozen=True, slots=True)
class RescoredMetric:
    """The stored and the new score of one metric of one attempt."""

    attempt: int
    task: str
    metric: str
    stored: float
    score: float | None
    why: str = ""

    @property
    def same(self) -> bool:
        return self.score is not None and all_equal((self.score, self.stored))


def rescore(folder: Path) -> list[RescoredMetric]:
    """Score a run's stored attempts again, in sandboxes like the run's own.

    Raises:
        ConfigError: If the folder is not a run's, its store is gone, or it has no scores of real desktops.
        StoreFault: If its database is damaged.
    """
    stored_config(folder)
    database = below(folder, DATABASE_FILE)
    if not database.is_file():
        raise ConfigError(f"{folder} has no {DATABASE_FILE}: its attempts were not stored, or were removed")
    stored = load_scores(database)
    if not stored:
        raise ConfigError(f"{folder} has no attempt that was scored on a real desktop")
    return asyncio.run(_rescore(stored, ScoreArchive(folder / SCORES)))


async def _rescore(stored: list[StoredScore], archive: ScoreArchive) -> list[RescoredMetric]:
    home = default_home() if any("desktop-env" in each.record.scorer for each in stored) else None
    metrics = [(each.attempt, each.task, metric) for each in stored for metric in each.record.metrics]
    async with open_pool(home) as pool:
        return await asyncio.gather(*(_again(pool, archive, *metric) for metric in metrics))


async def _again(
    pool: SandboxPool, archive: ScoreArchive, attempt: int, task: str, record: MetricRecord
) -> RescoredMetric:
    score: float | None = None
    why = ""
    try:
        if record.call is None:
            raise FileNotFoundError
        name, arguments, options = await asyncio.to_thread(archive.load, record.call)
        score = await pool.run(lambda sandbox: sandbox.metric(name, arguments, options))
    except FileNotFoundError:
        why = "its inputs were not kept"
    except ScoreUnavailable as fault:
        why = cause_of(fault)
    return RescoredMetric(attempt, task, record.metric, record.score, score, why)
