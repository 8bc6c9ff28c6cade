"""The speed benchmark: timers a second, and CPU time a simulated turn of the whole system with everything on.

``python -m experiments.speed``. Every figure of a table comes from one run in which the variants alternate, each
measurement of a cluster in its own process; medians. The bare SimPy model always runs as pure Python. A full run takes
about 30 CPU minutes. To compile the modules in place: DARTSIM_COMPILE=1 pip install -e .
"""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from statistics import median
from typing import Any

import psutil

from dartsim.config import Config, load
from dartsim.core.compiled import PURE_PYTHON, is_compiled
from dartsim.lab.sweep import ArmRun
from experiments.charts import COLORS, GRAY, MARKERS, PURPLE, drawing, label_axes, rows_axis
from experiments.isolated import isolated, peak_rss_mb
from experiments.study import Experiment, Figures, Options, Rows, StudyPicture, rows_of
from experiments.timers import LOOPS, timers_per_second

PRESET, ENVS_PER_WORKER = "dart-measured", 10
FULL_HOURS = {40: 2.0, 80: 2.0, 200: 0.6, 1_000: 0.25, 5_000: 0.12, 10_000: 0.1}
"""Simulated hours by number of desktops: about 20,000 to 300,000 turns each, and at least two attempts per desktop."""
QUICK_HOURS = {40: 0.5, 80: 0.5, 200: 0.2, 1_000: 0.04, 5_000: 0.015, 10_000: 0.015}
LONG_ENVS, LONG_WORKLOAD, LONG_PRECISION = 1_000, "osworld", 0.01
DAY_HOURS, STEADY_HOURS, QUICK_LONG_HOURS = 24.0, 6.0, 0.05
"""Simulated hours that are run of a day of ``LONG_ENVS`` desktops, and at most until it is steady."""
GROWTH_ENVS, GROWTH_HOURS, QUICK_GROWTH_HOURS = 200, 5.0, 0.2
"""Desktops and simulated hours of the run whose memory is watched, after a fifth of it."""
FUZZED = ("drawn", "coupled", "dart", "dartsim", "prime-rl")
FUZZ_CASES, QUICK_FUZZ_CASES = 40, 2
"""Drawn cases of each preset."""


def scaled(num_envs: int, hours: float, *, seed: int = 0) -> list[str]:
    """Return the settings that make the preset ``dart-measured`` a cluster of ``num_envs`` desktops.

    All grows in proportion: 10 desktops a worker, half of the workers in a slice of a weight change, hosts of
    38 / 4 desktops, batches, and a trainer that is faster as its batches are larger. So the control plane
    has the same work a turn at every size.
    """
    num_workers = math.ceil(num_envs / ENVS_PER_WORKER)
    scale = num_envs / 38
    return [
        f"run.hours={hours}",
        f"run.seed={seed}",
        f"rollout.num_envs={num_envs}",
        f"rollout.num_workers={num_workers}",
        f"rollout.sync.workers_at_a_time={max(1, num_workers // 2)}",
        f"curation.batch.min_groups={max(1, round(6 * scale))}",
        f"curation.batch.max_groups={max(1, round(8 * scale))}",
        "curation.store=memory",
        f"cluster.hosts.count={max(1, round(4 * scale))}",
        f"cluster.learner.kilotoken_seconds={0.086 / scale}",
    ]


def long_run(hours: float, *, until_steady: bool) -> list[str]:
    """Return the settings that make ``LONG_WORKLOAD`` a cluster of ``LONG_ENVS`` desktops, in its own proportions."""
    scale = LONG_ENVS / 64
    count = round(8 * scale)
    steady = [f"run.until_steady={LONG_PRECISION}"] if until_steady else []
    return [
        f"run.hours={hours}",
        f"rollout.num_envs={LONG_ENVS}",
        f"rollout.num_workers={count}",
        f"rollout.sync.workers_at_a_time={count // 2}",
        f"curation.batch.min_groups={round(6 * scale)}",
        f"curation.batch.max_groups={count}",
        "curation.store=memory",
        f"cluster.hosts.count={count}",
        f"cluster.learner.kilotoken_seconds={0.012 / scale}",
        *steady,
    ]


