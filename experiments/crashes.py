"""Crashes at random instants: of simulated runs in virtual time, and of processes by SIGKILL (``tests.crashing``).

python -m experiments.crashes            a thousand crashes and a hundred kills
python -m experiments.crashes --quick    the same keys in a minute
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from dartsim.lab.sweep import ArmRun
from experiments.study import Experiment, Figures, Options, short_commit
from tests.crashing import KINDS, killed, simulated


def measure(options: Options) -> Figures:
    """Crash simulated runs of every kind, then kill processes."""
    runs, each, kills = (2, 5, 8) if options.quick else (22, 12, 100)
    jobs = [ArmRun(kind, seed, (kind, seed, each)) for kind in KINDS for seed in range(runs)]
    crashed = options.sweep(crashed_run, jobs, "simulated crashes")
    rows = [
        {"way": kind, "runs": runs, "crashes": runs * each, **_sum(crashed[n * runs : (n + 1) * runs])}
        for n, kind in enumerate(KINDS)
    ]
    options.console.print(f"{kills} kills …")
    begun = time.perf_counter()
    with TemporaryDirectory() as folder:
        ended, ledger = killed("dart", 0, kills, Path(folder))
    violations = sum((Counter(row["violations"]) for row in rows), Counter(ledger.violations))
    return {
        "simulated_crashes": sum(row["crashes"] for row in rows),
        "real_kills": kills,
        "lost": violations["lost"],
        "doubled": violations["doubled"],
        "violations": violations.total(),
        "simulated": rows,
        "real": {
            "kills": kills,
            "runs": ended,
            "violations": ledger.violations,
            "wall_seconds": round(time.perf_counter() - begun, 1),
        },
        "config": {"runs_a_way": runs, "crashes_a_run": each, "ways": [*KINDS]},
    }


def crashed_run(job: tuple[str, int, int]) -> Figures:
    """Crash one simulated run and return what it did and what was wrong."""
    begun = time.process_time()
    with TemporaryDirectory() as folder:
        ledger, recorder = simulated(*job, Path(folder) / "run")
    return {
        **{name: int(recorder.counts[name]) for name in ("attempts", "updates", "trained_trajectories")},
        "interrupted": int(recorder.counts["cause/interrupted"]),
        "violations": ledger.violations,
        "cpu_seconds": time.process_time() - begun,
    }


def _sum(runs: Sequence[Figures]) -> Figures:
    names = ("attempts", "updates", "trained_trajectories", "interrupted")
    return {
        **{name: sum(run[name] for run in runs) for name in names},
        "violations": dict(sum((Counter(run["violations"]) for run in runs), Counter[str]())),
        "cpu_seconds": round(sum(run["cpu_seconds"] for run in runs), 1),
    }


def crashes_found(figures: Figures) -> str:
    """Say in one sentence how many crashes there were, and what they broke."""
    return (
        f"`python -m experiments.crashes`: {figures['simulated_crashes']:,} crashes of simulated runs and "
        f"{figures['real_kills']:,} kills (`kill -9`) of a process at random moments: {figures['lost']} stored "
        f"trajectories lost, {figures['doubled']} trained twice. Recorded at commit {short_commit(figures)}.\n"
    )


STUDY = Experiment(
    name="crashes",
    about=str(__doc__),
    measure=measure,
    seeds=1,
    tables={"crashes-found": crashes_found},
)

if __name__ == "__main__":
    STUDY.run()
