"""``dartsim fuzz``: search for failing schedules, and replay one."""

from __future__ import annotations

import logging
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dartsim.cli.command_group import plugin_words
from dartsim.cli.console import errors, result
from dartsim.cli.options import FaultProfile, Json, Out, Processes, new_folder, refuse_unwritable
from dartsim.cli.signals import INTERRUPTED
from dartsim.core.errors import no_such
from dartsim.core.words import plural

if TYPE_CHECKING:
    from dartsim.fuzz import Case, CaseResult, Chunk, ChunkResult
    from dartsim.lab.sweep import Executor

PRESET_RUNS = 10
"""Runs of a chunk if several presets are searched, so that each gets its turn soon."""


def fuzz(
    scheduler: Annotated[
        str,
        typer.Argument(
            help="A preset or a TOML file; drawn (schedulers drawn from all rules); or all (each preset in turn)."
        ),
    ] = "drawn",
    replay: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="Replay the failure in this folder; what happens goes to --out, or runs/replay-HASH."
        ),
    ] = None,
    seconds: Annotated[float, typer.Option(min=1.0, help="How long to search, real seconds.")] = 60.0,
    faults: Annotated[
        FaultProfile, typer.Option(metavar="RATES", help="Fault rates: none, calm, osworld or hostile.")
    ] = "hostile",
    seed: Annotated[int, typer.Option(min=0, help="Random seed.")] = 0,
    processes: Processes = None,
    out_folder: Out = None,
    json_file: Json = None,
) -> None:
    """Search for a schedule under which the control plane breaks a rule.

    It runs the production code on tiny clusters in virtual time, with random schedulers, latencies, faults and orders
    of events, and checks every rule. Once all faults are over, every component must make progress again. A failure is
    simplified as far as possible and written as a run's folder, which --replay repeats exactly. Exit code 1: a failure
    was found, or the replayed one failed again.

    Examples:
        dartsim fuzz
        dartsim fuzz coupled --seconds 3600 --faults osworld
        dartsim fuzz my.toml
        dartsim fuzz --seconds 20 --seed 7 --json - | jq .violations
        dartsim fuzz --replay runs/fuzz-a1b2c3
    """
    if replay is not None:
        _replay(replay, out_folder, json_file)
        return
    from dartsim.fuzz import CaseResult, Tally, shrink
    from dartsim.lab.progress import PrintedProgress
    from dartsim.lab.sweep import executor_for
    from dartsim.real.machine import usable_cores

    presets = _presets(scheduler, seed)
    workers = processes or usable_cores()
    began = time.monotonic()
    tally, failures, interrupted = Tally(), list[CaseResult](), False
    try:
        with _silence(), executor_for(workers) as executor, PrintedProgress(console=errors) as progress:
            bar = progress.add_task("searching", total=seconds, live="")
            for chunk in _search(executor, 2 * workers, presets, faults, seed, began + seconds):
                tally.add(chunk.tally)
                failures += [] if chunk.failure is None else [chunk.failure]
                live = f"{tally.runs} runs, {tally.hours:.1f} simulated h, {len(tally.injected)} kinds of faults"
                progress.update(bar, completed=min(seconds, time.monotonic() - began), live=live)

            def simplified(runs: int, case: Case) -> None:
                live = f"{len(case.faults)} faults and {len(case.choices)} settings left after {runs} runs"
                progress.update(bar, description="simplifying a failure", live=live)

            failure = shrink(_shortest(failures), on_run=simplified) if failures else None
    except KeyboardInterrupt:
        failure, interrupted = _shortest(failures) if failures else None, True
        errors.print("interrupted: these are the finished runs; the same command searches the same cases again")
    wall = time.monotonic() - began
    figures: dict[str, Any] = {
        "seeds": tally.runs,
        "simulated_hours": round(tally.hours, 3),
        "violations": int(failure is not None),
        "interrupted": interrupted,
        "runs_per_cpu_second": round(tally.runs / tally.cpu_seconds, 1) if tally.cpu_seconds else None,
        "cpu_seconds": round(tally.cpu_seconds, 1),
        "wall_seconds": round(wall, 1),
        "seed": seed,
        "presets": presets,
        "fault_profile": faults,
        "faults_injected": dict(sorted(tally.injected.items())),
        "schedulers": dict(sorted(tally.schedulers.items())),
    }
    if failure is not None:
        failure, facts = _run_and_write(failure.case, lambda name: out_folder or new_folder(f"fuzz-{name}"))
        figures |= facts
    console = result(figures, json_file)
    if failure is not None:
        again = shlex.join(["dartsim", "fuzz", "--replay", figures["folder"], *plugin_words()])
        for line in (_verdict(failure), f"folder: {figures['folder']}", again):
            console.say(line)
    rules, kinds = plural(len(tally.schedulers), "scheduler"), plural(len(tally.injected), "kind")
    console.print(
        f"{'no' if failure is None else 'a'} rule was broken: {plural(tally.runs, 'run')}, "
        f"{tally.hours:.1f} simulated hours in {wall:.0f} s "
        f"({figures['runs_per_cpu_second'] or 0.0:.0f} runs a CPU second); "
        f"{rules}, {kinds} of faults injected {plural(sum(tally.injected.values()), 'time')}"
    )
    if failure is not None:
        raise typer.Exit(1)
    if interrupted:
        raise typer.Exit(INTERRUPTED)


