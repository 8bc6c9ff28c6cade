"""What a recorder keeps: snapshots, finished updates, and requests and batches for the Perfetto trace."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

HELD_OUT = "held_out/success_rate"
"""Name of the update metric that evaluations on held-out tasks write."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything counted from the start up to one moment.

    Attributes:
        time: Loop time, seconds since the start of the run.
        desktops: Desktop-seconds by ``DesktopState``.
        engines: Engine-seconds by ``EngineState``.
        trainer: Seconds by ``TrainerState``.
        phase: Seconds by ``PhaseState``.
        counts: Totals by name.
    """

    time: float
    desktops: tuple[float, ...]
    engines: tuple[float, ...]
    trainer: tuple[float, ...]
    phase: tuple[float, ...]
    counts: Mapping[str, float]


@dataclass(slots=True)
class UpdateRecord:
    """One finished update, as one line of ``metrics.jsonl``."""

    update: int
    time: float
    num_turns: int
    num_trajectories: int
    mean_reward: float
    mean_turns: float
    staleness_mean: float
    staleness_max: int
    metrics: Mapping[str, float] = field(default_factory=dict)


RequestSpan = tuple[int, int, int, int, float, float]
"""One answered request: (desktop, engine, attempt, turn, asked, answered), times in seconds of loop time.

A plain tuple, for the reason of ``dartsim.observe.tracks.Segment``.
"""


@dataclass(slots=True)
class BatchSpan:
    """One batch, for the flows of the Perfetto trace.

    Attributes:
        update: Its update.
        leased: Loop time at which the trainer took it, seconds.
        attempts: When each of its attempts ended, loop time in seconds, by the attempt's id.
        trained: Loop time at which its update was finished; None until then.
    """

    update: int
    leased: float
    attempts: Mapping[int, float]
    trained: float | None = None


@dataclass(slots=True)
class HotCounts:
    """Totals counted on the hot path; plain attributes, because a dictionary costs twice as much.

    Attributes:
        generated_turns: Turns that were answered.
        prompt_tokens: Of their prompts.
        response_tokens: Of the answers.
        cached_tokens: Of the prompts, found in an engine's prefix cache.
        looked_up_tokens: Of the prompts of engines that say how much they found.
    """

    generated_turns: int = 0
    prompt_tokens: int = 0
    response_tokens: int = 0
    cached_tokens: int = 0
    looked_up_tokens: int = 0
