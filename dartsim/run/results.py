"""``RunResult``: measurements of a finished run; its learning curve."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dartsim.observe import HELD_OUT, Recorder, Snapshot, UpdateRecord
from dartsim.observe.alarm import Alarm
from dartsim.observe.bias import BY_DIFFICULTY, BY_DOMAIN, BY_LENGTH, EASY, HARD
from dartsim.observe.failure import why_nothing_trained
from dartsim.observe.figures import by_label, summary
from dartsim.run.prepared_run import PreparedRun
from dartsim.run.system import System
from dartsim.sim.run_virtual import SimReport


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """A run that has ended.

    Attributes:
        recorder: Its measurements, closed.
        figures: ``dartsim.observe.figures.summary`` of it.
        bias: Attempts offered, judged, kept and trained, by class of task.
        interrupted: Whether it was stopped early.
        event_hash: Hash of all events, in order; None in real time.
        num_events: Number of events; None in real time.
        alarm: Name of the alarm that ended it (``run.fail_on_alarm``); None if none did.
        failure: Why it failed: it trained nothing, or an alarm ended it. None if it did not fail.
    """

    recorder: Recorder
    figures: dict[str, Any]
    bias: dict[str, dict[str, dict[str, float]]]
    interrupted: bool
    event_hash: str | None
    num_events: int | None
    alarm: str | None

    @property
    def failure(self) -> str | None:
        return self.figures["failure"]  # type: ignore[no-any-return]

    @property
    def domain_hash(self) -> str:
        """Hash of each attempt, turn, version, reward and time, in order (``dartsim.observe.records``)."""
        return self.recorder.domain_hash.digest


def run_result(prepared: PreparedRun, system: System, *, interrupted: bool, report: SimReport | None) -> RunResult:
    """Return the result of a run that has ended; ``report`` of its loop, if its time was virtual."""
    recorder = system.recorder
    share = prepared.config.run.warmup_share
    figures = summary(recorder, warmup_share=share, peak_tokens_per_second=prepared.peak_tokens_per_second)
    figures["failure"] = None if interrupted else _failure(prepared, system, figures)
    if (steady := system.end.steady) is not None:
        hours = prepared.config.run.hours
        figures["steady"] = steady.as_json(hours=figures["simulated_hours"], planned_hours=hours)
    return RunResult(
        recorder=recorder,
        figures=figures,
        bias=bias(prepared, recorder),
        interrupted=interrupted,
        event_hash=None if report is None else report.event_hash,
        num_events=None if report is None else report.num_events,
        alarm=system.end.alarm,
    )


def _failure(prepared: PreparedRun, system: System, figures: dict[str, Any]) -> str | None:
    """Return why a run failed, and raise its alarm; None if it did not fail."""
    ended_by = next((alarm for alarm in system.recorder.alarms if alarm.name == system.end.alarm), None)
    if ended_by is not None:
        return f"The alarm {ended_by.name} ended it: {ended_by.found}."
    last = system.last_status
    assert last is not None, "it was not interrupted"
    why = why_nothing_trained(
        figures,
        admission=last.admission(),
        batch=last.batch(),
        batch_attempts=prepared.config.curation.batch.min_groups * prepared.config.curation.attempts.group_size,
        failed_updates=system.recorder.counts["failed_updates"] - bool(last.leased),
        updating=bool(last.leased),
    )
    if why is not None:
        alarm = Alarm(name="nothing_trained", found=why.removesuffix("."), since=0.0, raised=system.recorder.now)
        system.recorder.alarms.append(alarm)
        figures["alarms"].append(alarm.as_json())
    return why


def bias(prepared: PreparedRun, recorder: Recorder) -> dict[str, dict[str, dict[str, float]]]:
    """Count attempts by class of task (``dartsim.observe.bias``)."""
    counts: dict[str, Mapping[str, float]] = {
        "offered": recorder.offered,
        "judged": recorder.judged,
        "kept": recorder.kept,
        "trained": recorder.trained,
        "trained_groups": recorder.trained_groups,
    }
    return {name: by_label(counts, labels) for name, labels in classes(prepared).items()}


def classes(prepared: PreparedRun) -> dict[str, dict[str, str]]:
    """Return the class of each task, by classification."""
    by_name: dict[str, dict[str, str]] = {}
    domains = {task.id: task.domain for task in prepared.tasks}
    if len(set(domains.values())) > 1:
        by_name[BY_DOMAIN] = domains
    if _rates_known(prepared):
        rates = {task.id: prepared.difficulties[task.id].success_rate for task in prepared.tasks}
        by_name[BY_DIFFICULTY] = {task: difficulty(rate) for task, rate in rates.items()}
        by_name[BY_LENGTH] = _thirds(prepared)
    return by_name


def difficulty(rate: float) -> str:
    """Return how hard a task of this success rate is."""
    return "hard" if rate < HARD else "easy" if rate > EASY else "middle"


def _rates_known(prepared: PreparedRun) -> bool:
    """Whether outcomes are drawn from success rates and length factors, not by a model or from a recorded run."""
    return bool(prepared.difficulties) and prepared.outcomes is None


def _thirds(prepared: PreparedRun) -> dict[str, str]:
    """Return the third of the lengths that each task belongs to."""
    order = sorted(prepared.tasks, key=lambda task: (prepared.difficulties[task.id].length_factor, task.id))
    names = ("short", "middle", "long")
    return {task.id: names[3 * place // len(order)] for place, task in enumerate(order)}


def learning_curve(
    snapshots: Sequence[Snapshot], updates: Sequence[UpdateRecord], first: float | None, last: float | None
) -> dict[str, Any]:
    """Return ``held_out`` with columns ``hours`` and ``success_rate``."""
    held_out: list[tuple[float, float | None]] = [(0.0, first)]
    held_out += [(record.time, record.metrics[HELD_OUT]) for record in updates if HELD_OUT in record.metrics]
    held_out.append((snapshots[-1].time, last))
    known = [(time, rate) for time, rate in held_out if rate is not None]
    columns = {"hours": [round(time / 3600.0, 6) for time, _ in known], "success_rate": [round(r, 6) for _, r in known]}
    return {"held_out": columns}
