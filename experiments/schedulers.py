"""Every scheduler on every workload, ours against the best other and the closed-form bound; what each idea adds.

python -m experiments.schedulers            three seeds: about 45 minutes of CPU
python -m experiments.schedulers --quick    the same keys, a few schedulers on two workloads, in a minute
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from dartsim.lab.analytic_model import predict
from dartsim.lab.bounds import bounds
from dartsim.lab.comparison import FIGURES, classes_over_seeds, compared, over_seeds
from dartsim.lab.sweep import ArmRun
from dartsim.observe.bias import BAND, BY_DIFFICULTY, ByClass, usable
from dartsim.run.prepare import prepare
from dartsim.run.simulation import run_simulation
from experiments import prefix_hits, scheduler_pictures, scheduler_tables
from experiments.clusters import Cluster
from experiments.study import Experiment, Options

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
    "dart": 10.0,
    "osworld": 8.0,
    "long-tail": 10.0,
    "skewed-hosts": 10.0,
    "laptop": 4.0,
    "math": 2.0,
}
"""Workloads, and simulated hours of each run: several passes over the tasks, and a hundred updates or so."""

QUICK = ("areal-eta0", "areal-eta4", "dart-measured", OURS)
QUICK_HOURS: Mapping[str, float] = {"dart": 4.0, "laptop": 0.5}

SCHEDULING = (
    "curation.task_filter.max_mean=1.0",
    "curation.task_filter.min_mean=0.0",
    "curation.pool.enabled=false",
    "policy.images_after_cut=none",
    "trainer.optimizer.pack=turns",
)
"""Our preset without what is no scheduling: tasks, prompts and groups are those of others."""

BOUNDS: Mapping[int, tuple[str, ...]] = {
    1: ("curation.staleness.max_staleness=1", "curation.admission.ready_batches=1.0"),
    2: ("curation.staleness.max_staleness=2", "curation.admission.ready_batches=1.0"),
    4: ("curation.staleness.max_staleness=4",),
}
"""Staleness bounds at which we are compared with others, and our settings there; what waits gets stale by waiting."""

IDEAS: Mapping[str, tuple[str, ...]] = {
    "all ideas": (),
    "all workers at once": ("rollout.sync.workers_at_a_time=all", "trainer.wait_for_sync=true"),
    "restart instead of keep": ("rollout.sync.mode=restart",),
    "no session affinity": ("rollout.routing.rule=least_in_flight",),
    "sessions stay up to four requests more": ("rollout.routing.max_excess=4",),
    "images dropped one by one": ("policy.images_after_cut=none",),
    "no admission bound": ("curation.admission.ready_batches=none",),
    "half as far ahead": ("curation.admission.ready_batches=1.0",),
    "ready first, not begun first": ("curation.batch.rule=ready",),
    "tasks that teach nothing are offered too": SCHEDULING[:2],
}
"""Our preset with one idea taken out or done otherwise.

Spares go with ``without_spares``.
"""

IDEA_WORKLOADS = ("dart", "osworld")

WINDOWS = {"slide": "none", "block": "2"}
"""Screenshots after a cut, by how they are dropped."""
WINDOW_WORKLOAD = "osworld"
WINDOW_HOURS, WINDOW_QUICK_HOURS = 3.0, 1.0
WINDOW_WORKERS = (2, 4, 8)
"""Engines for the workload's 64 desktops, with which both windows are compared."""
WINDOW_EXCESS = (1, 1000)
"""Excess requests that a session's worker may have: our preset's, and enough that no session moves."""

ALONE = "alone"

UNQUEUED: Mapping[str, tuple[str, ...]] = {"laptop": ("rollout.num_workers=4",)}
"""Workloads whose engine is the queue that no bound knows, and what gives each desktop an engine to itself."""

UNQUEUED_NAME = "without a queue"


def run_trial(trial: Cluster) -> Figures:
    """Run one trial and return what schedulers are compared by, with the bound on what its groups allow."""
    prepared = prepare(trial.config)
    hits = prefix_hits.PrefixHits(prepared.prompts)
    result = run_simulation(prepared, instruments=[hits])
    closed = bounds(prepared, result.figures, result.recorder.snapshots)
    summary = {
        **result.figures,
        **closed,
        "bias": result.bias,
        "config": {"rollout": trial.config.rollout.model_dump()},
    }
    return {
        **compared(summary, [record.time / 3600.0 for record in result.recorder.updates]),
        **shares(result.bias),
        **hits.figures(),
        "predicted_turns_per_minute": predict(prepared).trained_turns_per_minute,
        "event_hash": result.event_hash,
    }


