"""Many runs: arms by seeds, on all cores, on a Ray cluster or here; one progress bar; a sweep can resume."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

T = TypeVar("T")
R = TypeVar("R")

Report = Callable[[float], None]
"""Called by a run with the share of its work that is done, from 0 to 1."""

SPEED_SECONDS = 600.0
"""How far back a bar measures its speed: a simulation may take a minute, and a speed needs several of them."""


class Executor(Protocol):
    """Runs a function with many items somewhere."""

    def run(
        self,
        function: Callable[[T, Report], R],
        items: Sequence[T],
        on_progress: Callable[[int, float], None] | None = None,
    ) -> Iterator[tuple[int, R]]:
        """Yield the number and the result of each item, in the order in which they end.

        Args:
            function: Of a module; called with an item and with what it reports its progress to.
            items: One for each call.
            on_progress: Called with the number of an item and the share of it that is done.
        """
        ...


class InProcess:
    """Runs one item after the other in this process."""

    def run(
        self,
        function: Callable[[T, Report], R],
        items: Sequence[T],
        on_progress: Callable[[int, float], None] | None = None,
    ) -> Iterator[tuple[int, R]]:
        """Yield the number and the result of each item, in order."""
        for number, item in enumerate(items):

            def report(share: float, number: int = number) -> None:
                if on_progress is not None:
                    on_progress(number, share)

            yield number, function(item, report)


@contextmanager
def executor_for(processes: int | None = None, ray: str | None = None) -> Iterator[Executor]:
    """Give an executor on a Ray cluster, on so many cores (all by default), or in this process if that is one.

    Args:
        processes: Runs at a time on this machine.
        ray: Address of a cluster.
    """
    from dartsim.real.machine import usable_cores
    from dartsim.real.processes import LocalProcesses

    processes = processes or usable_cores()
    if ray is not None:
        from dartsim.real.ray_cluster.sweep import RayCluster

        yield RayCluster(ray)
    elif processes == 1:
        yield InProcess()
    else:
        with LocalProcesses(processes) as executor:
            yield executor


class WithProgress:
    """An executor that moves one bar by the runs of another executor.

    Args:
        inner: What runs them.
        progress: Where the bar is.
        name: What it is called.
        expected: Runs that are expected in all; more are counted as they come.
        size: Runs that an item counts as.
    """

    def __init__(
        self,
        inner: Executor,
        progress: Progress,
        name: str,
        *,
        expected: int = 0,
        size: Callable[[Any], int] = lambda item: 1,
    ) -> None:
        self._inner = inner
        self._progress = progress
        self._expected = expected
        self._size = size
        self._given = 0
        self._done = 0.0
        self._task = progress.add_task(name, total=expected, live="")

    def run(
        self,
        function: Callable[[T, Report], R],
        items: Sequence[T],
        on_progress: Callable[[int, float], None] | None = None,
    ) -> Iterator[tuple[int, R]]:
        """Yield as the inner executor does."""
        running: dict[int, float] = {}

        def moved(number: int, share: float) -> None:
            running[number] = share * self._size(items[number])
            self._progress.update(self._task, completed=self._done + sum(running.values()))
            if on_progress is not None:
                on_progress(number, share)

        self._given += sum(map(self._size, items))
        self._progress.update(self._task, total=max(self._expected, self._given))
        for number, result in self._inner.run(function, items, moved):
            running.pop(number, None)
            self._done += self._size(items[number])
            live = getattr(items[number], "name", "")
            self._progress.update(self._task, completed=self._done + sum(running.values()), live=live)
            yield number, result

    def done(self) -> None:
        """Say that no more runs come."""
        self._progress.update(self._task, total=self._given)


@contextmanager
def progress_bar(console: Console) -> Iterator[Progress]:
    """Show how many runs are done; nothing where output is not a terminal."""
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=30),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("[dim]{task.fields[live]}"),
    )
    quiet = not console.is_terminal
    with Progress(*columns, console=console, disable=quiet, speed_estimate_period=SPEED_SECONDS) as progress:
        yield progress


# ---- sweeps


@dataclass(frozen=True, slots=True)
class ArmRun:
    """One run of a sweep. Picklable; its result does not depend on where or when it runs.

    Attributes:
        arm: What is compared.
        seed: Of the run.
        spec: What the run function needs: a configuration, or a dataclass that makes one.
    """

    arm: str
    seed: int
    spec: Any = None

    @property
    def name(self) -> str:
        """How it is called in progress."""
        return f"{self.arm}, seed {self.seed}"

    @property
    def key(self) -> tuple[str, int, str]:
        """Arm, seed and a hash of the rest: the same run has the same key."""
        return self.arm, self.seed, hashlib.sha256(repr(self.spec).encode()).hexdigest()[:16]


def sweep(
    function: Callable[[Any], R],
    runs: Sequence[ArmRun],
    *,
    console: Console,
    name: str = "runs",
    results: Path | None = None,
    executor: Executor | None = None,
    ray: str | None = None,
) -> list[R]:
    """Make all runs with one progress bar and return their results in the order of the runs.

    Args:
        function: Of a module; it makes one run from its ``spec``.
        runs: What to run.
        console: Where the bar is shown.
        name: Of the bar.
        results: A file with one line for each finished run, which must be JSON-serializable. Runs that it has already
            are not made again, so that an interrupted sweep resumes. None: nothing is kept.
        executor: What runs them; all cores by default.
        ray: Address of a Ray cluster to run them on instead.
    """
    known = {} if results is None else finished(results)
    found: dict[int, R] = {n: known[run.key] for n, run in enumerate(runs) if run.key in known}
    left = [number for number in range(len(runs)) if number not in found]
    if not left:
        return [found[number] for number in range(len(runs))]
    chosen = executor_for(ray=ray) if executor is None else nullcontext(executor)
    with chosen as inner, progress_bar(console) as progress:
        shown = WithProgress(inner, progress, name)
        for place, result in shown.run(_Run(function), [runs[number] for number in left]):
            found[left[place]] = result
            if results is not None:
                _append(results, runs[left[place]], result)
    return [found[number] for number in range(len(runs))]


def finished(results: Path) -> dict[tuple[str, int, str], Any]:
    """Return the results in a file by the keys of their runs; a last line that was cut off is left out."""
    if not results.exists():
        return {}
    found: dict[tuple[str, int, str], Any] = {}
    for line in results.read_text(encoding="utf-8").splitlines(keepends=True):
        if line.endswith("\n"):
            row = json.loads(line)
            found[row["arm"], row["seed"], row["spec"]] = row["result"]
    return found


def _append(results: Path, run: ArmRun, result: Any) -> None:
    arm, seed, spec = run.key
    line = json.dumps({"arm": arm, "seed": seed, "spec": spec, "result": result}) + "\n"
    results.parent.mkdir(parents=True, exist_ok=True)
    text = results.read_text(encoding="utf-8") if results.exists() else ""
    if text and not text.endswith("\n"):  # the last run was cut off while it was written
        results.write_text(text[: text.rfind("\n") + 1], encoding="utf-8")
    with results.open("a", encoding="utf-8") as file:
        file.write(line)


@dataclass(frozen=True)
class _Run:
    """A run function without progress of its own, as an executor takes it."""

    function: Callable[[Any], Any]

    def __call__(self, item: ArmRun, report: Report) -> Any:
        return self.function(item.spec)
