"""Many runs (arms x seeds) on all cores or in this process, resumable and with one progress bar."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from dartsim.lab.progress import progress_bar

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

T = TypeVar("T")
R = TypeVar("R")

Report = Callable[[float], None]
"""A run calls it with the share of its work that is done, from 0 to 1."""


class Executor(Protocol):
    """Calls a function on many items: in this process or in others."""

    def run(
        self,
        function: Callable[[T, Report], R],
        items: Sequence[T],
        on_progress: Callable[[int, float], None] | None = None,
    ) -> Iterator[tuple[int, R]]:
        """Yield the number and the result of each item, in the order of completion."""
        ...


class InProcess:
    """Runs the items in this process, in order."""

    def run(
        self,
        function: Callable[[T, Report], R],
        items: Sequence[T],
        on_progress: Callable[[int, float], None] | None = None,
    ) -> Iterator[tuple[int, R]]:
        for number, item in enumerate(items):

            def report(share: float, number: int = number) -> None:
                if on_progress is not None:
                    on_progress(number, share)

            yield number, function(item, report)


@contextmanager
def executor_for(processes: int | None = None) -> Iterator[Executor]:
    """Provide an executor of this many runs at a time, by default one for each core; 1 runs in this process."""
    from dartsim.real.machine import usable_cores
    from dartsim.real.processes import LocalProcesses

    processes = processes or usable_cores()
    if processes == 1:
        yield InProcess()
    else:
        with LocalProcesses(processes) as executor:
            yield executor


class WithProgress:
    """An executor that shows the runs of another one in a progress bar.

    Args:
        inner: The executor.
        progress: Shows the bar.
        name: Name of the bar.
    """

    def __init__(self, inner: Executor, progress: Progress, name: str) -> None:
        self._inner, self._progress, self._name = inner, progress, name

    def run(
        self,
        function: Callable[[T, Report], R],
        items: Sequence[T],
        on_progress: Callable[[int, float], None] | None = None,
    ) -> Iterator[tuple[int, R]]:
        task = self._progress.add_task(self._name, total=len(items), live="")
        shares = [0.0] * len(items)

        def moved(number: int, share: float) -> None:
            shares[number] = share
            self._progress.update(task, completed=sum(shares))
            if on_progress is not None:
                on_progress(number, share)

        for number, result in self._inner.run(function, items, moved):
            self._progress.update(task, live=getattr(items[number], "name", ""))
            moved(number, 1.0)
            yield number, result


@dataclass(frozen=True, slots=True)
class ArmRun:
    """One run of a sweep. Picklable; its result does not depend on where or when it runs."""

    arm: str
    seed: int
    spec: Any = None

    @property
    def name(self) -> str:
        return f"{self.arm}, seed {self.seed}"

    @property
    def key(self) -> tuple[str, int, str]:
        """Arm, seed and a hash of the spec."""
        return self.arm, self.seed, hashlib.sha256(repr(self.spec).encode()).hexdigest()[:16]


def sweep(
    function: Callable[..., R],
    runs: Sequence[ArmRun],
    *,
    console: Console,
    name: str = "runs",
    results: Path | None = None,
    executor: Executor | None = None,
    reports: bool = False,
) -> list[R]:
    """Execute all runs with one progress bar, and return their results in the order of the runs.

    Args:
        function: An importable function that executes one run from its ``spec``.
        runs: The runs.
        console: Shows the bar.
        name: Name of the bar.
        results: A file with one line of JSON for each finished run, from which an interrupted sweep resumes; None
            keeps nothing.
        executor: Executes the runs; default: all cores.
        reports: Whether ``function`` takes a second argument, a ``Report``, which moves the bar while it runs.
    """
    known = {} if results is None else finished(results)
    done: dict[int, R] = {n: known[run.key] for n, run in enumerate(runs) if run.key in known}
    left = [number for number in range(len(runs)) if number not in done]
    if not left:
        return list(done.values())
    chosen = executor_for() if executor is None else nullcontext(executor)
    call = _Run(function, reports)
    with chosen as inner, progress_bar(console) as progress:
        for index, result in WithProgress(inner, progress, name).run(call, [runs[number] for number in left]):
            done[left[index]] = result
            if results is not None:
                _append(results, runs[left[index]], result)
    return [done[number] for number in range(len(runs))]


def finished(results: Path) -> dict[tuple[str, int, str], Any]:
    """Return the results in a file by the keys of their runs, ignoring a truncated last line."""
    if not results.exists():
        return {}
    by_key: dict[tuple[str, int, str], Any] = {}
    for line in results.read_text(encoding="utf-8").splitlines(keepends=True):
        if line.endswith("\n"):
            row = json.loads(line)
            by_key[row["arm"], row["seed"], row["spec"]] = row["result"]
    return by_key


def _append(results: Path, run: ArmRun, result: Any) -> None:
    arm, seed, spec = run.key
    line = json.dumps({"arm": arm, "seed": seed, "spec": spec, "result": result}) + "\n"
    results.parent.mkdir(parents=True, exist_ok=True)
    text = results.read_text(encoding="utf-8") if results.exists() else ""
    if text and not text.endswith("\n"):  # the last line is truncated
        results.write_text(text[: text.rfind("\n") + 1], encoding="utf-8")
    with results.open("a", encoding="utf-8") as file:
        file.write(line)


@dataclass(frozen=True)
class _Run:
    """Adapts a run function to an executor."""

    function: Callable[..., Any]
    reports: bool

    def __call__(self, item: ArmRun, report: Report) -> Any:
        return self.function(item.spec, report) if self.reports else self.function(item.spec)
