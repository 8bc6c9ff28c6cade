"""``Finished``: what a run leaves in memory when it has ended, whichever clock it ran by."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import comb
from typing import Any

from dartsim.curation.rules.attempts import AttemptsRule
from dartsim.observe import Recorder
from dartsim.observe.bias import BY_DIFFICULTY, BY_DOMAIN, BY_LENGTH, BY_RATE, EASY, HARD
from dartsim.observe.figures import by_label, summary
from dartsim.run.models import Models
from dartsim.run.system import System


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """A run that has ended.

    Attributes:
        recorder: Its measurements, closed.
        figures: ``dartsim.observe.figures.summary`` of it.
        bias: Attempts offered and what became of them, by classes of their tasks.
        interrupted: Whether it was stopped before its time.
        event_hash: Of everything that happened, in order; None in real time, which is never the same twice.
        num_events: How much that was; None in real time.
        alarm: Name of the alarm that ended it (``run.fail_on_alarm``); None if none did.
    """

    recorder: Recorder
    figures: dict[str, Any]
    bias: dict[str, dict[str, dict[str, float]]]
    interrupted: bool
    event_hash: str | None
    num_events: int | None
    alarm: str | None

    @property
    def domain_hash(self) -> str:
        """Hash of each attempt, turn, version, reward and time, in order (``dartsim.observe.records``)."""
        return self.recorder.domain_hash.digest


def finished(
    found: Models, system: System, *, interrupted: bool, event_hash: str | None, num_events: int | None
) -> Finished:
    """Return the figures of a run that has ended."""
    recorder = system.recorder
    share = found.config.run.warmup_share
    figures = summary(recorder, warmup_share=share, peak_tokens_per_second=found.peak_tokens_per_second)
    return Finished(
        recorder=recorder,
        figures=figures,
        bias=bias(found, recorder),
        interrupted=interrupted,
        event_hash=event_hash,
        num_events=num_events,
        alarm=system.end.alarm,
    )


def bias(found: Models, recorder: Recorder) -> dict[str, dict[str, dict[str, float]]]:
    """Count, by class of task, what was offered and what became of it (``dartsim.observe.bias``)."""
    counts: dict[str, Mapping[str, float]] = {
        "offered": recorder.offered,
        "judged": recorder.judged,
        "kept": recorder.kept,
        "trained": recorder.trained,
        "trained_groups": recorder.trained_groups,
    }
    if _rates_known(found) and not found.config.curation.pool.enabled:
        counts["expected"] = _expected(found, recorder.offered)
    return {name: by_label(counts, labels) for name, labels in classes(found).items()}


def classes(found: Models) -> dict[str, dict[str, str]]:
    """Return the class of each task, by classification; only those that the tasks have."""
    by_name: dict[str, dict[str, str]] = {}
    domains = {task.id: task.domain for task in found.tasks}
    if len(set(domains.values())) > 1:
        by_name[BY_DOMAIN] = domains
    if _rates_known(found):
        rates = {task.id: found.difficulties[task.id].success_rate for task in found.tasks}
        by_name[BY_RATE] = {task: _tenth(rate) for task, rate in rates.items()}
        by_name[BY_DIFFICULTY] = {task: difficulty(rate) for task, rate in rates.items()}
        by_name[BY_LENGTH] = _thirds(found)
    return by_name


def difficulty(rate: float) -> str:
    """Return how hard a task of this success rate is."""
    return "hard" if rate < HARD else "easy" if rate > EASY else "middle"


def _rates_known(found: Models) -> bool:
    """Whether attempts are drawn by success rates and length factors: not a model's, nor a recorded run's."""
    return bool(found.difficulties) and found.outcomes is None


def _tenth(rate: float) -> str:
    tenth = min(9, int(rate * 10))
    return f"{tenth / 10:.1f}-{(tenth + 1) / 10:.1f}"


def _thirds(found: Models) -> dict[str, str]:
    """Return which third by length each task belongs to."""
    order = sorted(found.tasks, key=lambda task: (found.difficulties[task.id].length_factor, task.id))
    names = ("short", "middle", "long")
    return {task.id: names[3 * place // len(order)] for place, task in enumerate(order)}


def _expected(found: Models, offered: Mapping[str, int]) -> dict[str, float]:
    """Return the trajectories of each task that the group filter keeps on average, by closed form.

    There is none of a pool of stored successes: it saves groups only of tasks of which it has one.
    """
    return {
        task: number * kept_chance(found, found.difficulties[task].success_rate) for task, number in offered.items()
    }


def kept_chance(found: Models, rate: float) -> float:
    """Return the chance that the group filter keeps a group of a task with this success rate, by closed form."""
    curation, size = found.config.curation, group_size(found, rate)
    groups = curation.groups
    failed = (1.0 - rate) ** size if groups.drop_all_failed and not curation.pool.enabled else 0.0
    solved = chance(rate, size, lambda mean: mean >= groups.max_mean_reward) if groups.drop_solved else 0.0
    return max(0.0, 1.0 - failed - solved)


def group_size(found: Models, rate: float) -> int:
    """Return the attempts of a group of a task with this success rate."""
    attempts: AttemptsRule = found.config.curation.attempts.build()
    return attempts.size_at(rate)


def chance(rate: float, number: int, holds: Callable[[float], bool]) -> float:
    """Return the chance that something holds of the mean of ``number`` rewards of 0 or 1."""
    wanted = (k for k in range(number + 1) if holds(k / number))
    return min(1.0, sum(comb(number, k) * rate**k * (1.0 - rate) ** (number - k) for k in wanted))
