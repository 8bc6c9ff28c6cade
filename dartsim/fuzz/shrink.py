"""Shrinking: the simplest case found that breaks the same rule."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from dartsim.config.schema import FaultWindow
from dartsim.fuzz.cases import Case
from dartsim.fuzz.runner import CaseResult, Mutation, run_case
from dartsim.fuzz.space import SPACE

MAX_RUNS = 400
"""Of one shrinking."""

SEEDS = (0, 1, 2)
"""Seeds that are as good as any; tried in place of a drawn one."""


def shrink(
    result: CaseResult,
    *,
    mutation: Mutation | None = None,
    max_runs: int = MAX_RUNS,
    on_run: Callable[[int, Case], None] | None = None,
) -> CaseResult:
    """Return the result of the simplest case that was found to break the same rule.

    Faults are taken away in halves, quarters and one by one; then each choice is brought to its simplest value, or to
    a simpler one; then what is left of the faults is made shorter and the seed small; again, until nothing helps.

    Args:
        result: Of the case that failed.
        mutation: The planted bug under which it failed.
        max_runs: Cases played at most.
        on_run: Called after each of them with their number and the simplest case so far.
    """
    best, runs, seen = result, 0, {result.case.token()}
    improved = True
    while improved:
        improved = False
        for candidate in _simpler(best.case):
            token = candidate.token()
            if token in seen:
                continue
            if runs >= max_runs:
                return best
            seen.add(token)
            runs += 1
            tried = run_case(candidate, mutation=mutation)
            if tried.rule == best.rule:
                best, improved = tried, True
            if on_run is not None:
                on_run(runs, best.case)
            if improved:
                break  # begin again from what is simpler now
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
        for simpler in SPACE[name][1 : SPACE[name].index(value)]:
            yield replace(case, choices={**others, name: simpler})
    for index, fault in enumerate(case.faults):
        for simpler_fault in _simpler_faults(fault):
            yield replace(case, faults=(*case.faults[:index], simpler_fault, *case.faults[index + 1 :]))
    for seed in SEEDS:
        if seed < case.seed:
            yield replace(case, seed=seed)


def _subsets(faults: tuple[FaultWindow, ...]) -> Iterator[tuple[FaultWindow, ...]]:
    """Yield the faults without all, a half, a quarter, …, one of them."""
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
