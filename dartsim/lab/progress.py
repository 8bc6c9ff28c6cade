"""``PrintedProgress``: progress bars that are lines of text where there is no terminal."""

from __future__ import annotations

from typing import Any

from rich.progress import Progress, ProgressColumn, TaskID, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text
from typing_extensions import override

LINE_SECONDS = 30.0
"""Real time between two lines of text."""

LABELS: dict[type, str] = {TimeElapsedColumn: " elapsed", TimeRemainingColumn: " left"}
"""What times are, where no bar shows it."""


class PrintedProgress(Progress):
    """Shows bars on a terminal, and elsewhere prints how far the work is, at most every half minute."""

    def __init__(self, *columns: ProgressColumn, **options: Any) -> None:
        super().__init__(*columns, disable=not options["console"].is_terminal, **options)
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
