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
    "desktop h/1000": ("desktop_hours_per_1000_turns", 1.0, ".1f"),
}

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


def best_rows(recorded: Mapping[str, Any]) -> Rows:
    """Ours against the best other scheduler and the bound, on every workload."""
    rows = []
    for workload, found in recorded["workloads"].items():
        ours = found["schedulers"]["dartsim"]["figures"]
        other = found["schedulers"][found["best_other"]]["figures"]
        share = found["ours_over_bound"]
        rows.append(
            [
                f"`{workload}`",
                cell(ours, "trained/min"),
                f"{cell(other, 'trained/min')} (`{found['best_other']}`)",
                f"{found['ours_over_best_other']:.2f}x",
                "–" if share is None else f"{share:.0%}",
                *(cell(ours, column) for column in ("desktops, %", "staleness", "most", "long tasks")),
            ]
        )
    head = ["", "ours", "best other", "ratio", "of the bound", "desktops, %", "staleness", "most", "long tasks"]
    return head, rows


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
    rows = [[f"`{name}`", *(cell(own["figures"], column) for column in COLUMNS)] for name, own in found.items()]
    return [f"`{workload}`", *COLUMNS], rows


def idea_rows(recorded: Mapping[str, Any]) -> Rows:
    """Ours with one idea taken out: trained turns against all ideas, and what else changes."""
    whole = {row["workload"]: row for row in recorded["ideas"] if row["idea"] == "all ideas"}
    rows = []
    for row in recorded["ideas"]:
        base = whole[row["workload"]]["figures"]["trained_turns_per_minute"]["mean"]
        ratio = row["figures"]["trained_turns_per_minute"]["mean"] / base
        shown = ("trained/min", "generated/min", "staleness", "not trained, %", "GPUs, %")
        cells = [cell(row["figures"], column) for column in shown]
        rows.append([f"`{row['workload']}`: {row['idea']}", f"{ratio - 1.0:+.0%}", *cells])
    return ["", "trained", "trained/min", "generated/min", "staleness", "not trained, %", "GPUs, %"], rows
