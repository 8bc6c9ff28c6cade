"""Many runs (arms x seeds) on all cores or in this process, resumable and with one progress bar."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from platform import python_version
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import dartsim
from dartsim.config import Config, to_toml
from dartsim.core.plugins import used_plugins
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
    def key(self) -> str:
        """Arm, seed and a hash of the spec."""
        return f"{self.arm}/{self.seed}/{hashlib.sha256(repr(self.spec).encode()).hexdigest()[:16]}"


def result_key(config: Config, *options: Any) -> str:
    """Return a hash of what a simulation depends on: configuration, files that it names, options and code."""
    found = hashlib.sha256(f"{_code_hash()}{to_toml(config)}{options}".encode())
    for text in _texts(config.model_dump(mode="json")):
        with suppress(OSError, ValueError):  # no file's name
            found.update(Path(text).read_bytes())
    return found.hexdigest()[:32]


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list):
        for each in value.values() if isinstance(value, Mapping) else value:
            yield from _texts(each)


@cache
def _code_hash() -> str:
    """Return a hash of Python's version, of all files of dartsim, and of the plug-ins with the modules beside them."""
    # A checkout has links to some packages.
    walk = os.walk(Path(dartsim.__file__).parent, followlinks=True)
    files = {
        file for folder, _, names in walk for name in names if (file := Path(folder, name)).suffix not in (".pyc", "")
    }
    for name in used_plugins():
        spec = find_spec(name)
        if spec is not None and spec.origin is not None:
            folder = Path(spec.origin).parent
            files.update(folder.rglob("*.py") if spec.submodule_search_locations else folder.glob("*.py"))
    found = hashlib.sha256(python_version().encode())
    for file in sorted(files):
        found.update(f"{file.name}\0".encode() + hashlib.sha256(file.read_bytes()).digest())
    return found.hexdigest()


RESULTS = "results.jsonl"
"""File beside the folders of studies, with the results that they have in common."""


class Results:
    """Results of finished runs by key, in a file with a line of JSON for each.

    Several processes may add to it. A line that was cut off or is of another program is ignored.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._known: dict[str, Any] = {}
        for line in file.read_bytes().splitlines() if file.exists() else ():
            with suppress(ValueError, TypeError, KeyError):
                row = json.loads(line)
                self._known[row["key"]] = row["result"]

    def __contains__(self, key: str) -> bool:
        return key in self._known

    def __getitem__(self, key: str) -> Any:
        return self._known[key]

    def get(self, key: str) -> Any | None:
        return self._known.get(key)

    def add(self, key: str, result: Any) -> None:
        self._known[key] = result
        self._file.parent.mkdir(parents=True, exist_ok=True)
        with self._file.open("a", encoding="utf-8") as file:
            # The empty line ends one that was cut off.
            file.write("\n" + json.dumps({"key": key, "result": result}) + "\n")


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
    known = None if results is None else Results(results)
    keys = [run.key for run in runs]
    done: dict[int, R] = {} if known is None else {n: known[key] for n, key in enumerate(keys) if key in known}
    left = [number for number in range(len(runs)) if number not in done]
    if not left:
        return list(done.values())
    chosen = executor_for() if executor is None else nullcontext(executor)
    call = _Run(function, reports)
    with chosen as inner, progress_bar(console) as progress:
        for index, result in WithProgress(inner, progress, name).run(call, [runs[number] for number in left]):
            done[left[index]] = result
            if known is not None:
                known.add(keys[left[index]], result)
    return [done[number] for number in range(len(runs))]


@dataclass(frozen=True)
class _Run:
    """Adapts a run function to an executor."""

    function: Callable[..., Any]
    reports: bool

    def __call__(self, item: ArmRun, report: Report) -> Any:
        return self.function(item.spec, report) if self.reports else self.function(item.spec)