def shares(bias: Mapping[str, ByClass]) -> dict[str, float | None]:
    """Return the share of hard tasks among what is offered, what the group filter leaves, and what is trained on."""
    table: ByClass = bias.get(BY_DIFFICULTY, {})
    offered, trained = ({label: row[name] for label, row in table.items()} for name in ("offered", "trained"))
    return {
        f"hard_share_{name}": counts.get("hard", 0.0) / sum(counts.values()) if sum(counts.values()) else None
        for name, counts in (("offered", offered), ("usable", usable(table)), ("trained", trained))
    }


def trials(options: Options) -> Iterator[Cluster]:
    """Every scheduler on every workload."""
    hours, schedulers = (QUICK_HOURS, QUICK) if options.quick else (HOURS, SCHEDULERS)
    for seed in range(options.seeds):
        for workload in hours:
            for scheduler in schedulers:
                yield Cluster(scheduler, hours[workload], seed, workload=workload)


def idea_trials(options: Options) -> Iterator[tuple[str, Cluster]]:
    """Our preset with one idea less, on the workloads for that."""
    for workload in IDEA_WORKLOADS[:1] if options.quick else IDEA_WORKLOADS:
        hours = QUICK_HOURS[workload] if options.quick else HOURS[workload]
        for seed in range(options.seeds):
            for idea, changes in IDEAS.items():
                yield idea, Cluster(OURS, hours, seed, changes, workload)
            yield "no spare desktops", without_spares(Cluster(OURS, hours, seed, workload=workload))


def window_trials(options: Options) -> Iterator[tuple[str, Cluster]]:
    """Our preset with both windows, few engines and many, sessions that move and that stay."""
    hours = WINDOW_QUICK_HOURS if options.quick else WINDOW_HOURS
    for seed in range(options.seeds):
        for workers in WINDOW_WORKERS[:1] if options.quick else WINDOW_WORKERS:
            for excess in WINDOW_EXCESS:
                for window in WINDOWS:
                    changes = (
                        f"rollout.num_workers={workers}",
                        f"rollout.routing.max_excess={excess}",
                        f"policy.images_after_cut={WINDOWS[window]}",
                        "trainer.optimizer.pack=turns",
                    )
                    yield " ".join(changes), Cluster(OURS, hours, seed, changes, WINDOW_WORKLOAD)


def own_trials(options: Options) -> Iterator[tuple[str, Cluster]]:
    """Our preset alone, with its own staleness bound and with those of others, and whole without a queue; by name."""
    hours = QUICK_HOURS if options.quick else HOURS
    for seed in range(options.seeds):
        for workload in hours:
            yield ALONE, Cluster(OURS, hours[workload], seed, SCHEDULING, workload)
            if workload in UNQUEUED:
                yield UNQUEUED_NAME, Cluster(OURS, hours[workload], seed, UNQUEUED[workload], workload)
            for bound in (1,) if options.quick else BOUNDS:
                yield str(bound), Cluster(OURS, hours[workload], seed, (*SCHEDULING, *BOUNDS[bound]), workload)


def without_spares(trial: Cluster) -> Cluster:
    """Return the trial with as many desktops, all of them slots."""
    desktops = trial.config.rollout.num_desktops
    return replace(trial, changes=(*trial.changes, "rollout.warm_envs=0", f"rollout.num_envs={desktops}"))


def measure(options: Options) -> Figures:
    """Run everything."""
    wanted = list(trials(options))
    own, ideas, windows = list(own_trials(options)), list(idea_trials(options)), list(window_trials(options))
    everything = [*wanted, *(trial for _, trial in (*own, *ideas, *windows))]
    runs = options.sweep(run_trial, [ArmRun(f"{one.preset}, {one.workload}", one.seed, one) for one in everything])
    by_key: dict[tuple[str, str], list[Figures]] = {}
    for trial, run in zip(wanted, runs, strict=False):
        by_key.setdefault((str(trial.workload), trial.preset), []).append(run)
    workloads: dict[str, Figures] = {}
    for (workload, scheduler), seeds in by_key.items():
        workloads.setdefault(workload, {"schedulers": {}})["schedulers"][scheduler] = of_seeds(seeds)
    by_own = by_name(own, runs[len(wanted) :])
    for workload, found in workloads.items():
        found |= against_others(found["schedulers"], by_own.pop((workload, ALONE)))
        unqueued = by_own.pop((workload, UNQUEUED_NAME), None)
        found["unqueued"] = unqueued and {**unqueued, "over_bound": over_bound(unqueued)}
        found["at_bounds"] = [
            at_bound(int(bound), figures, found["schedulers"])
            for (place, bound), figures in by_own.items()
            if place == workload
        ]
    by_idea = by_name(ideas, runs[len(wanted) + len(own) :])
    return {
        "workloads": workloads,
        "ideas": [{"workload": workload, "idea": idea, **figures} for (workload, idea), figures in by_idea.items()],
        "windows": by_window(windows, runs[-len(windows) :]),
        "config": {
            "hours": dict(QUICK_HOURS if options.quick else HOURS),
            "scheduling_alone": list(SCHEDULING),
            "at_bounds": {str(bound): list(changes) for bound, changes in BOUNDS.items()},
            "starved_below": BAND,
        },
    }


