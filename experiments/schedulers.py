"""Every scheduler on every workload, ours against the best other and the closed-form bound; what each idea adds.

python -m experiments.schedulers            two seeds: about 8 minutes of CPU
python -m experiments.schedulers --quick    the same keys, a few schedulers on two workloads, in a minute
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any

from rich.console import Console
from rich.progress import track
from rich.table import Table

from dartsim.config import Config, load
from dartsim.run.bounds import bounds
from dartsim.run.compared import compared, over_seeds
from dartsim.run.models import models
from dartsim.run.simulation import run_simulation
from experiments.common import Options, run_experiment
from real.machine import usable_cores

Figures = dict[str, Any]

OURS = "dartsim"
SCHEDULERS = (
    "coupled",
    "batch-wise",
    "task-wise",
    "dart-measured",
    "areal-eta0",
    "areal-eta4",
    "verl-on-policy",
    "verl-stream",
    "verl-async",
    "verl-partial",
    "verl-buffer-drop",
    "verl-buffer-wait",
    "prime-rl",
    "slime-one-step-off",
    "slime-fully-async",
    "skyrl",
    "nemo-in-order",
    "nemo-weight-fifo",
    "nemo-windowed",
    "roll",
    "trl",
    "openrlhf",
    "tinker-discard",
    "tinker-pace",
    OURS,
)
"""Not ``dart`` and ``dart-released``: their curation makes other attempts, so that more than scheduling differs."""

HOURS: Mapping[str, float] = {
    "dart": 8.0,
    "osworld": 2.0,
    "long-tail": 3.0,
    "skewed-hosts": 3.0,
    "laptop": 1.0,
    "math": 0.75,
}
"""Workloads, and simulated hours of each run."""

QUICK = ("areal-eta0", "areal-eta4", "dart-measured", OURS)
QUICK_HOURS: Mapping[str, float] = {"dart": 4.0, "laptop": 0.5}

IDEAS: Mapping[str, tuple[str, ...]] = {
    "all ideas": (),
    "all workers at once": ("rollout.sync.workers_at_a_time=all", "trainer.wait_for_sync=true"),
    "restart instead of keep": ("rollout.sync.mode=restart",),
    "no session affinity": ("rollout.routing.rule=least_in_flight",),
    "images dropped one by one": ("cluster.engine.window=slide",),
    "no admission bound": ("curation.admission.ahead_batches=none", "curation.admission.ready_batches=none"),
    "half as far ahead": ("curation.admission.ahead_batches=1.5",),
    "ready first, not begun first": ("curation.batch.order=ready",),
}
"""Our preset with one idea taken out; spares go with ``without_spares``."""

IDEA_WORKLOADS = ("dart", "osworld")

SHOWN = ("trained_turns_per_minute", "env_utilization", "staleness_mean", "wasted_share", "long_tasks_ratio")


@dataclass(frozen=True, slots=True)
class Trial:
    """One run: a scheduler on a workload."""

    scheduler: str
    workload: str
    hours: float
    seed: int = 0
    changes: tuple[str, ...] = ()

    @property
    def config(self) -> Config:
        """The resolved configuration, without timelines and without a database."""
        own = (f"run.hours={self.hours}", f"run.seed={self.seed}", "trace.max_segments=0", 'curation.store="memory"')
        return load(preset_name=self.scheduler, workload_name=self.workload, overrides=[*self.changes, *own])


def run_trial(trial: Trial) -> Figures:
    """Run one trial and return what schedulers are compared by, with the bound on what its groups allow."""
    found = models(trial.config)
    result = run_simulation(found)
    closed = bounds(found, result.figures)
    summary = {
        **result.figures,
        **closed,
        "bias": result.bias,
        "config": {"rollout": trial.config.rollout.model_dump()},
    }
    return {
        **compared(summary, [record.time / 3600.0 for record in result.trace.updates]),
        "bound_with_filter": bound_with_filter(summary),
        "event_hash": result.event_hash,
    }


def bound_with_filter(summary: Mapping[str, Any]) -> float | None:
    """Return the closed-form bound if only groups that the group filter keeps can be trained, turns a minute.

    Desktops and engines make every attempt; of those that were judged, the filter drops a share that no scheduler can
    train. The trainer's own bound is as it is.
    """
    by_part: Mapping[str, float] = summary.get("bounds") or {}
    if not by_part:
        return None
    dropped = summary["dropped"]
    filtered = sum(dropped.get(reason, 0) for reason in ("all_failed", "all_solved", "no_signal"))
    judged = filtered + sum(dropped.get(reason, 0) for reason in ("stale",)) + summary["trained_trajectories"]
    kept = 1.0 - filtered / judged if judged else 1.0
    return min(value if part == "trainer" else value * kept for part, value in by_part.items())


def trials(options: Options) -> Iterator[Trial]:
    """Every scheduler on every workload."""
    hours, schedulers = (QUICK_HOURS, QUICK) if options.quick else (HOURS, SCHEDULERS)
    for seed in range(options.seeds):
        for workload in hours:
            for scheduler in schedulers:
                yield Trial(scheduler, workload, hours[workload], seed)


def idea_trials(options: Options) -> Iterator[tuple[str, Trial]]:
    """Our preset with one idea less, on the workloads for that."""
    for workload in IDEA_WORKLOADS[:1] if options.quick else IDEA_WORKLOADS:
        hours = QUICK_HOURS[workload] if options.quick else HOURS[workload]
        for seed in range(options.seeds):
            for idea, changes in IDEAS.items():
                yield idea, Trial(OURS, workload, hours, seed, changes)
            yield "no spare desktops", without_spares(Trial(OURS, workload, hours, seed))


def without_spares(trial: Trial) -> Trial:
    """Return the trial with as many desktops, all of them slots."""
    desktops = trial.config.rollout.num_desktops
    return Trial(
        trial.scheduler,
        trial.workload,
        trial.hours,
        trial.seed,
        (*trial.changes, "rollout.warm_envs=0", f"rollout.num_envs={desktops}"),
    )


def run_trials(wanted: Sequence[Trial], console: Console) -> list[Figures]:
    """Run all on all cores, the results in the order asked for."""
    with ProcessPoolExecutor(min(len(wanted), usable_cores()), mp_context=get_context("spawn")) as pool:
        done = pool.map(run_trial, wanted)
        return list(track(done, "schedulers", total=len(wanted), console=console, disable=not console.is_terminal))


def measure(options: Options) -> Figures:
    """Run everything."""
    wanted = list(trials(options))
    ideas = list(idea_trials(options))
    runs = run_trials([*wanted, *(trial for _, trial in ideas)], options.console)
    by_key: dict[tuple[str, str], list[Figures]] = {}
    for trial, run in zip(wanted, runs, strict=False):
        by_key.setdefault((trial.workload, trial.scheduler), []).append(run)
    workloads: dict[str, Figures] = {}
    for (workload, scheduler), own in by_key.items():
        workloads.setdefault(workload, {"schedulers": {}})["schedulers"][scheduler] = of_seeds(own)
    for found in workloads.values():
        found |= against_others(found["schedulers"])
    by_idea: dict[tuple[str, str], list[Figures]] = {}
    for (idea, trial), run in zip(ideas, runs[len(wanted) :], strict=True):
        by_idea.setdefault((trial.workload, idea), []).append(run)
    return {
        "workloads": workloads,
        "ideas": [{"workload": workload, "idea": idea, **of_seeds(own)} for (workload, idea), own in by_idea.items()],
        "config": {"hours": dict(QUICK_HOURS if options.quick else HOURS)},
    }


def of_seeds(runs: Sequence[Figures]) -> Figures:
    """Return means with intervals over seeds, and what has none."""
    bound = [run["bound_with_filter"] for run in runs if run["bound_with_filter"] is not None]
    return {
        "figures": over_seeds(runs),
        "bound_with_filter": sum(bound) / len(bound) if bound else None,
        "staleness_definitions": runs[0]["staleness_definitions"],
        "event_hashes": [run["event_hash"] for run in runs],
    }


def against_others(schedulers: Mapping[str, Figures]) -> Figures:
    """Return our scheduler against the best other one, and against the bound."""

    def trained(name: str) -> float:
        return float(schedulers[name]["figures"]["trained_turns_per_minute"]["mean"])

    best = max((name for name in schedulers if name != OURS), key=trained)
    bound = schedulers[OURS]["bound_with_filter"]
    return {
        "best_other": best,
        "ours_over_best_other": trained(OURS) / trained(best),
        "ours_over_bound": trained(OURS) / bound if bound else None,
    }


def show(figures: Figures, console: Console) -> None:
    """Print one table a workload, and the ideas."""
    for workload, found in figures["workloads"].items():
        share = found["ours_over_bound"]
        title = (
            f"{workload}: ours {found['ours_over_best_other']:.2f}x the best other ({found['best_other']}), "
            f"{'–' if share is None else f'{share:.0%}'} of the bound"
        )
        table = Table("", *SHOWN, title=title, show_edge=False)
        for name, own in found["schedulers"].items():
            table.add_row(name, *cells(own["figures"]))
        console.print(table)
    table = Table("ours, less one idea", "workload", *SHOWN, show_edge=False)
    for row in figures["ideas"]:
        table.add_row(row["idea"], row["workload"], *cells(row["figures"]))
    console.print(table)


def cells(figures: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Return the shown figures in words."""
    return [f"{figures[name]['mean']:.3g}" if name in figures else "–" for name in SHOWN]


if __name__ == "__main__":
    run_experiment("schedulers", measure, show, about=str(__doc__).splitlines()[0], seeds=2)
