"""``PrintedProgress``: progress bars that are lines of text where there is no terminal."""

from __future__ import annotations

from typing import Any

from rich.progress import Progress, ProgressColumn, TaskID
from rich.text import Text
from typing_extensions import override

LINE_SECONDS = 30.0
"""Real time between two lines of text."""


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
        shown = (column(task) for column in self.columns if isinstance(column, ProgressColumn))
        texts = [text for text in shown if isinstance(text, Text) and text.plain.strip()]
        self.console.print(Text("  ").join(texts), soft_wrap=True)
