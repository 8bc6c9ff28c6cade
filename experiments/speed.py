"""The speed benchmark: timers a second, and CPU time a simulated turn of the whole system with everything on.

``python -m experiments.speed``. Every figure of a table comes from one run in which the variants
alternate, each measurement of a cluster in its own process; medians.
"""

from __future__ import annotations

import math
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any, ParamSpec, TypeVar

from dartsim.config import Config, load
from dartsim.real.processes import process_pool
from experiments.charts import COLORS, GRAY, MARKERS, PURPLE, drawing, label_axes, rows_axis
from experiments.learner_speed import single_rows
from experiments.study import Experiment, Figures, Options, Rows, StudyPicture, rows_of
from experiments.timers import LOOPS, timers_per_second

P = ParamSpec("P")
T = TypeVar("T")


def isolated(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a function of a module in a fresh process and return what it returns."""
    with process_pool(1) as pool:
        return pool.submit(function, *args, **kwargs).result()


def peak_rss_mb(pid: int | None = None) -> float:
    """Return the most memory that a process has had resident, in megabytes (10**6 bytes); None: this one."""
    status = Path(f"/proc/{pid or 'self'}/status")
    if status.exists():
        # Not getrusage: on Linux it also counts what the process that started this one had.
        for line in status.read_text(encoding="ascii").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024 / 1e6
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1e6 if sys.platform == "darwin" else peak * 1024 / 1e6


PRESET = "dart-measured"
ENVS_PER_WORKER = 10
FULL_HOURS = {40: 24.0, 80: 24.0, 200: 4.0, 1_000: 0.5, 5_000: 0.25}
"""Simulated hours by number of desktops: about 10 to 40 s of CPU time each."""
QUICK_HOURS = {40: 0.5, 80: 0.5, 200: 0.25, 1_000: 0.06, 5_000: 0.03}


def scaled(num_envs: int, hours: float, *, seed: int = 0, store: str = "memory") -> list[str]:
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
        f"curation.store={store}",
        f"cluster.hosts.count={max(1, round(4 * scale))}",
        f"cluster.learner.kilotoken_seconds={0.086 / scale}",
    ]


def configuration(num_envs: int, hours: float, *, seed: int = 0, store: str = "memory") -> Config:
    """Return the scaled preset, whose work the bare model has: 8 attempts of at most 30 turns."""
    return load(preset_name=PRESET, overrides=scaled(num_envs, hours, seed=seed, store=store))


def full_system(num_envs: int, hours: float, seed: int, store: str) -> Figures:
    """Run the control plane with its measurements over the cluster model."""
    from dartsim.run.prepare import prepare
    from dartsim.run.simulation import run_simulation
    from dartsim.store.database import open_sqlite
    from dartsim.store.memory import MemoryStore
    from dartsim.store.sql import SqlStore

    prepared = prepare(configuration(num_envs, hours, seed=seed, store=store))
    with tempfile.TemporaryDirectory() as folder:
        keep = MemoryStore() if store == "memory" else SqlStore(open_sqlite(Path(folder) / "run.db"))
        started = time.process_time()
        result = run_simulation(prepared, store=keep)
        seconds = time.process_time() - started
        keep.close()
    return _costs(
        seconds,
        result.recorder.hot.generated_turns,
        hours,
        events=result.num_events,
        hash=result.event_hash,
    )


def bare_simpy(num_envs: int, hours: float, seed: int, timeouts: bool) -> Figures:
    """Run the same workload as plain SimPy processes."""
    from dartsim.run.prepare import prepare
    from experiments.bare_simpy import BareCluster

    cluster = BareCluster(prepare(configuration(num_envs, hours, seed=seed)), timeouts=timeouts)
    started = time.process_time()
    num_turns = cluster.run()
    return _costs(time.process_time() - started, num_turns, hours)


def _costs(cpu_seconds: float, num_turns: int, hours: float, **more: Any) -> Figures:
    return {
        "cpu_us_per_turn": cpu_seconds / num_turns * 1e6,
        "num_turns": num_turns,
        "speedup": hours * 3600.0 / cpu_seconds,
        "peak_rss_mb": peak_rss_mb(),
        **more,
    }


VARIANTS: dict[str, Callable[[int, float, int], Figures]] = {
    "full": lambda num_envs, hours, seed: isolated(full_system, num_envs, hours, seed, "memory"),
    "bare": lambda num_envs, hours, seed: isolated(bare_simpy, num_envs, hours, seed, False),
    "bare_timeouts": lambda num_envs, hours, seed: isolated(bare_simpy, num_envs, hours, seed, True),
    "sqlite": lambda num_envs, hours, seed: isolated(full_system, num_envs, hours, seed, "sqlite"),
}


def measure(options: Options) -> Figures:
    """Measure everything."""
    hours = QUICK_HOURS if options.quick else FULL_HOURS
    timers = {
        "num_tasks": 1_000,
        "sleeps": 20 if options.quick else 200,
        "repeats": 3 if options.quick else 5,
    }
    options.console.print("timers …")
    rates = isolated(timers_per_second, **timers)
    turns = [measure_size(num_envs, hours[num_envs], options) for num_envs in hours]
    return {
        "timers_per_second": {loop: round(median(rates[loop])) if loop in rates else None for loop in LOOPS},
        "turns": turns,
        "config": {
            "preset": PRESET,
            "timers": timers,
            "settings": {str(num_envs): scaled(num_envs, hours[num_envs]) for num_envs in hours},
        },
    }


def measure_size(num_envs: int, hours: float, options: Options) -> Figures:
    """Measure a cluster of one size: the variants alternate, one round per seed."""
    runs: dict[str, list[Figures]] = {name: [] for name in VARIANTS}
    for seed in range(options.seeds):
        for name, variant in VARIANTS.items():
            options.console.print(f"{num_envs} desktops, {hours:g} h, seed {seed}: {name} …")
            runs[name].append(variant(num_envs, hours, seed))

    def middle(variant: str, key: str) -> float:
        return float(median(run[key] for run in runs[variant]))

    return {
        "num_envs": num_envs,
        "simulated_hours": hours,
        "num_turns": round(middle("full", "num_turns")),
        "events_per_turn": round(middle("full", "events") / middle("full", "num_turns"), 2),
        "cpu_us_per_turn": round(middle("full", "cpu_us_per_turn"), 1),
        "sqlite_cpu_us_per_turn": round(middle("sqlite", "cpu_us_per_turn"), 1),
        "bare_simpy_cpu_us_per_turn": round(middle("bare", "cpu_us_per_turn"), 1),
        "bare_simpy_timeouts_cpu_us_per_turn": round(middle("bare_timeouts", "cpu_us_per_turn"), 1),
        "bare_simpy_num_turns": round(middle("bare", "num_turns")),
        "speedup": round(middle("full", "speedup")),
        "peak_rss_mb": round(middle("full", "peak_rss_mb"), 1),
        "bare_simpy_peak_rss_mb": round(middle("bare", "peak_rss_mb"), 1),
        "bare_simpy_timeouts_peak_rss_mb": round(middle("bare_timeouts", "peak_rss_mb"), 1),
        "spread": {
            name: [round(pick(run["cpu_us_per_turn"] for run in own), 1) for pick in (min, max)]
            for name, own in runs.items()
        },
        "event_hash": [run["hash"] for run in runs["full"]],
    }


def timers_table(figures: Figures) -> Rows:
    """Timers per second of each loop."""
    rates = figures["timers_per_second"]
    columns = {"loop": "{name}", "timers a CPU second": "{rate:,.0f}", "of raw SimPy": "{ratio:.2f}"}
    ratios = {name: rate and rate / rates["simpy"] for name, rate in rates.items()}
    return rows_of(columns, ({"name": name, "rate": rates[name], "ratio": ratios[name]} for name in rates))


@drawing(3.0)
def speed_picture(figure: Any, simulator: Figures, lab: Figures, learner: Figures, desktop: Figures) -> None:
    """CPU time of a turn over the size of the cluster; learner, worker and mock desktop against peers."""
    turns, peers = figure.subplots(1, 2, width_ratios=(1.3, 1.0))
    lines = {
        "dartsim, everything on": (simulator["turns"], "cpu_us_per_turn"),
        "dartsim as tune and plan run it": (lab["sizes"], "cpu_us_per_turn"),
        "bare SimPy with timeouts": (simulator["turns"], "bare_simpy_timeouts_cpu_us_per_turn"),
        "bare SimPy": (simulator["turns"], "bare_simpy_cpu_us_per_turn"),
    }
    for number, (words, (rows, key)) in enumerate(lines.items()):
        xs, ys = [row["num_envs"] for row in rows], [row[key] for row in rows]
        turns.plot(xs, ys, color=COLORS[number], marker=MARKERS[number], label=words)
    turns.set_xscale("log")
    turns.set_xticks([40, 200, 1_000, 5_000], ["40", "200", "1,000", "5,000"])
    turns.minorticks_off()
    label_axes(turns, "Simulated turn", "desktops", "CPU microseconds per turn")
    turns.legend(loc="upper left")
    ratios = [(_short(row["what"], row["peer_name"]), row["ratio"]) for row in single_rows(learner)]
    small = desktop["sizes"][0]["steps_per_second"]
    ratios.append(("mock desktop steps: MiniGrid", small["mock_desktop"] / small["minigrid"]))
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
    measure=measure,
    tables={"timers": timers_table},
    pictures={
        "speed": StudyPicture(
            "CPU time per simulated turn over cluster size; speed of learner, worker and mock desktop against peers",
            speed_picture,
            beside=("lab_speed", "learner_speed", "mock_speed"),
        )
    },
)

if __name__ == "__main__":
    STUDY.run()