def by_name(named: Sequence[tuple[str, Cluster]], runs: Sequence[Figures]) -> dict[tuple[str, str], Figures]:
    """Return figures over seeds by workload and name; of runs, as many as there are names."""
    found: dict[tuple[str, str], list[Figures]] = {}
    for (name, trial), run in zip(named, runs, strict=False):
        found.setdefault((str(trial.workload), name), []).append(run)
    return {key: of_seeds(seeds) for key, seeds in found.items()}


def by_window(named: Sequence[tuple[str, Cluster]], runs: Sequence[Figures]) -> list[Figures]:
    """Return figures over seeds of each window, with what else was set."""
    configs = {name: trial.config for name, trial in named}
    return [
        {
            "desktops_per_worker": configs[name].rollout.num_desktops / configs[name].rollout.num_workers,
            "max_excess": dict(configs[name].rollout.routing)["max_excess"],
            "window": "slide" if configs[name].policy.images_after_cut is None else "block",
            **figures,
        }
        for (_, name), figures in by_name(named, runs).items()
    ]


def of_seeds(runs: Sequence[Figures]) -> Figures:
    """Return means with intervals over seeds, and what has none."""
    predicted = [run["predicted_turns_per_minute"] for run in runs]
    return {
        "figures": over_seeds(runs, (*FIGURES, *shares({}), *prefix_hits.FIGURES)),
        **classes_over_seeds(runs),
        "predicted_turns_per_minute": sum(predicted) / len(predicted),
        "staleness_definitions": runs[0]["staleness_definitions"],
        "event_hashes": [run["event_hash"] for run in runs],
    }


def trained(figures: Figures, counted: str = "trained") -> float:
    """Return what ``of_seeds`` returned of trained turns a minute, or of those with a ``signal``."""
    return float(figures["figures"][f"{counted}_turns_per_minute"]["mean"])


def over_bound(figures: Figures) -> float | None:
    """Return trained turns over their bound."""
    bound = figures["figures"].get("bound_trained_turns_per_minute")
    return trained(figures) / bound["mean"] if bound else None


def against_others(schedulers: Mapping[str, Figures], alone: Figures) -> Figures:
    """Return our scheduler, whole and alone, against the best other one, and against the bound.

    Alone it is also held against the best other one by turns whose group carries a signal.
    """
    ours, others = schedulers[OURS], [name for name in schedulers if name != OURS]
    best = max(others, key=lambda name: trained(schedulers[name]))
    best_signal = max(others, key=lambda name: trained(schedulers[name], "signal"))
    return {
        "best_other": best,
        "ours_over_best_other": trained(ours) / trained(schedulers[best]),
        "ours_over_bound": over_bound(ours),
        "ours_over_predicted": trained(ours) / ours["predicted_turns_per_minute"],
        "alone": alone,
        "alone_over_best_other": trained(alone) / trained(schedulers[best]),
        "best_other_by_signal": best_signal,
        "alone_over_best_other_by_signal": trained(alone, "signal") / trained(schedulers[best_signal], "signal"),
    }


def at_bound(bound: int, ours: Figures, schedulers: Mapping[str, Figures]) -> Figures:
    """Return ours with a staleness bound against the best other whose stalest trajectory kept to it.

    Not the bound that a preset states counts, but what was seen: some state none, and some count other versions.
    """
    within = [
        name
        for name, own in schedulers.items()
        if name != OURS and own["figures"].get("staleness_max", {"mean": bound + 1})["mean"] <= bound
    ]
    best = max(within, key=lambda name: trained(schedulers[name]), default=None)
    return {
        "bound": bound,
        "ours": ours,
        "best_other": best,
        "ours_over_best_other": None if best is None else trained(ours) / trained(schedulers[best]),
    }


STUDY = Experiment(
    name="schedulers",
    about=str(__doc__),
    measure=measure,
    tables={
        "schedulers-best": scheduler_tables.best_rows,
        "schedulers-starved": scheduler_tables.starved_rows,
        "schedulers-windows": scheduler_tables.window_rows,
        "schedulers-provenance": scheduler_tables.provenance,
    },
    pictures=scheduler_pictures.PICTURES,
)

if __name__ == "__main__":
    STUDY.run()
