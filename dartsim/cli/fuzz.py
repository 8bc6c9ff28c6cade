"""``dartsim fuzz``, a search for failing schedules, and ``dartsim replay``, which plays one again."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, as_completed
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ParamSpec, TypeVar

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from dartsim.cli.console import errors, out, write_json
from dartsim.cli.options import Json, Out, folder_target, new_folder
from dartsim.core.errors import ConfigError

if TYPE_CHECKING:
    from dartsim.fuzz import CaseResult, Chunk, ChunkResult, Tally

P = ParamSpec("P")
T = TypeVar("T")

EXAMPLES = (
    "Examples:\n\n"
    "dartsim fuzz\n\n"
    "dartsim fuzz --seconds 3600 --preset coupled --faults osworld\n\n"
    "dartsim fuzz --seconds 20 --seed 7 --json - | jq .violations"
)

REPLAY_EXAMPLES = "Examples:\n\ndartsim replay TOKEN\n\ndartsim replay TOKEN --out failure --json -"


def fuzz(
    seconds: Annotated[float, typer.Option(min=1.0, help="How long to search, seconds of this machine.")] = 60.0,
    preset: Annotated[
        str, typer.Option(help="Whose scheduler is searched; drawn: any; all: each preset in turn.")
    ] = "drawn",
    faults: Annotated[str, typer.Option(help="Fault rates: none, calm, osworld or hostile.")] = "hostile",
    seed: Annotated[int, typer.Option(min=0, help="Random seed.")] = 0,
    processes: Annotated[int | None, typer.Option(min=1, help="Number of processes; default: one per core.")] = None,
    out_folder: Out = None,
    json_file: Json = None,
) -> None:
    """Search for a schedule under which the control plane breaks a rule.

    Tiny clusters under drawn schedulers, latencies, faults and orders of events are played in virtual time, the
    production code in them watched all along; then all faults heal, and everything must move again. A failure is made
    as simple as possible, and printed as one line that replays it. Exit code 1: one was found.
    """
    from dartsim.real.machine import usable_cores

    presets = _presets(preset, faults)
    workers = processes or usable_cores()
    began = time.monotonic()
    try:
        with _silenced(), _pool(workers) as pool, _bar() as bar:
            tally, failure = _search(pool, workers, bar, presets, faults, seed, seconds)
    except KeyboardInterrupt:
        errors.print("interrupted: nothing was written; the same command searches the same cases again")
        raise typer.Exit(130) from None
    wall = time.monotonic() - began
    figures = _figures(tally, failure, wall, seed, presets, faults)
    if failure is not None:
        figures |= _report(failure, out_folder, errors if json_file == "-" else out)
    if json_file != "-":
        _show(tally, wall)
    if json_file is not None:
        write_json(figures, json_file)
    if failure is not None:
        raise typer.Exit(1)


def replay(
    token: Annotated[str, typer.Argument(help="What `dartsim fuzz` printed.", metavar="TOKEN")],
    out_folder: Annotated[
        Path | None,
        typer.Option(
            "--out",
            callback=folder_target,
            help="Output folder; default: runs/replay-HASH, the same at each replay.",
        ),
    ] = None,
    json_file: Json = None,
) -> None:
    """Play a case of `dartsim fuzz` again, to the byte, and write its folder.

    Exit code 1: it broke a rule again; 0: it no longer does.
    """
    from dartsim.fuzz import from_token, run_case
    from dartsim.fuzz.case_directory import write_case_directory

    case = from_token(token)
    folder_target(out_folder or Path("runs"))
    with _silenced():
        result = run_case(case, keep=True)
    # The hash names what was played: again, it is the same bytes in the same place.
    folder = write_case_directory(out_folder or Path("runs") / f"replay-{result.event_hash}", result)
    if json_file != "-":
        out.print(_verdict(result), soft_wrap=True, markup=False)
        out.print(f"event hash {result.event_hash}, {result.seconds:g} virtual seconds")
        out.print(f"folder: {folder}", soft_wrap=True)
    if json_file is not None:
        write_json(
            {
                "rule": result.rule,
                "text": result.text,
                "event_hash": result.event_hash,
                "virtual_seconds": result.seconds,
                "folder": str(folder),
            },
            json_file,
        )
    if result.failed:
        raise typer.Exit(1)


def _presets(preset: str, faults: str) -> list[str]:
    """Return the presets to search, checked before anything starts."""
    from dartsim.fuzz.space import DRAWN, MAX_FAULTS, known_presets

    if faults not in MAX_FAULTS:
        raise ConfigError(f"there are no {faults!r} faults; --faults takes {', '.join(MAX_FAULTS)}")
    if preset == "all":
        return known_presets()
    if preset != DRAWN and preset not in known_presets():
        raise ConfigError(f"there is no preset {preset!r}; --preset takes {DRAWN}, all, {', '.join(known_presets())}")
    return [preset]


# -- searching ------------------------------------------------------------------------------------


def _work(chunk: Chunk, cpu_seconds: float) -> ChunkResult:
    """Search a chunk in a process of the pool."""
    from dartsim.fuzz import search

    with _silenced():
        return search(chunk, clock=time.process_time, until=time.process_time() + max(0.0, cpu_seconds))


@contextmanager
def _silenced() -> Iterator[None]:
    """Silence warnings about injected faults, and about tasks left by a failed run."""
    level, hook = logging.root.manager.disable, sys.unraisablehook
    logging.disable(logging.CRITICAL)
    sys.unraisablehook = lambda left_behind: None
    try:
        yield
    finally:
        logging.disable(level)
        sys.unraisablehook = hook


class _InlineExecutor(Executor):
    """Executor that runs each call in this process."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future: Future[T] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


