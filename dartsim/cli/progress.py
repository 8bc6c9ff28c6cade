"""Progress bars of runs: time, speed, and the figures so far."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress, ProgressColumn, Task
from rich.text import Text
from typing_extensions import override

from dartsim.cli.console import errors
from dartsim.lab.progress import PrintedProgress
from dartsim.observe import HELD_OUT, Instrument, Recorder
from dartsim.observe.figures import figures


class TimeColumn(ProgressColumn):
    """The run's time: hours, or minutes for a short real run."""

    def render(self, task: Task) -> Text:
        total = task.total or 0.0
        if task.fields.get("simulated", True):
            return Text(f"{task.completed:5.1f} of {total:g} simulated h")
        scale, unit = (1.0, "h") if total >= 2.0 else (60.0, "min")
        return Text(f"{scale * task.completed:5.1f} of {scale * total:g} {unit}")


class SpeedColumn(ProgressColumn):
    """Simulated time per real time; empty for a real run."""

    def render(self, task: Task) -> Text:
        if not task.fields.get("simulated", True):
            return Text()
        elapsed = task.finished_time if task.finished else task.elapsed
        if not elapsed or not task.completed:
            return Text("–", style="dim")
        return Text(f"{task.completed * 3600.0 / elapsed:,.0f}x", style="cyan")


@contextmanager
def bars(console: Console = errors) -> Iterator[Progress]:
    """Show one bar for each run; without a terminal, a line every half minute."""
    with PrintedProgress(TimeColumn(), SpeedColumn(), console=console) as progress:
        yield progress


class RunBar(Instrument):
    """Shows a run in a progress bar.

    Args:
        progress: Shows the bar.
        name: Name of the run.
        hours: Length of the run.
        simulated: Whether its time is virtual.
    """

    period_seconds = 10.0

    def __init__(self, progress: Progress, name: str, hours: float, *, simulated: bool = True) -> None:
        self._progress = progress
        self._task = progress.add_task(name, total=hours, live="starting", simulated=simulated)
        self._recorder: Recorder | None = None
        self._shown = 0.0

    @override
    def run_started(self, recorder: Recorder) -> None:
        self._recorder = recorder

    @override
    def time_advanced(self, now: float) -> None:
        real = time.monotonic()
        if real - self._shown < 0.2:  # at most five times a second
            return
        self._shown = real
        begun = 0.0 if self._recorder is None else self._recorder.started  # engines may take minutes to start
        hours = (now - begun) / 3600.0
        self._progress.update(self._task, completed=hours, live=self._figures())

    @override
    def preparing(self, what: str, done: int, total: int) -> None:
        self._progress.update(self._task, live=f"{what}: {done} of {total}")

    def done(self) -> None:
        total = self._progress.tasks[self._task].total
        self._progress.update(self._task, completed=total, live=self._figures())

    def _figures(self) -> str:
        recorder = self._recorder
        if recorder is None or len(recorder.snapshots) < 2:
            return ""
        now = figures(recorder.snapshots[0], recorder.measure())
        alarms = [alarm.name for alarm in recorder.alarms if alarm.cleared is None]
        success = next((u.metrics[HELD_OUT] for u in reversed(recorder.updates) if HELD_OUT in u.metrics), None)
        return (
            (f"ALARM {', '.join(alarms)} · " if alarms else "")
            + ("" if success is None else f"success {success:.0%} · ")
            + f"{now['trained_turns_per_minute']:.1f} trained turns/min · envs {now['env_utilization']:.0%} · "
            f"GPUs {now['gpu_utilization']:.0%} · version {now['num_updates']} · staleness <= {recorder.staleness_max}"
        )
