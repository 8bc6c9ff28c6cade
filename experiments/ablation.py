"""The ablation: DART's parts added and removed, and what staleness costs, on a model that really learns.

python -m experiments.ablation            five seeds, 100 runs: half an hour of CPU time, on two cores
python -m experiments.ablation --quick    one seed, cut short: the same keys
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from dartsim.config import Config, load
from dartsim.lab.sweep import ArmRun, sweep
from experiments.ablation_pictures import PICTURES
from experiments.study import Experiment, Figures, Options, Rows, interval, recorded_line

GROUPS, ATTEMPTS = 8, 8
"""Of a batch, and of a group at most: 64 attempts an update."""

HOURS, QUICK_HOURS = 0.4, 0.03
"""Simulated length of a run."""

BOUNDS = (0, 1, 2, 4, 8)
"""Staleness bounds that are compared, versions."""

COMMON = (
    "run.updates=10000",
    "run.target_success=1.0",
    "tasks.mock=locks",
    "tasks.count=48",
    "tasks.held_out=60",
    "policy.family=qwen2_5_vl",
    "policy.grammar=clicks_and_done",
    "policy.screen=96",
    "rollout.num_envs=32",
    "rollout.max_turns=6",
    f"curation.batch.min_groups={GROUPS}",
    f"curation.batch.max_groups={GROUPS}",
    f"curation.attempts.group_size={ATTEMPTS}",
    "curation.store=memory",
    "trainer.optimizer.learning_rate=7e-4",
    "trainer.optimizer.minibatches=4",
    "trainer.evaluation.every_updates=5",
    "trainer.evaluation.attempts_per_task=1",
    "recorder.max_segments=0",
    "cluster.learner.fixed_seconds=10.0",
    "cluster.learner.turn_seconds=0.1",
)

QUICK = ("tasks.held_out=30",)
"""What else is coarser in a quick run."""

PARTS = {
    "attempts": "curation.attempts.rule={by_success|fixed}",
    "length": "curation.turn_limit.rule={by_success|fixed}",
    "pool": "curation.pool.enabled={true|false}",
    "entropy": "curation.selection.rule={high_entropy|all}",
    "alignment": "trainer.objective.importance={token|off}",
}
"""The method's parts: the setting with the part, and without it. ``alignment`` is truncated importance sampling."""

COUPLED = (
    "rollout.unit=batch",
    "rollout.lockstep=true",
    "rollout.sync.mode=drain",
    "rollout.sync.workers_at_a_time=all",
    "curation.groups.drop_all_failed=false",
    "curation.groups.drop_equal=false",
    "curation.groups.drop_solved=false",
    "trainer.wait_for_sync=true",
)
"""As the preset ``coupled``: lock-step turns, whole batches, nothing overlaps, every group is trained on."""

ARMS: dict[str, tuple[str, ...]] = {
    "coupled": (),
    "decoupled": (),
    **{f"+ {part}": (part,) for part in PARTS},
    "dart": tuple(PARTS),
    **{f"dart - {part}": tuple(other for other in PARTS if other != part) for part in PARTS},
    "dart, stored kept": tuple(PARTS),
}
"""Name of an arm, and the parts that it has."""

REMEDY = "curation.selection.keep_stored=true"
"""Of the last arm, which is ours: selection leaves the pool's successes alone."""

STALE_WITHOUT = (4, 8)
"""Further bounds at which ``dart - alignment`` is run too."""


def overrides(arm: str, bound: int) -> tuple[str, ...]:
    """Return what distinguishes an arm at a staleness bound: parts, schedule, and attempts admitted ahead."""
    parts = ARMS[arm]
    chosen = [_switch(text, name in parts) for name, text in PARTS.items()]
    if "attempts" in parts:
        chosen += ["curation.attempts.min_group_size=2", "curation.attempts.threshold=0.6"]
    if "pool" in parts:
        chosen.append("curation.pool.collected_per_task=1")
    ahead = (bound + 1) * GROUPS * ATTEMPTS
    chosen += [f"curation.staleness.max_staleness={bound}", f"curation.max_ahead={ahead}"]
    if arm == "dart, stored kept":
        chosen.append(REMEDY)
    return (*chosen, *(COUPLED if arm == "coupled" else ()))


def config(arm: str, seed: int, bound: int = 1, *, quick: bool = False) -> Config:
    """Return the configuration of an arm."""
    bound = 0 if arm == "coupled" else bound
    length = (f"run.hours={QUICK_HOURS}", *QUICK) if quick else (f"run.hours={HOURS}",)
    changes = [f"run.seed={seed}", *COMMON, *length, *overrides(arm, bound)]
    return load(preset_name="tiny", overrides=changes)


def jobs(seed: int) -> Sequence[tuple[str, int]]:
    """Return arm and bound of every run of a seed; what two parts of the study share is run once."""
    arms = [(arm, 0 if arm == "coupled" else 1) for arm in ARMS]
    bounds = [("dart", bound) for bound in BOUNDS if bound != 1]
    return [*arms, *bounds, *(("dart - alignment", bound) for bound in STALE_WITHOUT)]


def _switch(text: str, on: bool) -> str:
    """Return ``name=first`` or ``name=second`` of ``name={first|second}``."""
    name, _, choice = text.partition("={")
    return f"{name}={choice.rstrip('}').split('|')[0 if on else 1]}"


