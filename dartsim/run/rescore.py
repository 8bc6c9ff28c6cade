"""Scores the stored attempts of a run again, from what their metrics were given, and compares."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import select

from dartsim.core.errors import ConfigError, ScoreUnavailable, cause_of
from dartsim.core.types import MetricRecord
from dartsim.real.scoring.archive import SCORES, ScoreArchive
from dartsim.real.scoring.evaluator_venv import default_home
from dartsim.real.scoring.opening import open_pool
from dartsim.real.scoring.pool import SandboxPool
from dartsim.store.database import open_sqlite
from dartsim.store.rows import original, score_record
from dartsim.store.sql import DATABASE_FILE
from dartsim.store.tables import TRAJECTORIES
from dartsim.store.transactions import reading


@dataclass(frozen=True, slots=True)
class Rescored:
    """One metric of one attempt, scored again.

    Attributes:
        attempt: The attempt.
        task: Its task.
        metric: The metric.
        stored: The score that was stored.
        score: The score now; None if there is none.
        why: Why there is none: a cause, or that its inputs were not kept.
    """

    attempt: int
    task: str
    metric: str
    stored: float
    score: float | None
    why: str = ""

    @property
    def same(self) -> bool:
        """Whether the score is the stored one."""
        return self.score == self.stored


def rescore(folder: Path) -> list[Rescored]:
    """Score a run's stored attempts again.

    Args:
        folder: The run directory.

    Raises:
        ConfigError: If the run kept no database of its own, or no scores of real desktops.
    """
    database = folder / DATABASE_FILE
    if not database.is_file():
        raise ConfigError(
            f'{folder} has no {DATABASE_FILE}: only a run with curation.store = "sqlite" keeps its attempts'
        )
    columns = TRAJECTORIES.c
    query = select(columns.attempt, columns.task, columns.score).where(columns.score.is_not(None))
    engine = open_sqlite(database)
    with reading(engine) as connection:
        rows = [(row.attempt, row.task, score_record(original(row.score))) for row in connection.execute(query)]
    engine.dispose()
    if not rows:
        raise ConfigError(f"{folder} has no attempt that was scored on a real desktop")
    inside = any("desktop-env" in record.scorer for _, _, record in rows)
    metrics = [(attempt, task, metric) for attempt, task, record in rows for metric in record.metrics]
    return asyncio.run(_rescore(metrics, ScoreArchive(folder / SCORES), default_home() if inside else None))


async def _rescore(
    metrics: list[tuple[int, str, MetricRecord]], archive: ScoreArchive, home: Path | None
) -> list[Rescored]:
    async with open_pool(home) as pool:
        return await asyncio.gather(*(_again(pool, archive, *metric) for metric in metrics))


async def _again(pool: SandboxPool, archive: ScoreArchive, attempt: int, task: str, record: MetricRecord) -> Rescored:
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
    return Rescored(attempt, task, record.metric, record.score, score, why)
