"""Every scheduler on every workload, ours against the best other and the bound; what each idea adds.

python -m experiments.schedulers            three seeds: about 40 minutes of CPU
python -m experiments.schedulers --quick    the same keys, a few schedulers on two workloads, in a minute
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from dartsim.lab.bounds import bounds
from dartsim.lab.comparison import classes_over_seeds, comparison_figures
from dartsim.run.prepare import prepare
from dartsim.run.run_prepared import run_prepared
from experiments.arms import Arm, Cluster, arm_study, mean, pick, select
from experiments.charts import (
    BLUE,
    GRAY,
    ORANGE,
    boxes,
    drawing,
    grouped,
    label_axes,
    rows_axis,
)
from experiments.study import Figures, Rows, StudyPicture, rows_of

TRAINED, OURS = "trained_turns_per_minute", "dartsim"


def run_scheduler(arm: Arm, seed: int) -> Figures:
    """Run an arm and return what schedulers are compared by, with the bound on what its groups allow."""
    cluster = arm.cluster(seed)
    if arm.keys.get("slots_only"):
        cluster = without_spares(cluster)
    prepared = prepare(cluster.config)
    result = run_prepared(prepared)
    summary = {
        **result.figures,
        **bounds(prepared, result.figures, result.recorder.snapshots),
        "bias": result.bias,
        "config": {"rollout": prepared.config.rollout.model_dump()},
    }
    return {**comparison_figures(summary), "event_hash": result.event_hash}


def without_spares(cluster: Cluster) -> Cluster:
    """Return the cluster with as many desktops, all of them slots."""
    desktops = cluster.config.rollout.num_desktops
    return replace(cluster, changes=(*cluster.changes, "rollout.warm_envs=0", f"rollout.num_envs={desktops}"))


def starved(arm: Arm, runs: Sequence[Figures]) -> Figures:
    """Return the classes of tasks that a scheduler starves."""
    return {"starved": classes_over_seeds(runs)["starved_classes"] or []} if arm.family == "schedulers" else {}


def on_workload(recorded: Figures, workload: str) -> Figures:
    """Return our scheduler on a workload, whole and alone, and the best other one."""
    everyone = select(recorded["arms"], family="schedulers", workload=workload)
    return {
        "ours": pick(everyone, scheduler=OURS),
        "other": best([arm for arm in everyone if arm["scheduler"] != OURS]),
        "alone": pick(recorded["arms"], family="alone", workload=workload, bound="own"),
    }


def best(arms: Sequence[Figures]) -> Figures:
    """Return the arm that trains most."""
    return max(arms, key=lambda arm: mean(arm, TRAINED))


def over(arm: Figures, other: Figures) -> float:
    """Return the trained turns of an arm over those of another."""
    return mean(arm, TRAINED) / mean(other, TRAINED)


def over_bound(arm: Figures) -> float:
    """Return the trained turns of an arm over their bound."""
    return mean(arm, TRAINED) / mean(arm, "bound_trained_turns_per_minute")


def over_best_within(recorded: Figures, ours: Figures) -> float:
    """Return our trained turns at a staleness bound over those of the best other whose stalest trajectory kept to it.

    Not the bound that a preset states counts, but what was seen: some state none, and some count other versions.
    """
    others = select(recorded["arms"], family="schedulers", workload=ours["workload"])
    bound = int(ours["bound"])
    within = [arm for arm in others if arm["scheduler"] != OURS and mean(arm, "staleness_max") <= bound]
    return over(ours, best(within))


def workloads(recorded: Figures) -> list[str]:
    """Return the workloads that were run."""
    return list(grouped(select(recorded["arms"], family="schedulers"), "workload"))


def best_rows(recorded: Figures) -> Rows:
    """Ours against the best other scheduler and the bound, on every workload."""
    columns = {
        "workload": "`{workload}`",
        "`dartsim`": "{ours[figures][trained_turns_per_minute]:.1f}",
        "best other": "{other[figures][trained_turns_per_minute]:.1f} (`{other[scheduler]}`)",
        "ratio": "{ratio:.2f}x",
        "scheduling alone": "{alone_ratio:.2f}x",
        "alone at a staleness bound of 1, 2, 4": "{bounded}",
        "of the bound": "{of_bound:.0%}",
        "largest staleness": "{ours[figures][staleness_max]:.0f}, other {other[figures][staleness_max]:.0f}",
        "starved": "{starved}",
    }
    found = []
    for workload in workloads(recorded):
        here = on_workload(recorded, workload)
        ratios = {"ratio": over(here["ours"], here["other"]), "alone_ratio": over(here["alone"], here["other"])}
        classes = ", ".join(share["class"] for share in here["ours"]["starved"]) or "none"
        alone = [arm for arm in select(recorded["arms"], family="alone", workload=workload) if arm["bound"] != "own"]
        bounded = ", ".join(f"{over_best_within(recorded, arm):.2f}x" for arm in alone)
        words = {"workload": workload, "bounded": bounded, "starved": classes}
        found.append({**here, **words, **ratios, "of_bound": over_bound(here["ours"])})
    return rows_of(columns, found)


def starved_rows(recorded: Figures) -> Rows:
    """Which scheduler starves which class of tasks."""
    columns = {
        "workload": "`{workload}`",
        "scheduler": "`{scheduler}`",
        "starved": "{class} (by {by})",
        "trained, relative to all tasks": "{ratio:.2f} ({low:.2f} to {high:.2f})",
        "groups": "{groups}",
    }
    schedulers = select(recorded["arms"], family="schedulers")
    return rows_of(columns, ({**arm, **share} for arm in schedulers for share in arm["starved"]))


SHADES = [(step / 10, 0.02 + 0.006 * step**2) for step in range(1, 11)]
"""From which share of the best, and how opaque its cell is."""


@drawing(5.4)
def ladder(figure: Any, recorded: Figures) -> None:
    """Throughput and staleness of every scheduler on osworld; throughput on all workloads as a map."""
    every = select(recorded["arms"], family="schedulers")
    found = {arm["scheduler"]: arm for arm in select(every, workload="osworld")}
    names = sorted(found, key=lambda name: -mean(found[name], TRAINED))
    speed, staleness, table = figure.subplots(1, 3, width_ratios=(2.2, 1.3, 2.9))
    for color, rows in ((ORANGE, [names.index(OURS)]), (BLUE, [i for i, name in enumerate(names) if name != OURS])):
        own = [found[names[row]] for row in rows]
        means = [mean(arm, "staleness_mean") for arm in own]
        longer = [[0.0] * len(rows), [mean(arm, "staleness_max") - low for arm, low in zip(own, means, strict=True)]]
        widths = [arm["figures"][TRAINED]["half_width"] or 0.0 for arm in own]
        speed.errorbar([mean(arm, TRAINED) for arm in own], rows, xerr=widths, color=color, marker="o", ls="")
        staleness.errorbar(means, rows, xerr=longer, color=color, marker="o", ls="", capsize=2)
    bound = mean(found[OURS], "bound_trained_turns_per_minute")
    speed.axvline(bound, color=GRAY, linestyle=":")
    speed.annotate("bound", (bound, len(names) - 1), (-3, 0), textcoords="offset points", ha="right", va="center")
    for axes in (speed, staleness, table):
        rows_axis(axes, names if axes is speed else [""] * len(names))
    speed.set_xlim(left=0.0)
    label_axes(speed, "osworld: throughput", "trained turns per minute", zero=False)
    label_axes(staleness, "osworld: staleness", "versions: mean, largest", zero=False)
    by_workload = grouped(every, "workload")
    table.grid(visible=False)
    table.set_xlim(-0.5, len(by_workload) - 0.5)
    table.set_xticks(range(len(by_workload)), list(by_workload), rotation=25)
    label_axes(table, "all workloads: trained turns per minute", "shade: share of the best in the column", zero=False)
    for column, arms in enumerate(by_workload.values()):
        turns = {arm["scheduler"]: mean(arm, TRAINED) for arm in arms}
        most = max(turns.values())
        for row, name in enumerate(names):
            table.text(column, row, f"{turns[name]:.0f}", ha="center", va="center")
        for low, opacity in SHADES:
            cells = [
                (column - 0.5, row - 0.5, 1.0, 1.0)
                for row, name in enumerate(names)
                if low <= turns[name] / most < low + 0.1
            ]
            boxes(table, cells, BLUE, alpha=opacity)


def idea_rows(recorded: Figures) -> Rows:
    """Return what changes if one idea of our preset is removed or changed."""
    keys = (TRAINED, "generated_turns_per_minute", "gpu_utilization")
    columns = {"workload": "`{workload}`", "change": "{idea}", "trained turns": "{trained_turns_per_minute:+z.0%}"}
    columns |= {"generated turns": "{generated_turns_per_minute:+z.0%}", "rollout GPUs busy": "{gpu_utilization:+z.0%}"}
    found = []
    for base, *others in grouped(select(recorded["arms"], family="ideas"), "workload").values():  # all ideas first
        found += [{**arm, **{key: mean(arm, key) / mean(base, key) - 1.0 for key in keys}} for arm in others]
    return rows_of(columns, found)


STUDY = arm_study(
    "schedulers",
    tables={"schedulers-best": best_rows, "schedulers-starved": starved_rows, "schedulers-ideas": idea_rows},
    pictures={
        "schedulers-ladder": StudyPicture(
            "Trained turns per minute and staleness of 25 schedulers: dartsim trains the most turns on osworld", ladder
        ),
    },
    run=run_scheduler,
    more=starved,
)

if __name__ == "__main__":
    STUDY.run()
