"""How many instructions a simulated turn takes: a figure that no other load disturbs.

python -m experiments.turn_instructions            six runs under Valgrind: 15 minutes on two cores
python -m experiments.turn_instructions --quick    a small cluster only, coarser

Valgrind counts every instruction of a process. Each figure is the difference of two runs of other length, so that
imports and set-up do not count. Needs ``valgrind``.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from dartsim.core.compiled import PURE_PYTHON, is_compiled
from dartsim.core.errors import ConfigError
from dartsim.lab.sweep import ArmRun
from experiments.speed import bare_simpy, full_system
from experiments.study import Experiment, Figures, Options, Rows, rows_of

HOURS = {80: (0.2, 0.6), 1_000: (0.03, 0.06)}
"""Simulated hours of the shorter and the longer run, by number of desktops."""
QUICK_HOURS = {40: (0.1, 0.2)}
FORMS = {"compiled": full_system, "source": full_system, "bare": bare_simpy}
CACHES = ("--I1=32768,8,64", "--D1=32768,8,64", "--LL=524288,8,64")
"""Size (bytes), ways and line size (bytes) of the caches of a core of AMD's Zen 3."""
COUNTS = {
    "instructions": r"I +refs: +([\d,]+)",
    "code_misses": r"I1 +misses: +([\d,]+)",
    "data_misses": r"D1 +misses: +([\d,]+)",
    "second_level_misses": r"LL misses: +([\d,]+)",
}
"""What Valgrind prints, by the name of the figure."""


def counted(form: str, num_envs: int, hours: float) -> dict[str, int]:
    """Run a cluster under Valgrind; return its counts and its number of turns.

    Raises:
        RuntimeError: If Valgrind fails or does not print a count.
    """
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
    if form != "compiled":
        environment[PURE_PYTHON] = "1"
    alone = (
        f"from experiments.turn_instructions import FORMS; print(FORMS[{form!r}]({num_envs}, {hours}, 0)['num_turns'])"
    )
    with tempfile.TemporaryDirectory() as scratch:
        tool = ("valgrind", "--tool=cachegrind", "--cache-sim=yes", f"--cachegrind-out-file={scratch}/out", *CACHES)
        done = subprocess.run(
            [*tool, sys.executable, "-c", alone],
            env=environment,
            cwd=Path(__file__).resolve().parents[1],
            capture_output=True,
            text=True,
            check=False,
        )
    found = {name: re.search(pattern, done.stderr) for name, pattern in COUNTS.items()}
    if done.returncode or None in found.values():
        raise RuntimeError(f"valgrind ended with {done.returncode}:\n{done.stderr[-2000:]}")
    counts = {name: int(match[1].replace(",", "")) for name, match in found.items() if match is not None}
    return {**counts, "turns": int(done.stdout)}


def row_of(job: tuple[str, int, tuple[float, float]]) -> Figures:
    """Return the counts of a turn of one form of one cluster: what the longer run has more, by its further turns."""
    form, num_envs, hours = job
    short, long = (counted(form, num_envs, each) for each in hours)
    turns = long["turns"] - short["turns"]
    return {"form": form, "num_envs": num_envs, **{name: round((long[name] - short[name]) / turns) for name in COUNTS}}


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
    jobs = [(form, num_envs, hours) for num_envs, hours in sizes.items() for form in FORMS]
    rows = options.sweep(
        row_of, [ArmRun(f"{form}, {num_envs}", 0, (form, num_envs, hours)) for form, num_envs, hours in jobs]
    )
    return {"rows": rows, "config": {"hours": {str(num_envs): list(hours) for num_envs, hours in sizes.items()}}}


def table(figures: Figures) -> Rows:
    """Counts of a turn, by cluster and form."""
    columns = {"a turn of": "{form}", "desktops": "{num_envs:,}", **{name: f"{{{name}:,}}" for name in COUNTS}}
    return rows_of(columns, figures["rows"])


STUDY = Experiment(
    name="turn_instructions", about=str(__doc__), measure=measure, seeds=1, tables={"turn-instructions": table}
)

if __name__ == "__main__":
    STUDY.run()
