"""What the search for failing schedules is worth: planted bugs, the time to find them, and hours without a violation.

python -m experiments.fuzz_power            planted bugs under 3 seeds; every preset, drawn cases and 10,000 hours
python -m experiments.fuzz_power --quick    the same keys in a minute

The whole takes some 15 CPU minutes.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from math import ceil
from statistics import median
from typing import Any

from rich.progress import track

from dartsim.fuzz import Chunk, ChunkResult, Tally, run_case, search, shrink
from dartsim.fuzz.space import DRAWN, known_presets, long_case
from dartsim.real.machine import usable_cores
from dartsim.real.processes import SpawnPool, process_pool
from experiments.planted_bugs import MUTATIONS
from experiments.study import Experiment, Options, Rows, short_commit

FIND_SECONDS = 10.0
"""CPU time that finding one bug may take."""

SHRINK_RUNS = 60
"""Runs that making one failure simple may take."""

HOSTILE_HOURS, CASE_HOURS = 10_000, 24
"""Hours of hostile operation of all presets together, and of one run."""


def measure(options: Options) -> dict[str, Any]:
    """Look for every planted bug, then search every preset."""
    with process_pool(usable_cores()) as pool:
        bugs = _bugs(pool, options)
        speed, presets = _presets(pool, options)
        operation = _operation(pool, options)
    return {
        "bugs": bugs,
        "planted_total": len(bugs),
        "planted_found": sum(bug["found"] == len(bug["runs"]) for bug in bugs),
        "speed": speed,
        "presets": presets,
        "operation": operation,
        "seeds_searched": sum(preset["runs"] for preset in (*presets, *operation)),
        "simulated_hours": sum(preset["hours"] for preset in (*presets, *operation)),
        "cpu_seconds_per_cluster_hour": sum(one["cpu_seconds"] for one in operation)
        / sum(one["hours"] for one in operation),
        "violations": sum(preset["violations"] for preset in (*presets, *operation)),
        "config": {"faults": "hostile", "find_cpu_seconds": FIND_SECONDS, "presets": [p["preset"] for p in presets]},
    }


def _bugs(pool: SpawnPool, options: Options) -> list[dict[str, Any]]:
    """Return runs and CPU seconds until each planted bug was found, under each seed, and what it was shrunk to."""
    jobs = {
        name: [pool.submit(_find, name, seed, options.quick) for seed in range(options.seeds)] for name in MUTATIONS
    }
    bugs = []
    for name, waiting in track(jobs.items(), "planted bugs", console=options.console):
        found = [job.result() for job in waiting]
        bugs.append(
            {
                "bug": name,
                "text": MUTATIONS[name].text,
                "found": sum(one["rule"] is not None for one in found),
                "rules": sorted({one["rule"] for one in found if one["rule"] is not None}),
                "runs": [one["runs"] for one in found],
                "cpu_seconds": [round(one["cpu_seconds"], 2) for one in found],
                "faults_left": [one["faults_left"] for one in found],
                "choices_left": [one["choices_left"] for one in found],
            }
        )
    return bugs


def _find(name: str, seed: int, quick: bool) -> dict[str, Any]:
    """Look for one bug under one seed, and make what was found simple."""
    logging.disable(logging.CRITICAL)
    clock = time.process_time
    found = search(
        Chunk(seed, 0, mutation=MUTATIONS[name].apply, runs=100_000), clock=clock, until=clock() + FIND_SECONDS
    )
    facts: dict[str, Any] = {"rule": None, "faults_left": None, "choices_left": None}
    if found.failure is not None:
        simple = shrink(found.failure, mutation=MUTATIONS[name].apply, max_runs=20 if quick else SHRINK_RUNS)
        left = len(simple.case.faults) + (simple.case.profile != "none")
        facts = {"rule": simple.rule, "faults_left": left, "choices_left": len(simple.case.choices)}
    return {**facts, "runs": found.tally.runs, "cpu_seconds": found.tally.cpu_seconds}


def _presets(pool: SpawnPool, options: Options) -> tuple[dict[str, float], list[dict[str, Any]]]:
    """Search every preset on all cores; return the speed and what was searched."""
    names = [DRAWN, *known_presets()]
    rounds, runs = (1, 5) if options.quick else (2, 40)
    began = time.monotonic()
    jobs = {
        name: [pool.submit(_search, Chunk(1, number, preset=name, runs=runs)) for number in range(rounds)]
        for name in names
    }
    presets, total = [], Tally()
    for name, waiting in track(jobs.items(), "presets", console=options.console):
        tally, failures = _sum([job.result() for job in waiting])
        total.add(tally)
        presets.append({"preset": name, "runs": tally.runs, "hours": round(tally.hours, 2), **failures})
    minutes = (time.monotonic() - began) / 60.0
    speed = {
        "processes": usable_cores(),
        "wall_minutes": minutes,
        "runs_per_minute": total.runs / minutes,
        "simulated_hours_per_minute": total.hours / minutes,
        "runs_per_cpu_second": total.runs / total.cpu_seconds,
        "desktop_hours": total.env_seconds / 3600.0,
        "faults_injected": float(sum(total.injected.values())),
    }
    return speed, presets


def _operation(pool: SpawnPool, options: Options) -> list[dict[str, Any]]:
    """Let a small cluster of every preset work for hours under hostile faults."""
    names = known_presets()[:3] if options.quick else known_presets()
    hours = 6 if options.quick else CASE_HOURS
    cases = 1 if options.quick else ceil(HOSTILE_HOURS / hours / len(names))
    jobs = {name: pool.submit(_work, name, cases, hours) for name in names}
    return [job.result() for job in track(jobs.values(), "hours of operation", console=options.console)]


def _work(name: str, cases: int, hours: int) -> dict[str, Any]:
    logging.disable(logging.CRITICAL)
    began, tally, failures = time.process_time(), Tally(), []
    for seed in range(cases):
        result = run_case(long_case(name, seed, hours=hours))
        tally.count(result)
        if result.failed:
            failures.append({"text": result.text, "token": result.case.token()})
    return {
        "preset": name,
        "runs": tally.runs,
        "hours": round(tally.hours, 2),
        "cpu_seconds": round(time.process_time() - began, 2),
        "violations": len(failures),
        "failures": failures,
    }


def _search(chunk: Chunk) -> ChunkResult:
    logging.disable(logging.CRITICAL)
    return search(chunk, clock=time.process_time)


def _sum(chunks: Sequence[ChunkResult]) -> tuple[Tally, dict[str, Any]]:
    tally, failures = Tally(), []
    for chunk in chunks:
        tally.add(chunk.tally)
        if chunk.failure is not None:
            failures.append({"text": chunk.failure.text, "token": chunk.failure.case.token()})
    return tally, {"violations": len(failures), "failures": failures}


def bug_rows(figures: dict[str, Any]) -> Rows:
    """Return the planted bugs: under how many seeds each was found, by what, and what it took."""
    rows = [
        [
            bug["bug"],
            bug["text"],
            f"{bug['found']} of {len(bug['runs'])}",
            ", ".join(bug["rules"]),
            f"{median(bug['runs']):g}",
            f"{median(bug['cpu_seconds']):.2f}",
        ]
        for bug in figures["bugs"]
    ]
    return ["planted bug", "what is wrong", "found", "by", "runs", "CPU s"], rows


def preset_rows(figures: dict[str, Any]) -> Rows:
    """Return what was searched of every preset: drawn cases, and hours of hostile operation."""
    long = {one["preset"]: one for one in figures["operation"]}
    rows = []
    for one in figures["presets"]:
        hours = long.get(one["preset"])
        wrong = one["violations"] + (hours["violations"] if hours else 0)
        worked = ["–", "–"] if hours is None else [f"{hours['hours']:,.0f}", f"{hours['cpu_seconds']:.1f}"]
        rows.append([f"`{one['preset']}`", str(one["runs"]), f"{one['hours']:.1f}", *worked, str(wrong)])
    return ["preset", "drawn runs", "their hours", "hostile hours", "CPU s of them", "violations"], rows


def provenance(figures: dict[str, Any]) -> str:
    """Return what was searched in all, how fast, and where."""
    speed = figures["speed"]
    return (
        f"{figures['planted_found']} of {figures['planted_total']} planted bugs were found under every seed. "
        f"{figures['seeds_searched']:,} runs, {figures['simulated_hours']:,.0f} cluster-hours, "
        f"{figures['violations']} violations; an hour of hostile operation takes "
        f"{figures['cpu_seconds_per_cluster_hour']:.3f} CPU seconds. Drawn cases: {speed['runs_per_cpu_second']:.0f} "
        f"a CPU second, {speed['runs_per_minute']:.0f} a minute on {speed['processes']:.0f} cores, "
        f"{speed['faults_injected']:,.0f} faults injected. `python -m experiments.fuzz_power`, commit "
        f"{short_commit(figures)}.\n"
    )


STUDY = Experiment(
    name="fuzz_power",
    about=str(__doc__),
    measure=measure,
    tables={"fuzz-bugs": bug_rows, "fuzz-presets": preset_rows, "fuzz-provenance": provenance},
)

if __name__ == "__main__":
    STUDY.run()
