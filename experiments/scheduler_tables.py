"""The tables of docs/schedulers.md, from the recorded figures of ``experiments.schedulers``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

COLUMNS: Mapping[str, tuple[str, float, str]] = {
    "trained/min": ("trained_turns_per_minute", 1.0, ".1f"),
    "generated/min": ("generated_turns_per_minute", 1.0, ".1f"),
    "desktops, %": ("env_utilization", 100.0, ".0f"),
    "GPUs, %": ("gpu_utilization", 100.0, ".0f"),
    "staleness": ("staleness_mean", 1.0, ".2f"),
    "most": ("staleness_max", 1.0, ".0f"),
    "not trained, %": ("wasted_share", 100.0, ".0f"),
    "long tasks": ("long_tasks_ratio", 1.0, ".2f"),
    "hard, % of offered": ("hard_share_offered", 100.0, ".0f"),
    "hard, % of trained": ("hard_share_trained", 100.0, ".0f"),
    "desktop h/1000": ("desktop_hours_per_1000_turns", 1.0, ".1f"),
}

WORKLOAD_COLUMNS = tuple(column for column in COLUMNS if not column.startswith("hard"))
IDEA_COLUMNS = (
    "trained/min",
    "generated/min",
    "staleness",
    "not trained, %",
    "GPUs, %",
    "hard, % of offered",
    "hard, % of trained",
)

Rows = tuple[Sequence[str], list[list[str]]]


def cell(figures: Mapping[str, Any], column: str) -> str:
    """Return a mean with half its 95 % confidence interval, if there is one."""
    name, scale, form = COLUMNS[column]
    found = figures.get(name)
    if found is None or found["mean"] is None:
        return "–"
    width = found["half_width"]
    text = format(scale * found["mean"], form)
    return text if width is None else f"{text} ±{format(scale * width, form)}"


def ratio(value: float | None) -> str:
    """Return how many times the other one it is; a dash where there is none."""
    return "–" if value is None else f"{value:.2f}x"


def best_rows(recorded: Mapping[str, Any]) -> Rows:
    """Ours, whole and as a scheduler alone, against the best other scheduler and the bound, on every workload."""
    rows = []
    for workload, found in recorded["workloads"].items():
        ours = found["schedulers"]["dartsim"]["figures"]
        other = found["schedulers"][found["best_other"]]["figures"]
        alone, share = found.get("alone", {"figures": {}})["figures"], found["ours_over_bound"]
        rows.append(
            [
                f"`{workload}`",
                cell(ours, "trained/min"),
                cell(alone, "trained/min"),
                f"{cell(other, 'trained/min')} (`{found['best_other']}`, stalest {cell(other, 'most')})",
                ratio(found["ours_over_best_other"]),
                ratio(found.get("alone_over_best_other")),
                "–" if share is None else f"{share:.0%}",
                *(cell(ours, column) for column in ("desktops, %", "staleness", "most")),
                band(ours),
            ]
        )
    head = ["", "ours", "alone", "best other", "ratio", "ratio, alone", "of the bound"]
    return [*head, "desktops, %", "staleness", "most", "by length"], rows


def band(figures: Mapping[str, Any]) -> str:
    """Return the least and the greatest trained over offered of any third of tasks by length."""
    ends = [figures.get(name) for name in ("least_by_length", "greatest_by_length")]
    return "–".join("?" if end is None else f"{end['mean']:.2f}" for end in ends)


def bound_rows(recorded: Mapping[str, Any]) -> Rows:
    """Ours as a scheduler alone, at staleness bounds, against the best other that kept to the bound."""
    rows = []
    for workload, found in recorded["workloads"].items():
        for row in found.get("at_bounds", ()):
            name, ours = row["best_other"], row["ours"]["figures"]
            other = "–" if name is None else cell(found["schedulers"][name]["figures"], "trained/min")
            staleness = "–" if name is None else cell(found["schedulers"][name]["figures"], "staleness")
            rows.append(
                [
                    f"`{workload}`",
                    str(row["bound"]),
                    cell(ours, "trained/min"),
                    other if name is None else f"{other} (`{name}`)",
                    ratio(row["ours_over_best_other"]),
                    cell(ours, "staleness"),
                    staleness,
                ]
            )
    return ["", "bound", "ours, alone", "best other within it", "ratio", "staleness", "the other's"], rows


def trained_rows(recorded: Mapping[str, Any]) -> Rows:
    """Trained turns a minute: a row a scheduler, a column a workload."""
    workloads = recorded["workloads"]
    names = next(iter(workloads.values()))["schedulers"]
    rows = [
        [f"`{name}`", *(cell(found["schedulers"][name]["figures"], "trained/min") for found in workloads.values())]
        for name in names
    ]
    return ["", *(f"`{name}`" for name in workloads)], rows


def workload_rows(recorded: Mapping[str, Any], workload: str) -> Rows:
    """All schedulers on one workload."""
    found = recorded["workloads"][workload]["schedulers"]
    rows = [
        [f"`{name}`", *(cell(own["figures"], column) for column in WORKLOAD_COLUMNS)] for name, own in found.items()
    ]
    return [f"`{workload}`", *WORKLOAD_COLUMNS], rows


def verl_rows(recorded: Mapping[str, Any]) -> Rows:
    """The table of verl: the two rows that were fitted, with the published step, and the predicted ones."""
    names = ("step_seconds", "gen_wait_seconds", "update_seconds", "hours_100_steps", "hours_400_steps")
    rows = []
    for found in (*recorded["fitted_rows"], recorded, *recorded["predicted_rows"]):
        row = found["row"]
        trainer, rollout = row["train_gpus"], row["rollout_gpus"]
        split = f"{trainer} : {rollout}" if trainer else f"{rollout} for both"
        published = found.get("published_step_seconds")
        cells = [split, f"{row['theta']:g}", str(row["require_batches"]), "yes" if row["partial"] else "no"]
        figures = (f"{found[name]:.1f}" for name in names)
        rows.append([*cells, "–" if published is None else f"{published:.1f} (fitted)", *figures])
    head = ["trainer : rollout GPUs", "theta", "mini-batches an update", "partial", "step, published, s"]
    return [*head, "step, s", "generation wait, s", "update, s", "100 steps, h", "400 steps, h"], rows


def verl_provenance(recorded: Mapping[str, Any]) -> str:
    """Return what was fitted, and where the figures were recorded, as a line of Markdown."""
    fit = recorded["fit"]
    return (
        f"Fitted: {fit['longest_seconds']:.0f} s for the longest reply alone, {fit['beside_seconds']:.2f} s for each "
        f"other one beside it. Recorded with {len(recorded['seeds'])} seeds at commit "
        f"`{(recorded['commit']['id'] or 'none')[:12]}`.\n"
    )


def idea_rows(recorded: Mapping[str, Any]) -> Rows:
    """Ours with one idea taken out: trained turns against all ideas, and what else changes."""
    whole = {row["workload"]: row for row in recorded["ideas"] if row["idea"] == "all ideas"}
    rows = []
    for row in recorded["ideas"]:
        base = whole[row["workload"]]["figures"]["trained_turns_per_minute"]["mean"]
        change = row["figures"]["trained_turns_per_minute"]["mean"] / base - 1.0
        cells = [cell(row["figures"], column) for column in IDEA_COLUMNS]
        rows.append([f"`{row['workload']}`: {row['idea']}", f"{change:+.0%}", *cells, band(row["figures"])])
    return ["", "trained", *IDEA_COLUMNS, "by length"], rows
