"""Long work that the speed benchmark times beside turns: a large cluster, and a search of the fuzzer."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dartsim.config import load
from dartsim.fuzz import Chunk, search
from dartsim.run.prepare import prepare
from dartsim.run.simulation import run_simulation
from dartsim.store.memory import MemoryStore
from experiments.study import Figures


def long_simulation(preset: str, workload: str, settings: Sequence[str]) -> Figures:
    """Run a preset on a workload until it is steady, if that is set, or its hours are over; return what it took."""
    prepared = prepare(load(preset_name=preset, workload_name=workload, overrides=settings))
    started = time.process_time()
    result = run_simulation(prepared, store=MemoryStore())
    seconds = time.process_time() - started
    hours, steady = result.figures["simulated_hours"], result.figures.get("steady", {})
    return {
        "num_envs": prepared.config.rollout.num_envs,
        "simulated_hours": hours,
        "num_turns": result.recorder.hot.generated_turns,
        "cpu_seconds": round(seconds, 2),
        "cpu_seconds_per_day": round(seconds * 24.0 / hours, 1),
        "steady": steady.get("reached"),
        "figures": steady.get("figures"),
    }


def hostile_hours(presets: Sequence[str], cases: int) -> Figures:
    """Search drawn cases of each preset, as ``dartsim fuzz`` does, and return how many hours were simulated."""
    logging.disable(logging.CRITICAL)
    tallies = [search(Chunk(1, 0, preset=name, runs=cases), clock=time.process_time).tally for name in presets]
    hours, seconds = (sum(getattr(tally, name) for tally in tallies) for name in ("hours", "cpu_seconds"))
    return {
        "runs": sum(tally.runs for tally in tallies),
        "simulated_hours": round(hours, 3),
        "cpu_seconds": round(seconds, 2),
        "simulated_hours_per_cpu_second": round(hours / seconds, 2),
    }


WORK: Mapping[str, Callable[..., Figures]] = {"run": long_simulation, "fuzz": hostile_hours}


def long_work(job: tuple[Any, ...]) -> Figures:
    """Do the work of a name with its arguments."""
    name, *arguments = job
    return WORK[name](*arguments)
