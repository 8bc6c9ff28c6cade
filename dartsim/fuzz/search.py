"""The search: draw and run cases until one fails, in chunks for several processes; then shrink the failure."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from dartsim.config.schema import FaultWindow
from dartsim.fuzz.cases import Case
from dartsim.fuzz.runner import CaseResult, Mutation, run_case
from dartsim.fuzz.space import DRAWN, draw_case, space
from dartsim.run.fast_memory import fast_memory

CHUNK_RUNS = 50
"""Runs of a chunk: about a second."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """A part of a search; its cases do not depend on the process that runs it."""

    seed: int
    number: int
    preset: str = DRAWN
    faults: str = "hostile"
    mutation: Mutation | None = None
    runs: int = CHUNK_RUNS


@dataclass
class Tally:
    """Totals of a search."""

    runs: int = 0
    seconds: float = 0.0
    injected: Counter[str] = field(default_factory=Counter)
    schedulers: Counter[str] = field(default_factory=Counter)
    cpu_seconds: float = 0.0

    @property
    def hours(self) -> float:
        return self.seconds / 3600.0

    def count(self, result: CaseResult) -> None:
        self.runs += 1
        self.seconds += result.seconds
        self.injected.update(result.injected)
        self.schedulers[_scheduler(result.case)] += 1

    def add(self, other: Tally) -> None:
        self.runs += other.runs
        self.seconds += other.seconds
        self.injected.update(other.injected)
        self.schedulers.update(other.schedulers)
        self.cpu_seconds += other.cpu_seconds


@dataclass(frozen=True, slots=True)
class ChunkResult:
    """Result of a chunk: its tally, and the first failed case, as drawn (None: no failure)."""

    tally: Tally
    failure: CaseResult | None


def search(chunk: Chunk, *, clock: Callable[[], float] | None = None, until: float | None = None) -> ChunkResult:
    """Run a chunk's cases, at least one, until one fails or ``clock`` reaches ``until``."""
    rng = np.random.Generator(np.random.PCG64([chunk.seed, chunk.number]))
    tally = Tally()
    failure: CaseResult | None = None
    began = clock() if clock is not None else 0.0
    with fast_memory():
        for _ in range(chunk.runs):
            result = run_case(draw_case(rng, chunk.preset, chunk.faults), mutation=chunk.mutation)
            tally.count(result)
            if result.failed:
                failure = result
                break
            if clock is not None and until is not None and clock() >= until:
                break
        gc.collect()  # systems of interrupted cases, before they move to an older generation
    if clock is not None:
        tally.cpu_seconds = clock() - began
    return ChunkResult(tally, failure)


def _scheduler(case: Case) -> str:
    if case.preset != DRAWN:
        return case.preset
    lockstep = ", lockstep" if case.choices.get("rollout.lockstep") else ""
    return f"{case.choices.get('rollout.unit', 'rollout')}, {case.choices.get('rollout.sync.mode', 'drain')}{lockstep}"


MAX_RUNS = 400
"""Largest number of runs of one shrinking."""

SEEDS = (0, 1, 2)
"""Small seeds, tried in place of the drawn one."""


def shrink(
    result: CaseResult,
    *,
    mutation: Mutation | None = None,
    max_runs: int = MAX_RUNS,
    on_run: Callable[[int, Case], None] | None = None,
) -> CaseResult:
    """Return the result of the simplest case found that breaks the same rule.

    Faults are removed in halves, quarters and one by one; then choices become simpler, the remaining faults shorter,
    and the seed small. This is repeated until nothing helps.
    """
    best, runs, seen = result, 0, [result.case]
    improved = True
    while improved:
        improved = False
        for candidate in _simpler(best.case):
            if candidate in seen:
                continue
            if runs >= max_runs:
                return best
            seen.append(candidate)
            runs += 1
            tried = run_case(candidate, mutation=mutation)
            if tried.rule == best.rule:
                best, improved = tried, True
            if on_run is not None:
                on_run(runs, best.case)
            if improved:
                break  # restart from the simpler case
    return best


def _simpler(case: Case) -> Iterator[Case]:
    """Yield simpler cases, the largest steps first."""
    for kept in _subsets(case.faults):
        yield replace(case, faults=kept)
    if case.profile != "none":
        yield replace(case, profile="none")
    for name, value in sorted(case.choices.items()):
        others = {key: other for key, other in case.choices.items() if key != name}
        yield replace(case, choices=others)
        values = space()[name]
        for simpler in values[1 : values.index(value) if value in values else None]:
            yield replace(case, choices={**others, name: simpler})
    for index, fault in enumerate(case.faults):
        for simpler_fault in _simpler_faults(fault):
            yield replace(case, faults=(*case.faults[:index], simpler_fault, *case.faults[index + 1 :]))
    for seed in SEEDS:
        if seed < case.seed:
            yield replace(case, seed=seed)


def _subsets(faults: tuple[FaultWindow, ...]) -> Iterator[tuple[FaultWindow, ...]]:
    """Yield the faults without all, half, a quarter, …, one of them."""
    size = len(faults)
    while size:
        for start in range(0, len(faults), size):
            yield faults[:start] + faults[start + size :]
        size //= 2


def _simpler_faults(fault: FaultWindow) -> Iterator[FaultWindow]:
    for seconds in (1.0, 5.0, 20.0, 60.0):
        if seconds < (fault.lasts_seconds or 0.0):
            yield fault.model_copy(update={"lasts_seconds": seconds})
    for start in (0.0, fault.at_seconds // 20 * 20):
        if start < fault.at_seconds:
            yield fault.model_copy(update={"at_seconds": start})
    if fault.target not in (None, 0):
        yield fault.model_copy(update={"target": 0})