def configuration(num_envs: int, hours: float, *, seed: int = 0) -> Config:
    """Return the scaled preset, whose work the bare model has: 8 attempts of at most 30 turns."""
    return load(PRESET, overrides=scaled(num_envs, hours, seed=seed))


def full_system(num_envs: int, hours: float, seed: int) -> Figures:
    """Run the control plane with its measurements over the cluster model."""
    from dartsim.run.prepare import prepare
    from dartsim.run.run_prepared import run_prepared
    from dartsim.store.memory import MemoryStore

    prepared = prepare(configuration(num_envs, hours, seed=seed))
    started = time.process_time()
    result = run_prepared(prepared, store=MemoryStore())
    costs = _costs(time.process_time() - started, result.recorder.hot.generated_turns, hours)
    return {**costs, "events": result.num_events, "hash": result.event_hash}


def bare_simpy(num_envs: int, hours: float, seed: int, timeouts: bool = False) -> Figures:
    """Run the same workload as plain SimPy processes."""
    from dartsim.run.prepare import prepare
    from experiments.bare_simpy import BareCluster

    cluster = BareCluster(prepare(configuration(num_envs, hours, seed=seed)), timeouts=timeouts)
    started = time.process_time()
    num_turns = cluster.run()
    return _costs(time.process_time() - started, num_turns, hours)


def bare_with_timeouts(num_envs: int, hours: float, seed: int) -> Figures:
    """Run it with SimPy's own time-outs."""
    return bare_simpy(num_envs, hours, seed, timeouts=True)


def _costs(cpu_seconds: float, num_turns: int, hours: float) -> Figures:
    return {
        "cpu_us_per_turn": cpu_seconds / num_turns * 1e6,
        "num_turns": num_turns,
        "speedup": hours * 3600.0 / cpu_seconds,
        "peak_rss_mb": peak_rss_mb(),
    }


VARIANTS: dict[str, Callable[[int, float, int], Figures]] = {
    "full": full_system,
    "plain": full_system,
    "bare": bare_simpy,
    "bare_timeouts": bare_with_timeouts,
}
"""What runs. All but ``full`` are pure Python."""


@contextmanager
def pure_python() -> Iterator[None]:
    """Have processes that start meanwhile run the source, also where compiled modules are installed."""
    before = os.environ.get(PURE_PYTHON)
    os.environ[PURE_PYTHON] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[PURE_PYTHON]
        else:
            os.environ[PURE_PYTHON] = before


def run_variant(name: str, num_envs: int, hours: float, seed: int) -> Figures:
    """Run a variant in its own process, in its form."""
    with nullcontext() if name == "full" else pure_python():
        return isolated(VARIANTS[name], num_envs, hours, seed)


def one_round(size: tuple[int, float, int]) -> dict[str, Figures]:
    """Run each variant once, one after the other, on a cluster of (desktops, simulated hours, seed).

    Raises:
        RuntimeError: If the two forms had different events.
    """
    runs = {name: run_variant(name, *size) for name in VARIANTS if name != "full" or is_compiled()}
    if runs.get("full", runs["plain"])["hash"] != runs["plain"]["hash"]:
        raise RuntimeError(f"{size[0]} desktops: the compiled form had other events than the source")
    return runs


