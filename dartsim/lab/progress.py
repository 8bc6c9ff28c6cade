"""Progress of long work: bars that are lines of text where there is no terminal, and the time that it will take."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from rich.progress import Progress, ProgressColumn, TaskID, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text
from typing_extensions import override

LINE_SECONDS = 30.0
"""Real time between two lines of text."""

LABELS: dict[type, str] = {TimeElapsedColumn: " elapsed", TimeRemainingColumn: " left"}
"""What times are, where no bar shows it."""

MEASURED_SECONDS = 3.0
"""Real time over which the rate of the work is measured."""
LONG_SECONDS = 15.0
"""Work that takes less is not announced."""
DESKTOP_BYTES = 45_000
"""Memory of a simulated desktop with all that serves it, from 40 to 5,000 desktops (``experiments.speed``)."""


def memory_bytes() -> int:
    """Return the resident memory of this process and of those that it started."""
    import psutil

    total = 0
    own = psutil.Process()
    for process in (own, *own.children(recursive=True)):
        with suppress(psutil.Error):  # it has ended
            total += process.memory_info().rss
    return total


class ExpectedCost:
    """Prints one line early in long work: the time that the rest takes at the measured rate, and the memory.

    The rate is measured from the first report on: before that, processes start and load modules.

    Args:
        progress: Its console gets the line; its clock counts.
        at_most: Whether the work may end early.
        num_desktops: Desktops that this process simulates; None: other processes do, and only the memory in use is
            known.
        memory: Returns bytes in use.
    """

    def __init__(
        self,
        progress: Progress,
        *,
        at_most: bool = False,
        num_desktops: int | None = None,
        memory: Callable[[], int] = memory_bytes,
    ) -> None:
        self._progress, self._memory = progress, memory
        self._bound = "at most" if at_most else "about"
        self._num_desktops = num_desktops
        self._first: tuple[float, float, int, int] | None = None
        self._printed = False

    def progressed(self, share: float, turns: int = 0) -> None:
        """Print the line if it is time.

        Args:
            share: Share of the work that is done, from 0 to 1.
            turns: Turns that were simulated; 0 if unknown.
        """
        if self._printed:
            return
        now = self._progress.get_time()
        if self._first is None:
            self._first = now, share, turns, self._memory()
        began, share_before, turns_before, memory_before = self._first
        seconds = now - began
        if seconds < MEASURED_SECONDS or share <= share_before:
            return
        self._printed = True
        total = seconds * (1.0 - share_before) / (share - share_before)
        if total < LONG_SECONDS:
            return
        rate = f", at {(turns - turns_before) / seconds:,.0f} simulated turns per second" if turns else ""
        memory = f"{self._memory() / 1e6:,.0f} MB of memory so far"
        if self._num_desktops is not None:
            expected = max(self._memory(), memory_before + self._num_desktops * DESKTOP_BYTES)
            memory = f"{expected / 1e6:,.0f} MB of memory"
        self._progress.console.print(
            f"expected: {self._bound} {_time_text(total)}{rate} (measured over {seconds:.0f} s); {memory}",
            highlight=False,
            soft_wrap=True,
        )


def _time_text(seconds: float) -> str:
    if seconds < 120.0:
        return f"{seconds:.0f} s"
    return f"{seconds / 60.0:.0f} min" if seconds < 2 * 3600.0 else f"{seconds / 3600.0:.1f} h"


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
