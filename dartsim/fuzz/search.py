"""The search: cases are drawn and run until one fails, in chunks that processes can share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from dartsim.fuzz.cases import Case
from dartsim.fuzz.runner import CaseResult, Mutation, run_case
from dartsim.fuzz.space import DRAWN, draw_case

CHUNK_RUNS = 50
"""Runs of a chunk: about a second."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """A part of a search: the same cases in whatever process runs it.

    Attributes:
        seed: Of the search.
        number: Which part of it.
        preset: Whose schedulers.
        faults: How hostile.
        mutation: A planted bug; None for none.
        runs: How many cases.
    """

    seed: int
    number: int
    preset: str = DRAWN
    faults: str = "hostile"
    mutation: Mutation | None = None
    runs: int = CHUNK_RUNS


@dataclass
class Tally:
    """What was searched.

    Attributes:
        runs: Cases run.
        seconds: Virtual seconds of all of them.
        env_seconds: The same, times the desktops of each.
        injected: How often each kind of fault was injected.
        schedulers: Runs by scheduler: preset, unit, and mode of the weight changes.
        cpu_seconds: CPU time it took; 0 if nobody measured it.
    """

    runs: int = 0
    seconds: float = 0.0
    env_seconds: float = 0.0
    injected: Counter[str] = field(default_factory=Counter)
    schedulers: Counter[str] = field(default_factory=Counter)
    cpu_seconds: float = 0.0

    @property
    def hours(self) -> float:
        """Virtual hours."""
        return self.seconds / 3600.0

    def count(self, result: CaseResult) -> None:
        """Add one run."""
        choices = result.case.choices
        self.runs += 1
        self.seconds += result.seconds
        self.env_seconds += result.seconds * int(choices.get("envs", 1) or 1)
        self.injected.update(result.injected)
        self.schedulers[_scheduler(result.case)] += 1

    def add(self, other: Tally) -> None:
        """Add what another part searched."""
        self.runs += other.runs
        self.seconds += other.seconds
        self.env_seconds += other.env_seconds
        self.injected.update(other.injected)
        self.schedulers.update(other.schedulers)
        self.cpu_seconds += other.cpu_seconds


@dataclass(frozen=True, slots=True)
class ChunkResult:
    """What a chunk found.

    Attributes:
        tally: What was searched.
        failure: The first case that failed, as it was drawn; None if all is well.
    """

    tally: Tally
    failure: CaseResult | None


def search(chunk: Chunk, *, clock: Callable[[], float] | None = None, until: float | None = None) -> ChunkResult:
    """Run a chunk's cases until one fails, or ``clock`` reaches ``until``.

    Args:
        chunk: Which cases.
        clock: Returns CPU seconds, for the tally; None measures nothing.
        until: When to stop, on the same clock.
    """
    rng = np.random.Generator(np.random.PCG64([chunk.seed, chunk.number]))
    tally = Tally()
    failure: CaseResult | None = None
    began = clock() if clock is not None else 0.0
    for _ in range(chunk.runs):
        result = run_case(draw_case(rng, chunk.preset, chunk.faults), mutation=chunk.mutation)
        tally.count(result)
        if result.failed:
            failure = result
            break
        if clock is not None and until is not None and clock() >= until:
            break
    if clock is not None:
        tally.cpu_seconds = clock() - began
    return ChunkResult(tally, failure)


def _scheduler(case: Case) -> str:
    if case.preset != DRAWN:
        return case.preset
    lockstep = ", lock step" if case.choices.get("lockstep") else ""
    return f"{case.choices.get('unit', 'rollout')}, {case.choices.get('sync', 'drain')}{lockstep}"