def measure(options: Options) -> Figures:
    """Measure everything."""
    hours = QUICK_HOURS if options.quick else FULL_HOURS
    timers = {"num_tasks": 1_000, "sleeps": 20 if options.quick else 50, "repeats": 3 if options.quick else 5}
    options.console.print("timers …")
    rates = isolated(timers_per_second, **timers)
    sizes = [(num_envs, hours[num_envs], seed) for seed in range(options.seeds) for num_envs in hours]
    rounds = options.sweep(one_round, [ArmRun(f"{size[0]} desktops", size[2], size) for size in sizes], "turns")
    by_size: dict[int, list[dict[str, Figures]]] = {num_envs: [] for num_envs in hours}
    for size, runs in zip(sizes, rounds, strict=True):
        by_size[size[0]].append(runs)
    day, steady, cases = (QUICK_LONG_HOURS, QUICK_LONG_HOURS, QUICK_FUZZ_CASES) if options.quick else (
        DAY_HOURS, STEADY_HOURS, FUZZ_CASES)  # fmt: skip
    jobs = {
        "day": (long_simulation, long_run(day, until_steady=False)),
        "until_steady": (long_simulation, long_run(steady, until_steady=True)),
        "fuzz": (hostile_hours, FUZZED, cases),
        "growth": (memory_growth, QUICK_GROWTH_HOURS if options.quick else GROWTH_HOURS),
    }
    found = options.sweep(long_work, [ArmRun(name, 0, job) for name, job in jobs.items()], "long work")
    figures: Figures = {
        "compiled": is_compiled(),
        "timers_per_second": {loop: round(median(rates[loop])) if loop in rates else None for loop in LOOPS},
        "turns": [size_row(num_envs, hours[num_envs], runs) for num_envs, runs in by_size.items()],
        **dict(zip(jobs, found, strict=True)),
    }
    figures |= costs_of(figures)
    return {**figures, "targets": targets_of(figures), "config": {"preset": PRESET, "timers": timers}}


def long_work(job: tuple[Any, ...]) -> Figures:
    """Do a job: a function and its arguments."""
    function, *arguments = job
    found: Figures = function(*arguments)
    return found


def long_simulation(settings: Sequence[str]) -> Figures:
    """Run a large cluster until it is steady, if that is set, or its hours are over; return what it took."""
    from dartsim.run.prepare import prepare
    from dartsim.run.run_prepared import run_prepared
    from dartsim.store.memory import MemoryStore

    prepared = prepare(load(PRESET, on=LONG_WORKLOAD, overrides=settings))
    started = time.process_time()
    result = run_prepared(prepared, store=MemoryStore())
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


def memory_growth(hours: float) -> Figures:
    """Run ``GROWTH_ENVS`` desktops, and return how much memory grows in an hour after a fifth of the run."""
    from dartsim.observe import ticker
    from dartsim.run.prepare import prepare
    from dartsim.run.run_prepared import run_prepared
    from dartsim.store.memory import MemoryStore

    sizes: list[tuple[float, int]] = []
    process = psutil.Process()

    def look(now: float) -> None:
        if now >= hours * 3600.0 / 5.0:
            sizes.append((now, process.memory_info().rss))

    run_prepared(prepare(configuration(GROWTH_ENVS, hours)), store=MemoryStore(), instruments=[ticker(look)])
    (first, before), (last, after) = sizes[0], sizes[-1]
    growth = (after - before) / 1e6 / (last - first) * 3600.0
    return {"num_envs": GROWTH_ENVS, "simulated_hours": hours, "memory_growth_mb_per_hour": round(growth, 3)}


def costs_of(figures: Figures) -> Figures:
    """Return what a further desktop and a turn take, and how memory grows; see ``memory_growth``."""
    rows = {row["num_envs"]: row for row in figures["turns"]}
    small, large = rows[1_000], rows[10_000]
    more = (large["peak_rss_mb"] - small["peak_rss_mb"]) / (large["num_envs"] - small["num_envs"])
    return {
        "bytes_per_desktop": round(1e6 * more),
        "events_per_turn": max(row["events_per_turn"] for row in figures["turns"]),
        "memory_growth_mb_per_hour": figures["growth"]["memory_growth_mb_per_hour"],
    }


def hostile_hours(presets: Sequence[str], cases: int) -> Figures:
    """Search drawn cases of each preset, as ``dartsim fuzz`` does, and return how many hours were simulated."""
    from dartsim.fuzz import Chunk, search

    logging.disable(logging.CRITICAL)
    tallies = [search(Chunk(1, 0, preset=name, runs=cases), clock=time.process_time).tally for name in presets]
    hours, seconds = (sum(getattr(tally, name) for tally in tallies) for name in ("hours", "cpu_seconds"))
    return {
        "runs": sum(tally.runs for tally in tallies),
        "simulated_hours": round(hours, 3),
        "cpu_seconds": round(seconds, 2),
        "simulated_hours_per_cpu_second": round(hours / seconds, 2),
    }