@contextmanager
def _pool(workers: int) -> Iterator[Executor]:
    if workers == 1:
        yield _InlineExecutor()
        return
    from dartsim.real.processes import process_pool

    with process_pool(workers) as pool:
        yield pool


def _search(
    pool: Executor,
    workers: int,
    bar: _SearchProgress,
    presets: list[str],
    faults: str,
    seed: int,
    seconds: float,
) -> tuple[Tally, CaseResult | None]:
    """Search until time is up or a rule breaks; return the simplified failure."""
    from dartsim.fuzz import Chunk, Tally

    tally, number, began = Tally(), 0, time.monotonic()
    while (left := began + seconds - time.monotonic()) > 0:
        chunks = [Chunk(seed, number + i, presets[(number + i) % len(presets)], faults) for i in range(2 * workers)]
        number += len(chunks)
        jobs = [pool.submit(_work, chunk, left) for chunk in chunks]
        failures = []
        for job in as_completed(jobs):
            found = job.result()
            tally.add(found.tally)
            if found.failure is not None:
                failures.append(found.failure)
            bar.searched(tally, time.monotonic() - began, seconds)
        if failures:
            return tally, _simplest(failures, bar)
    return tally, None


def _simplest(failures: list[CaseResult], bar: _SearchProgress) -> CaseResult:
    from dartsim.fuzz import shrink

    first = min(failures, key=lambda result: len(result.case.token()))
    return shrink(first, on_run=lambda runs, case: bar.shrinking(runs, len(case.faults), len(case.choices)))


# -- showing --------------------------------------------------------------------------------------


class _SearchProgress:
    """Progress bar of a search."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._task = progress.add_task("searching", total=1.0, live="")

    def searched(self, tally: Tally, elapsed: float, seconds: float) -> None:
        rate = tally.runs / elapsed if elapsed > 0 else 0.0
        live = f"{tally.runs} runs ({rate:.0f}/s), {tally.hours:.1f} simulated h, {len(tally.injected)} kinds of faults"
        self._progress.update(self._task, completed=min(1.0, elapsed / seconds), live=live)

    def shrinking(self, runs: int, faults: int, choices: int) -> None:
        live = f"a failure: {faults} faults and {choices} settings left after {runs} runs"
        self._progress.update(self._task, description="simplifying", live=live)


@contextmanager
def _bar() -> Iterator[_SearchProgress]:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=30),
        TimeElapsedColumn(),
        TextColumn("[dim]{task.fields[live]}"),
    )
    with Progress(*columns, console=errors, disable=not errors.is_terminal) as progress:
        yield _SearchProgress(progress)


def _report(failure: CaseResult, out_folder: Path | None, console: Console) -> dict[str, Any]:
    """Replay a failure, write its folder, and print the command that replays it."""
    from dartsim.fuzz import run_case
    from dartsim.fuzz.case_directory import write_case_directory

    with _silenced():
        again = run_case(failure.case, keep=True)
    folder = write_case_directory(out_folder or new_folder(f"fuzz-{again.event_hash}"), again)
    token = failure.case.token()
    console.print(_verdict(again), soft_wrap=True, markup=False, highlight=False)
    console.print(f"folder: {folder}", soft_wrap=True, markup=False, highlight=False)
    console.print(f"dartsim replay {token}", soft_wrap=True, markup=False, highlight=False)
    return {
        "token": token,
        "rule": again.rule,
        "text": again.text,
        "event_hash": again.event_hash,
        "folder": str(folder),
    }


def _verdict(result: CaseResult) -> str:
    case = result.case
    if not result.failed:
        return "no rule was broken"
    what = ", ".join(f"{name} = {value}" for name, value in sorted(case.choices.items())) or "the simplest cluster"
    faults = "; ".join(
        f"{f.kind} at {f.at_seconds:g} s for {f.lasts_seconds:g} s on {'all' if f.target is None else f.target}"
        for f in case.faults
    )
    return f"broken: {result.text}\n  at t={result.seconds:g} s, {case.preset}: {what}\n  faults: {faults or 'none'}"


def _figures(
    tally: Tally,
    failure: CaseResult | None,
    wall: float,
    seed: int,
    presets: list[str],
    faults: str,
) -> dict[str, Any]:
    return {
        "seeds": tally.runs,
        "simulated_hours": round(tally.hours, 3),
        "violations": int(failure is not None),
        "runs_per_cpu_second": round(tally.runs / tally.cpu_seconds, 1) if tally.cpu_seconds else None,
        "cpu_seconds": round(tally.cpu_seconds, 1),
        "wall_seconds": round(wall, 1),
        "seed": seed,
        "presets": presets,
        "fault_profile": faults,
        "faults_injected": dict(sorted(tally.injected.items())),
        "schedulers": dict(sorted(tally.schedulers.items())),
    }


def _show(tally: Tally, wall: float) -> None:
    speed = tally.runs / tally.cpu_seconds if tally.cpu_seconds else 0.0
    out.print(
        f"{tally.runs} runs, {tally.hours:.1f} simulated hours in {wall:.0f} s ({speed:.0f} runs a CPU second); "
        f"{len(tally.schedulers)} schedulers, {len(tally.injected)} kinds of faults injected "
        f"{sum(tally.injected.values())} times"
    )
