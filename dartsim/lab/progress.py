"""Progress of long work: bars on a terminal, lines of text elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text
from typing_extensions import override

from dartsim.observe import HELD_OUT, Instrument, Recorder
from dartsim.observe.figures import figures

LINE_SECONDS = 30.0
"""Real time between two lines of text."""
SPEED_SECONDS = 600.0
"""Time over which a bar measures its speed, long enough for several simulations of a minute."""

LABELS: dict[type, str] = {TimeElapsedColumn: " elapsed", TimeRemainingColumn: " left"}
"""Labels of the times in lines of text."""


class PrintedProgress(Progress):
    """Shows bars on a terminal; elsewhere prints the progress at most every half minute.

    Args:
        amount: Columns for the amount of work done.
        console: Shows them.
    """

    def __init__(self, *amount: ProgressColumn, console: Console, **options: Any) -> None:
        super().__init__(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=30),
            *amount,
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[live]}", style="dim", markup=False),
            console=console,
            disable=not console.is_terminal,
            speed_estimate_period=SPEED_SECONDS,
            **options,
        )
        self._printed = self.get_time()

    @override
    def update(self, task_id: TaskID, **changes: Any) -> None:
        super().update(task_id, **changes)
        now = self.get_time()
        if not self.disable or now - self._printed < LINE_SECONDS:
            return
        self._printed = now
        (task,) = (task for task in self.tasks if task.id == task_id)
        texts = []
        for column in self.columns:
            text = column(task) if isinstance(column, ProgressColumn) else None
            if isinstance(text, Text) and text.plain.strip():
                texts.append(text.append(LABELS.get(type(column), "")))
        self.console.print(Text("  ").join(texts), soft_wrap=True)


def progress_bar(console: Console) -> PrintedProgress:
    """Show how many runs are done, and the time remaining."""
    return PrintedProgress(MofNCompleteColumn(), console=console)


class TimeColumn(ProgressColumn):
    """The run's time: hours, or minutes for a short real run."""

    def render(self, task: Task) -> Text:
        total = task.total or 0.0
        if task.fields["simulated"]:
            return Text(f"{task.completed:5.1f} of {total:g} simulated h")
        scale, unit = (1.0, "h") if total >= 2.0 else (60.0, "min")
        return Text(f"{scale * task.completed:5.1f} of {scale * total:g} {unit}")


@contextmanager
def run_bar(console: Console, name: str, hours: float, *, simulated: bool = True) -> Iterator[RunBar]:
    """Show a bar for a run of this length; yield the instrument that moves it."""
    with PrintedProgress(TimeColumn(), console=console) as progress:
        yield RunBar(progress, progress.add_task(name, total=hours, live="starting", simulated=simulated))


class RunBar(Instrument):
    """Shows a run's time and figures so far in a progress bar."""

    period_seconds = 10.0

    def __init__(self, progress: Progress, task: TaskID) -> None:
        self._progress, self._task = progress, task
        self._recorder: Recorder | None = None
        self._shown = 0.0

    @override
    def run_started(self, recorder: Recorder) -> None:
        self._recorder = recorder

    @override
    def time_advanced(self, now: float) -> None:
        real = self._progress.get_time()
        if real - self._shown < 0.2:  # at most five times a second
            return
        self._shown = real
        begun = 0.0 if self._recorder is None else self._recorder.started  # engines may take minutes to start
        self._progress.update(self._task, completed=(now - begun) / 3600.0, live=self._figures())

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
