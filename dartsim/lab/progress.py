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
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text
from typing_extensions import override

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


@contextmanager
def progress_bar(console: Console) -> Iterator[Progress]:
    """Show how many runs are done, and the time remaining."""
    with PrintedProgress(MofNCompleteColumn(), console=console) as progress:
        yield progress
