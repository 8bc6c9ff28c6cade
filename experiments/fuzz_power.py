"""How good the search for failing schedules is: planted bugs, the time to find them, and hours without a violation.

python -m experiments.fuzz_power            planted bugs with 3 seeds; every preset, drawn cases and 10,000 hours
python -m experiments.fuzz_power --quick    the same keys in a minute

A full run takes about 30 CPU minutes.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from math import ceil

from dartsim.fuzz import Chunk, Tally, run_case, search, shrink
from dartsim.fuzz.runner import CaseResult
from dartsim.fuzz.space import DRAWN, known_presets, long_case
from dartsim.lab.sweep import ArmRun
from experiments.planted_bugs import MUTATIONS
from experiments.study import Experiment, Figures, Options, short_commit

FIND_SECONDS = 60.0
"""CPU time allowed to find one bug."""

SHRINK_RUNS = 60
"""Runs allowed to shrink one failure."""

HOSTILE_HOURS, CASE_HOURS = 10_000, 24
"""Hours of hostile operation of all presets together, and of one run."""


def measure(options: Options) -> Figures:
    """Look for every planted bug, then search every preset, then run every preset for hours."""
    bugs = planted_bugs(options)
    presets = drawn_cases(options)
    operation = hostile_operation(options)
    hours = sum(row["hours"] for row in operation)
    return {
        "bugs": bugs,
        "planted_total": len(bugs),
        "planted_found": sum(bug["found"] == len(bug["runs"]) for bug in bugs),
        "presets": presets,
        "operation": operation,
        "seeds_searched": sum(row["runs"] for row in (*presets, *operation)),
        "simulated_hours": sum(row["hours"] for row in presets) + hours,
        "cpu_seconds_per_cluster_hour": sum(row["cpu_seconds"] for row in operation) / hours,
        "violations": sum(row["violations"] for row in (*presets, *operation)),
        "config": {"faults": "hostile", "find_cpu_seconds": FIND_SECONDS, "presets": [p["preset"] for p in presets]},
    }


def planted_bugs(options: Options) -> list[Figures]:
    """Return runs and CPU seconds until each bug was found with each seed, and what was left after shrinking."""
    runs = [ArmRun(bug, seed, (bug, seed, options.quick)) for bug in MUTATIONS for seed in range(options.seeds)]
    searched = options.sweep(find_bug, runs, "planted bugs")
    bugs = []
    for number, (name, bug) in enumerate(MUTATIONS.items()):
        by_seed = searched[number * options.seeds : (number + 1) * options.seeds]
        rules = [result["rule"] for result in by_seed if result["rule"] is not None]
        columns = ("runs", "cpu_seconds", "faults_left", "choices_left")
        bugs.append(
            {
                "bug": name,
                "text": bug.text,
                "found": len(rules),
                "rules": sorted(set(rules)),
                **{column: [result[column] for result in by_seed] for column in columns},
            }
        )
    return bugs


def find_bug(job: tuple[str, int, bool]) -> Figures:
    """Look for one bug with one seed, and shrink the failure."""
    name, seed, quick = job
    logging.disable(logging.CRITICAL)
    mutation, clock = MUTATIONS[name].apply, time.process_time
    result = search(Chunk(seed, 0, mutation=mutation, runs=100_000), clock=clock, until=clock() + FIND_SECONDS)
    facts: Figures = {"rule": None, "faults_left": None, "choices_left": None}
    if result.failure is not None:
        simple = shrink(result.failure, mutation=mutation, max_runs=20 if quick else SHRINK_RUNS)
        left = len(simple.case.faults) + (simple.case.profile != "none")
        facts = {"rule": simple.rule, "faults_left": left, "choices_left": len(simple.case.choices)}
    return {**facts, "runs": result.tally.runs, "cpu_seconds": round(result.tally.cpu_seconds, 2)}


def drawn_cases(options: Options) -> list[Figures]:
    """Search drawn cases of every preset; return what was searched."""
    chunks = [Chunk(1, 0, preset=name, runs=5 if options.quick else 80) for name in (DRAWN, *known_presets())]
    return options.sweep(search_chunk, [ArmRun(chunk.preset, 0, chunk) for chunk in chunks], "presets")


def search_chunk(chunk: Chunk) -> Figures:
    """Search one chunk."""
    logging.disable(logging.CRITICAL)
    result = search(chunk, clock=time.process_time)
    return preset_row(chunk.preset, result.tally, [] if result.failure is None else [result.failure])


def hostile_operation(options: Options) -> list[Figures]:
    """Run a small cluster of every preset for hours under hostile faults."""
    names = known_presets()[:3] if options.quick else known_presets()
    hours = 6 if options.quick else CASE_HOURS
    cases = 1 if options.quick else ceil(HOSTILE_HOURS / hours / len(names))
    return options.sweep(operate, [ArmRun(name, 0, (name, cases, hours)) for name in names], "hours of operation")


def operate(job: tuple[str, int, int]) -> Figures:
    """Run the long cases of one preset."""
    name, cases, hours = job
    logging.disable(logging.CRITICAL)
    began, tally, failures = time.process_time(), Tally(), list[CaseResult]()
    for seed in range(cases):
        result = run_case(long_case(name, seed, hours=hours))
        tally.count(result)
        if result.failed:
            failures.append(result)
    tally.cpu_seconds = time.process_time() - began
    return preset_row(name, tally, failures)


def preset_row(preset: str, tally: Tally, failures: Sequence[CaseResult]) -> Figures:
    """Return what was searched of a preset."""
    return {
        "preset": preset,
        "runs": tally.runs,
        "hours": round(tally.hours, 2),
        "cpu_seconds": round(tally.cpu_seconds, 2),
        "violations": len(failures),
        "failures": [{"text": failure.text, "case": failure.case.as_json()} for failure in failures],
    }


def provenance(figures: Figures) -> str:
    """What was searched in all, and how fast."""
    return (
        f"{figures['planted_found']} of {figures['planted_total']} planted bugs were found with every seed. "
        f"{figures['seeds_searched']:,} runs, {figures['simulated_hours']:,.0f} cluster-hours, "
        f"{figures['violations']} violations; an hour of hostile operation takes "
        f"{figures['cpu_seconds_per_cluster_hour']:.3f} CPU seconds (`python -m experiments.fuzz_power`, commit "
        f"{short_commit(figures)}).\n"
    )


STUDY = Experiment(
    name="fuzz_power",
    about=str(__doc__),
    measure=measure,
    tables={"fuzz-provenance": provenance},
)

if __name__ == "__main__":
    STUDY.run()
