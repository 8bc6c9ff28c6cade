"""``WorkerSettings``: the patience of a worker, and ``EngineHealth``: what its engine is good for."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class EngineHealth(StrEnum):
    """What an engine is good for."""

    DOWN = "down"
    """Not started, or its process ended."""
    LOADING = "loading"
    """Its weights are being changed."""
    UNLOADED = "unloaded"
    """The last change of weights failed, or what it served before its process ended is gone."""
    UP = "up"
    """It serves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """Patience of a worker.

    Attributes:
        request_seconds: A request that has no answer by then is aborted in the engine and fails. It includes the
            time that the engine lets it wait, also while weights are changed under it.
        patience_seconds: A request waits this long for an engine that is down or restarting, and then fails, so that
            it is asked elsewhere. With one engine in the pool, longer than its start is wanted.
        pause_seconds: A request waits this long, in all, for an engine that refuses new ones while it is paused
            (vLLM 0.33 in modes ``abort`` and ``wait``; 0.32 lets them wait in the engine).
        retry_seconds: Between two tries at a paused engine, and between starts of one that does not come up; the
            latter doubles, up to 16-fold.
        recompute: After a change of weights in mode ``KEEP``, requests under way compute their prompts again. Without
            it they go on with keys and values of the older weights, as in most systems: their log-probabilities are
            those they were sampled with, and no model alone has them.
        confirm: Compare checksums after every load. It reads all weights in the engine: about a second a gigabyte.
        warm_up: Answer one request at the start; the first one of an engine takes seconds.
    """

    request_seconds: float = 300.0
    patience_seconds: float = 2.0
    pause_seconds: float = 60.0
    retry_seconds: float = 0.25
    recompute: bool = False
    confirm: bool = True
    warm_up: bool = True