def size_row(num_envs: int, hours: float, rounds: list[dict[str, Figures]]) -> Figures:
    """Return the medians of a size's rounds."""
    runs = {name: [runs[name] for runs in rounds] for name in rounds[0]}
    full = runs.get("full", runs["plain"])

    def middle(own: list[Figures], key: str) -> float:
        return float(median(run[key] for run in own))

    forms = {
        "": full,
        "plain_": runs["plain"],
        "bare_simpy_": runs["bare"],
        "bare_simpy_timeouts_": runs["bare_timeouts"],
    }
    return {
        "num_envs": num_envs,
        "simulated_hours": hours,
        "num_turns": round(middle(full, "num_turns")),
        "events_per_turn": round(middle(full, "events") / middle(full, "num_turns"), 2),
        **{f"{form}cpu_us_per_turn": round(middle(own, "cpu_us_per_turn"), 1) for form, own in forms.items()},
        "bare_simpy_num_turns": round(middle(runs["bare"], "num_turns")),
        "speedup": round(middle(full, "speedup")),
        **{f"{form}peak_rss_mb": round(middle(own, "peak_rss_mb"), 1) for form, own in forms.items()},
        "spread": {
            name: [round(pick(run["cpu_us_per_turn"] for run in own), 1) for pick in (min, max)]
            for name, own in runs.items()
        },
        "event_hash": [run["hash"] for run in full],
    }


AT_MOST = {
    "full system over bare SimPy, 80 desktops, compiled": 0.7,
    "same, pure Python": 1.6,
    "same, 5,000 desktops, compiled": 0.8,
    "a turn at 10,000 desktops over one at 80": 1.6,
    "1,000 desktops on `osworld`, 24 h, CPU seconds": 130.0,
    "same, until steady at 1 %": 30.0,
    "memory at 10,000 desktops, MB": 371.0,
    "bytes of a further desktop": 8_000.0,
    "events of a turn": 6.0,
    "memory growth after the first hour, MB an hour": 0.5,
}
AT_LEAST = {"SimLoop timers over raw SimPy": 0.7, "fuzzer: simulated hostile hours per CPU second": 12.0}


def targets_of(figures: Figures) -> list[Figures]:
    """Return each target with what was measured, and whether that meets it; None: this form has no such figure."""
    rows = {row["num_envs"]: row for row in figures["turns"]}
    turn = "cpu_us_per_turn"

    def over_bare(num_envs: int, form: str) -> float:
        return float(rows[num_envs][form] / rows[num_envs][f"bare_simpy_{turn}"])

    day, run, timers = figures["day"], figures["until_steady"], figures["timers_per_second"]
    # Of a run that never was steady, if the target is missed already.
    steady = run["cpu_seconds"] if run["steady"] or run["cpu_seconds"] > AT_MOST["same, until steady at 1 %"] else None
    measured = {
        "full system over bare SimPy, 80 desktops, compiled": over_bare(80, turn) if figures["compiled"] else None,
        "same, pure Python": over_bare(80, f"plain_{turn}"),
        "same, 5,000 desktops, compiled": over_bare(5_000, turn) if figures["compiled"] else None,
        "a turn at 10,000 desktops over one at 80": rows[10_000][turn] / rows[80][turn],
        "1,000 desktops on `osworld`, 24 h, CPU seconds": day["cpu_seconds_per_day"],
        "same, until steady at 1 %": steady,
        "SimLoop timers over raw SimPy": timers["simloop"] / timers["simpy"],
        "fuzzer: simulated hostile hours per CPU second": figures["fuzz"]["simulated_hours_per_cpu_second"],
        "memory at 10,000 desktops, MB": rows[10_000]["peak_rss_mb"],
        "bytes of a further desktop": figures["bytes_per_desktop"],
        "events of a turn": figures["events_per_turn"],
        "memory growth after the first hour, MB an hour": figures["memory_growth_mb_per_hour"],
    }
    found = []
    for figure, value in measured.items():
        most, least = AT_MOST.get(figure, math.inf), AT_LEAST.get(figure, 0.0)
        bound = {"at_most": most} if figure in AT_MOST else {"at_least": least}
        met = None if value is None else least <= value <= most
        found.append({"figure": figure, **bound, "measured": None if value is None else round(value, 2), "met": met})
    return found