def _replay(folder: Path, out_folder: Path | None, json_file: str | None) -> None:
    """Replay a case and write its folder.

    Raises:
        typer.Exit: With 1 if it broke a rule again.
    """
    from dartsim.fuzz.case_directory import read_case

    case = read_case(folder)
    refuse_unwritable("--out", out_folder or Path("runs"), folder=True)
    # Named by the hash of its events, so a second replay writes the same bytes to the same place.
    replayed, facts = _run_and_write(case, lambda name: out_folder or Path("runs") / f"replay-{name}")
    console = result({**facts, "virtual_seconds": replayed.seconds}, json_file)
    console.say(_verdict(replayed))
    console.print(f"event hash {replayed.event_hash}, {replayed.seconds:g} virtual seconds")
    console.say(f"folder: {facts['folder']}")
    if replayed.failed:
        raise typer.Exit(1)


def _presets(preset: str, seed: int) -> list[str]:
    """Return the presets to search, checked before anything starts."""
    from dartsim.fuzz.space import DRAWN, known_presets, shuffled_presets

    if preset == "all":
        return shuffled_presets(seed)
    if preset != DRAWN and not preset.endswith(".toml") and preset not in known_presets():
        raise no_such("preset", preset, (DRAWN, "all", *known_presets()))
    return [preset]


def _search_chunk(until: float, chunk: Chunk, report: Callable[[float], None]) -> ChunkResult:
    """Search a chunk, perhaps in another process, until a time on the monotonic clock that all processes share."""
    from dartsim.fuzz import search

    with _silence():
        began = time.process_time()
        result = search(chunk, clock=time.monotonic, until=until)
        result.tally.cpu_seconds = time.process_time() - began
        return result


@contextmanager
def _silence() -> Iterator[None]:
    """Silence warnings about injected faults, and about tasks left by a failed run."""
    level, hook = logging.root.manager.disable, sys.unraisablehook
    logging.disable(logging.CRITICAL)
    sys.unraisablehook = lambda unraisable: None
    try:
        yield
    finally:
        logging.disable(level)
        sys.unraisablehook = hook


def _search(
    executor: Executor,
    num_chunks: int,
    presets: list[str],
    faults: str,
    seed: int,
    until: float,
) -> Iterator[ChunkResult]:
    """Yield the results of chunks until the time is up, or a chunk and those beside it have failed."""
    from dartsim.fuzz import Chunk
    from dartsim.fuzz.search import CHUNK_RUNS

    number, found = 0, False
    runs = CHUNK_RUNS if len(presets) == 1 else PRESET_RUNS
    while not found and time.monotonic() < until:
        numbers = range(number, number + num_chunks)
        chunks = [Chunk(seed, n, presets[n % len(presets)], faults, runs=runs) for n in numbers]
        number += num_chunks
        for _, ended in executor.run(partial(_search_chunk, until), chunks):
            found |= ended.failure is not None
            yield ended


def _shortest(failures: Sequence[CaseResult]) -> CaseResult:
    return min(failures, key=lambda failure: len(failure.case.faults) + len(failure.case.choices))


def _run_and_write(case: Case, folder_of: Callable[[str], Path]) -> tuple[CaseResult, dict[str, Any]]:
    """Run a case and write its folder, named by the hash of its events; return the result, and the facts for JSON."""
    from dartsim.fuzz import run_case
    from dartsim.fuzz.case_directory import write_case_directory

    with _silence():
        ended = run_case(case, keep=True)
    folder = write_case_directory(folder_of(ended.event_hash), ended)
    return ended, {"rule": ended.rule, "text": ended.text, "event_hash": ended.event_hash, "folder": str(folder)}


def _verdict(result: CaseResult) -> str:
    if not result.failed:
        return "no rule was broken"
    case = result.case
    choices = ", ".join(f"{name} = {value}" for name, value in sorted(case.choices.items())) or "the simplest cluster"
    faults = "; ".join(
        f"{fault.kind} at {fault.at_seconds:g} s for {fault.lasts_seconds:g} s on "
        f"{'all' if fault.target is None else fault.target}"
        for fault in case.faults
    )
    return f"broken: {result.text}\n  at t={result.seconds:g} s, {case.preset}: {choices}\n  faults: {faults or 'none'}"
