"""``Finished``: what a run leaves in memory when it has ended, whichever clock it ran by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dartsim.run.models import Models
from dartsim.trace import Trace
from dartsim.trace.figures import summary
from dartsim.trace.series import by_label


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """A run that has ended.

    Attributes:
        trace: Its measurements, closed.
        figures: ``dartsim.trace.figures.summary`` of it.
        bias: Attempts offered and trajectories trained, by labels of their task.
        interrupted: Whether it was stopped before its time.
        event_hash: Of everything that happened, in order; None in real time, which is never the same twice.
        num_events: How much that was; None in real time.
        alarm: Name of the alarm that ended it (``run.fail_on_alarm``); None if none did.
    """

    trace: Trace
    figures: dict[str, Any]
    bias: dict[str, dict[str, dict[str, int]]]
    interrupted: bool
    event_hash: str | None
    num_events: int | None
    alarm: str | None = None


def finished(
    found: Models, trace: Trace, *, interrupted: bool, event_hash: str | None, num_events: int | None
) -> Finished:
    """Return a run's figures from its closed trace."""
    share = found.config.run.warmup_share
    figures = summary(trace, warmup_share=share, peak_tokens_per_second=found.peak_tokens_per_second)
    return Finished(
        trace=trace,
        figures=figures,
        bias=bias(found, trace),
        interrupted=interrupted,
        event_hash=event_hash,
        num_events=num_events,
    )


BY_LENGTH = "by task length"
"""Which third of the tasks by length: ``short``, ``middle``, ``long``."""


def _thirds(found: Models) -> dict[str, str]:
    """Return which third by length each task belongs to."""
    order = sorted(found.tasks, key=lambda task: (found.difficulties[task.id].length_factor, task.id))
    names = ("short", "middle", "long")
    return {task.id: names[3 * place // len(order)] for place, task in enumerate(order)}


def bias(found: Models, trace: Trace) -> dict[str, dict[str, dict[str, int]]]:
    """Count attempts offered and trajectories trained, by domain, success rate and length of their task."""
    counts = {"offered": trace.offered, "trained": trace.trained}
    domains = {task.id: task.domain for task in found.tasks}
    if not found.difficulties:
        return {"by domain": by_label(counts, domains)}
    tenths = {task.id: min(9, int(found.difficulties[task.id].success_rate * 10)) for task in found.tasks}
    deciles = {task: f"{tenth / 10:.1f}-{(tenth + 1) / 10:.1f}" for task, tenth in tenths.items()}
    by_decile = {"by task success rate": by_label(counts, deciles), BY_LENGTH: by_label(counts, _thirds(found))}
    return by_decile if len(set(domains.values())) == 1 else {"by domain": by_label(counts, domains), **by_decile}