def targets_table(figures: Figures) -> Rows:
    """Targets beside what was measured."""
    words = {True: "yes", False: "**no**", None: None}
    entries = (
        {
            **row,
            "target": f"at least {row['at_least']:g}" if "at_least" in row else f"at most {row['at_most']:g}",
            "words": words[row["met"]],
        }
        for row in figures["targets"]
    )
    columns = {"figure": "{figure}", "target": "{target}", "measured": "{measured:g}", "met?": "{words}"}
    return rows_of(columns, entries)


def turns_table(figures: Figures) -> Rows:
    """CPU time of a turn by the size of the cluster."""
    compiled = {"compiled, µs": "{cpu_us_per_turn:.1f}"} if figures["compiled"] else {}
    columns = {
        "desktops": "{num_envs:,}",
        **compiled,
        "pure Python, µs": "{plain_cpu_us_per_turn:.1f}",
        "bare SimPy, µs": "{bare_simpy_cpu_us_per_turn:.1f}",
        "its timeouts, µs": "{bare_simpy_timeouts_cpu_us_per_turn:.1f}",
        "times real time": "{speedup:,}",
        "MB": "{peak_rss_mb:.0f}",
    }
    return rows_of(columns, figures["turns"])


@drawing(3.0)
def speed_picture(figure: Any, simulator: Figures, learner: Figures) -> None:
    """CPU time of a turn over the size of the cluster; learner and worker against peers."""
    turns, peers = figure.subplots(1, 2, width_ratios=(1.3, 1.0))
    lines = {
        "dartsim, everything on": "cpu_us_per_turn",
        "same, pure Python": "plain_cpu_us_per_turn",
        "bare SimPy with timeouts": "bare_simpy_timeouts_cpu_us_per_turn",
        "bare SimPy": "bare_simpy_cpu_us_per_turn",
    }
    for number, (words, key) in enumerate(lines.items()):
        xs, ys = [row["num_envs"] for row in simulator["turns"]], [row[key] for row in simulator["turns"]]
        turns.plot(xs, ys, color=COLORS[number], marker=MARKERS[number], label=words)
    turns.set_xscale("log")
    turns.set_xticks([40, 200, 1_000, 10_000], ["40", "200", "1,000", "10,000"])
    turns.minorticks_off()
    label_axes(turns, "Simulated turn", "desktops", "CPU microseconds per turn")
    turns.legend(loc="upper left")
    ratios = [(_short(row["what"], row["peer_name"]), row["ratio"]) for row in learner["rows"]]
    for row, (_, ratio) in enumerate(ratios):
        peers.barh([row], [ratio], 0.7, color=PURPLE)
        peers.annotate(f"{ratio:.1f}x", (ratio, row), (3, 0), textcoords="offset points", va="center")
    rows_axis(peers, [name for name, _ in ratios])
    peers.axvline(1.0, color=GRAY, linestyle=":")
    label_axes(peers, "Faster, or less memory, than", "times", zero=False)


def _short(what: str, peer: str) -> str:
    """Return a row of the learner's benchmark in few words."""
    kind, _, rest = what.partition(",")
    batch = rest.partition(":")[0].strip()
    name = {"turns trained/s": "train", "tokens sampled/s": "sample"}.get(kind, "memory")
    return f"{name}, {batch}: {peer.partition(',')[0].removeprefix('transformers ')}"


STUDY = Experiment(
    name="speed",
    about=str(__doc__),
    seeds=5,
    measure=measure,
    tables={"speed-turns": turns_table, "speed-targets": targets_table},
    pictures={
        "speed": StudyPicture(
            "CPU time per simulated turn over cluster size; speed of learner and worker against peers",
            speed_picture,
            beside=("learner_speed",),
        )
    },
)

if __name__ == "__main__":
    STUDY.run()
