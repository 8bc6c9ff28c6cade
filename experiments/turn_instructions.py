"""How many instructions a simulated turn takes, and how often caches miss: figures that no other load disturbs.

python -m experiments.turn_instructions            six runs under Valgrind: 15 minutes on two cores
python -m experiments.turn_instructions --quick    a small cluster only, coarser

Valgrind counts every instruction of a process and simulates two levels of caches, of the sizes below. Each figure is
the difference of two runs of other length, so that imports and set-up do not count. Needs ``valgrind``.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from dartsim.core.compiled import PURE_PYTHON, is_compiled
from dartsim.core.errors import ConfigError
from dartsim.lab.sweep import ArmRun
from experiments.speed import bare_simpy, full_system, scaled
from experiments.study import Experiment, Figures, Options, Rows, rows_of

HOURS = {80: (0.2, 0.6), 1_000: (0.03, 0.06)}
"""Simulated hours of the shorter and the longer run, by number of desktops."""
QUICK_HOURS = {40: (0.1, 0.2)}
FIRST_LEVEL, SECOND_LEVEL = "32768,8,64", "524288,8,64"
"""Size (bytes), ways and line size (bytes) of the caches: those of a core of AMD's Zen 3."""
COUNTS = {
    "instructions": r"I +refs: +([\d,]+)",
    "code_misses": r"I1 +misses: +([\d,]+)",
    "data_misses": r"D1 +misses: +([\d,]+)",
    "second_level_misses": r"LL misses: +([\d,]+)",
}
"""What Valgrind prints, by the name of the figure."""
FORMS = {"compiled": "dartsim, compiled", "source": "dartsim, pure Python", "bare": "bare SimPy model, pure Python"}


class ClusterForm(NamedTuple):
    """One form of one cluster."""

    form: str
    num_envs: int
    hours: tuple[float, float]


def run_alone(form: str, num_envs: int, hours: float) -> int:
    """Run a cluster in this process, and return its number of turns."""
    run = bare_simpy(num_envs, hours, 0, False) if form == "bare" else full_system(num_envs, hours, 0)
    return int(run["num_turns"])


def counted(form: str, num_envs: int, hours: float) -> dict[str, int]:
    """Run a cluster under Valgrind; return its counts and its number of turns."""
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
    if form != "compiled":
        environment[PURE_PYTHON] = "1"
    with tempfile.TemporaryDirectory() as scratch:
        done = subprocess.run(
            [
                *("valgrind", "--tool=cachegrind", "--cache-sim=yes", f"--cachegrind-out-file={scratch}/out"),
                *(f"--I1={FIRST_LEVEL}", f"--D1={FIRST_LEVEL}", f"--LL={SECOND_LEVEL}"),
                *(sys.executable, "-m", "experiments.turn_instructions", "--alone", form, str(num_envs), str(hours)),
            ],
            env=environment,
            cwd=Path(__file__).resolve().parents[1],
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        raise RuntimeError(f"valgrind ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return {**read_counts(done.stderr), "turns": int(done.stdout)}


def read_counts(text: str) -> dict[str, int]:
    """Return the counts that Valgrind printed.

    Raises:
        RuntimeError: If one is missing.
    """
    found = {name: re.search(pattern, text) for name, pattern in COUNTS.items()}
    missing = [name for name, match in found.items() if match is None]
    if missing:
        raise RuntimeError(f"valgrind printed no {', '.join(missing)}:\n{text[-2000:]}")
    return {name: int(match[1].replace(",", "")) for name, match in found.items() if match is not None}


def per_turn(short: dict[str, int], long: dict[str, int]) -> dict[str, int]:
    """Return the counts of a turn: those by which the longer run has more, by the turns that it has more."""
    turns = long["turns"] - short["turns"]
    return {name: round((long[name] - short[name]) / turns) for name in COUNTS}


def row_of(job: ClusterForm) -> Figures:
    """Return the counts of a turn of one form of one cluster."""
    short, long = (counted(job.form, job.num_envs, hours) for hours in job.hours)
    return {"form": job.form, "num_envs": job.num_envs, **per_turn(short, long)}


def measure(options: Options) -> Figures:
    """Count each form of each cluster.

    Raises:
        ConfigError: If there is no Valgrind, or nothing compiled to compare with.
    """
    if shutil.which("valgrind") is None:
        raise ConfigError("valgrind is not installed, and counts the instructions: apt install valgrind")
    if not is_compiled():
        raise ConfigError("dartsim is not compiled here: pip install . (not -e), or DARTSIM_COMPILE=1 pip install -e .")
    sizes = QUICK_HOURS if options.quick else HOURS
    jobs = [ClusterForm(form, num_envs, hours) for num_envs, hours in sizes.items() for form in FORMS]
    rows = options.sweep(row_of, [ArmRun(f"{job.form}, {job.num_envs}", 0, job) for job in jobs], "forms")
    return {
        "rows": rows,
        "config": {
            "hours": {str(num_envs): list(hours) for num_envs, hours in sizes.items()},
            "first_level": FIRST_LEVEL,
            "second_level": SECOND_LEVEL,
            "settings": {str(num_envs): scaled(num_envs, hours[1]) for num_envs, hours in sizes.items()},
        },
    }


def table(figures: Figures) -> Rows:
    """Counts of a turn, by cluster and form."""
    columns = {
        "a turn of": "{what}",
        "desktops": "{num_envs:,}",
        "instructions": "{instructions:,}",
        "misses of 32 KiB of code": "{code_misses:,}",
        "of 32 KiB of data": "{data_misses:,}",
        "of both in 512 KiB": "{second_level_misses:,}",
    }
    return rows_of(columns, [{"what": FORMS[row["form"]], **row} for row in figures["rows"]])


STUDY = Experiment(
    name="turn_instructions",
    about=str(__doc__),
    measure=measure,
    seeds=1,
    tables={"turn-instructions": table},
)

if __name__ == "__main__":
    if sys.argv[1:2] == ["--alone"]:
        print(run_alone(sys.argv[2], int(sys.argv[3]), float(sys.argv[4])))
    else:
        STUDY.run()