PUBLISHED = {
    "baseline": 0.2867,
    "+ dynamic rollouts": 0.5090,
    "+ dynamic length": 0.6611,
    "+ high entropy": 0.6833,
    "+ distribution alignment": 0.7055,
    "all": 0.7228,
    "never-solved tasks, with the pool": 0.46,
    "distribution alignment, plateau with": 0.70,
    "distribution alignment, plateau without": 0.55,
}
"""DART's ablation on 45 tasks, pass@1 (arXiv 2509.23866 and its project page). Whether rows add up is not stated."""


def arms_table(figures: Figures) -> Rows:
    """Success of each arm, and what 50 % cost it."""
    base = [run["success_rate_final"] for run in _runs(figures, "decoupled")]
    head = ["arm", "success", "over decoupled", "50 % after turns", "after hours"]
    rows = []
    for arm in ARMS:
        runs = _runs(figures, arm)
        final = [run["success_rate_final"] for run in runs]
        paired = "–" if arm == "decoupled" else _points([a - b for a, b in zip(final, base, strict=True)])
        turns = _reached([run["turns_to_50_percent"] for run in runs], ",.0f")
        hours = _reached([run["simulated_hours_to_50_percent"] for run in runs], ".2f")
        rows.append([arm, _percent(final), paired, turns, hours])
    return head, rows


def _runs(figures: Figures, arm: str) -> list[Figures]:
    return [run for run in figures["arms"] if run["arm"] == arm]


KINDS = {
    "easy": "1 or 2 pages of red, green, blue",
    "hard": "2 or 3 pages of yellow, orange, purple",
    "never": "2 pages of cyan, pink, brown",
}
"""Kind of a task -> what its tasks are."""


def base_table(figures: Figures) -> Rows:
    """What the base models can do."""
    runs = _runs(figures, "decoupled")
    rows = [[kind, about, _percent(run["by_kind_initial"][kind] for run in runs)] for kind, about in KINDS.items()]
    return ["kind", "tasks", "base model"], rows


def _percent(values: Iterable[float]) -> str:
    mean, half = interval(list(values))
    return f"{mean * 100:.0f} ± {half * 100:.0f} %"


def _points(values: Sequence[float]) -> str:
    mean, half = interval(values)
    return f"{mean * 100:+.0f} ± {half * 100:.0f}"


def _reached(values: Sequence[float | None], form: str) -> str:
    """Return the mean of those that got there, and how many did if not all."""
    known = [value for value in values if value is not None]
    if not known:
        return "never"
    counted = "" if len(known) == len(values) else f" ({len(known)} of {len(values)})"
    return f"{np.mean(known):{form}}{counted}"


def provenance(figures: Figures) -> str:
    """Return what the recorded ablation was run with."""
    hours, minutes = figures["config"]["dart"]["run"]["hours"], figures["cpu_seconds"] / 60.0
    return recorded_line(figures, f"{hours:g} simulated hours a run", f"{minutes:.0f} CPU minutes in all")


def measure(options: Options) -> Figures:
    """Run every arm with every seed on all cores, seed by seed."""
    os.environ["OMP_NUM_THREADS"] = "1"  # before a worker process imports torch
    work = [(arm, seed, bound) for seed in range(options.seeds) for arm, bound in jobs(seed)]
    seeds = [ArmRun("base model", seed, (seed, options.quick)) for seed in range(options.seeds)]
    specs = [ArmRun(arm, seed, (arm, seed, bound, options.quick)) for arm, seed, bound in work]
    with TemporaryDirectory() as folder:
        sweep(partial(base_model, Path(folder)), seeds, console=options.console, name="base models")
        runs = options.sweep(partial(run_arm, Path(folder)), specs)
    return {
        "arms": [run for run in runs if run["bound"] == (0 if run["arm"] == "coupled" else 1)],
        "staleness": [_brief(run) for run in runs if run["arm"] == "dart"],
        "staleness_without_alignment": [_brief(run) for run in runs if run["arm"] == "dart - alignment"],
        "published": PUBLISHED,
        "cpu_seconds": sum(run["cpu_seconds"] for run in runs),
        "config": {"dart": config("dart", 0, quick=options.quick).model_dump(mode="json")},
        "overrides": {arm: overrides(arm, 0 if arm == "coupled" else 1) for arm in ARMS},
    }


def _brief(run: Figures) -> Figures:
    """Return a run of the staleness study; its bound says which."""
    return {name: value for name, value in run.items() if name != "arm"}


def base_model(folder: Path, job: tuple[int, bool]) -> float:
    """Make the base model of a seed, shared by all of its arms, and return the CPU seconds that it took."""
    from experiments.ablation_runs import made_base  # torch takes its seconds

    seed, quick = job
    return made_base(config("dart", seed, quick=quick), folder / str(seed), quick=quick)


def run_arm(folder: Path, job: tuple[str, int, int, bool]) -> Figures:
    """Run an arm from the base model of its seed and return its figures."""
    from experiments.ablation_runs import run_from

    arm, seed, bound, quick = job
    return {"arm": arm, "seed": seed, **run_from(config(arm, seed, bound, quick=quick), folder / str(seed))}


STUDY = Experiment(
    name="ablation",
    about=str(__doc__),
    measure=measure,
    seeds=5,
    tables={
        "ablation-arms": arms_table,
        "ablation-base": base_table,
        "ablation-provenance": provenance,
    },
    pictures=PICTURES,
)

if __name__ == "__main__":
    STUDY.run()
