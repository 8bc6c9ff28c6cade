"""The tables of docs/schedulers.md, from the figures of ``experiments.schedulers``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments.study import Rows, mean_cell, short_commit

COLUMNS: Mapping[str, tuple[str, float, str]] = {
    "trained/min": ("trained_turns_per_minute", 1.0, ".1f"),
    "bound": ("bound_trained_turns_per_minute", 1.0, ".1f"),
    "generated/min": ("generated_turns_per_minute", 1.0, ".1f"),
    "desktops, %": ("env_utilization", 100.0, ".0f"),
    "GPUs, %": ("gpu_utilization", 100.0, ".0f"),
    "prefix hits, %": ("prefix_hit_share", 100.0, ".0f"),
    "hits at most, %": ("bound_prefix_hit_share", 100.0, ".0f"),
    "lost by moving, %": ("prefix_lost_moved_share", 100.0, ".0f"),
    "staleness": ("staleness_mean", 1.0, ".2f"),
    "most": ("staleness_max", 1.0, ".0f"),
    "not trained, %": ("wasted_share", 100.0, ".0f"),
    "long tasks": ("long_tasks_ratio", 1.0, ".2f"),
    "hard, % of offered": ("hard_share_offered", 100.0, ".0f"),
    "hard, % of usable": ("hard_share_usable", 100.0, ".0f"),
    "hard, % of trained": ("hard_share_trained", 100.0, ".0f"),
    "desktop h/1000": ("desktop_hours_per_1000_turns", 1.0, ".1f"),
}

WORKLOAD_COLUMNS = tuple(column for column in COLUMNS if not column.startswith(("hard", "hits", "lost", "bound")))
IDEA_COLUMNS = (
    "trained/min",
    "generated/min",
    "staleness",
    "not trained, %",
    "GPUs, %",
    "prefix hits, %",
    "hard, % of offered",
    "hard, % of usable",
    "hard, % of trained",
)

PREDICTED_GAINS: Mapping[float, float] = {8: 1.16 / 1.05 - 1, 16: 2.17 / 1.67 - 1, 32: 3.53 / 2.13 - 1}
"""By desktops an engine, turns gained by dropping screenshots in blocks, as planned: see docs/schedulers.md."""

LEAST = ("length", "difficulty")
"""Classifications of tasks that the workloads have."""
WINDOW_COLUMNS = ("prefix hits, %", "hits at most, %", "lost by moving, %", "generated/min")
LEAST_COLUMNS = tuple(f"least by {by}" for by in LEAST)


def cell(figures: Mapping[str, Any], column: str) -> str:
    """Return a mean with half its 95 % confidence interval, if there is one."""
    name, scale, form = COLUMNS[column]
    return mean_cell(figures.get(name), scale, form)


def ratio(value: float | None) -> str:
    """Return how many times the other one it is; a dash where there is none."""
    return "–" if value is None else f"{value:.2f}x"


def best_rows(recorded: Mapping[str, Any]) -> Rows:
    """Ours, whole and as a scheduler alone, against the best other scheduler and the bound, on every workload."""
    rows = []
    for workload, found in recorded["workloads"].items():
        ours = found["schedulers"]["dartsim"]["figures"]
        other = found["schedulers"][found["best_other"]]["figures"]
        alone = found.get("alone", {"figures": {}})["figures"]
        rows.append(
            [
                f"`{workload}`",
                cell(ours, "trained/min"),
                cell(alone, "trained/min"),
                f"{cell(other, 'trained/min')} (`{found['best_other']}`, stalest {cell(other, 'most')})",
                ratio(found["ours_over_best_other"]),
                ratio(found.get("alone_over_best_other")),
                ratio(found.get("alone_over_best_other_by_signal")),
                percent(found["ours_over_bound"]),
                *(cell(ours, column) for column in ("desktops, %", "staleness", "most")),
                *least_cells(found["schedulers"]["dartsim"]),
            ]
        )
    head = ["", "ours", "alone", "best other", "ratio", "ratio, alone", "alone, by signal", "of the bound"]
    return [*head, "desktops, %", "staleness", "most", *LEAST_COLUMNS], rows


def limit_rows(recorded: Mapping[str, Any]) -> Rows:
    """Ours against what no scheduler can pass, against the closed form with queues, and with no queue at engines."""
    rows = []
    for workload, found in recorded["workloads"].items():
        ours, unqueued = found["schedulers"]["dartsim"], found.get("unqueued") or {}
        predicted = ours.get("predicted_turns_per_minute")
        rows.append(
            [
                f"`{workload}`",
                cell(ours["figures"], "trained/min"),
                cell(ours["figures"], "bound"),
                percent(found["ours_over_bound"]),
                "–" if predicted is None else f"{predicted:.1f}",
                percent(found.get("ours_over_predicted")),
                percent(unqueued.get("over_bound")),
            ]
        )
    return ["", "ours", "bound", "of it", "with queues", "of it", "an engine a desktop: of the bound"], rows


def percent(share: float | None) -> str:
    """Return a share as per cent; a dash where there is none."""
    return "–" if share is None else f"{share:.0%}"


def least_cells(found: Mapping[str, Any]) -> list[str]:
    """Return the class that is trained least, of lengths and of difficulties; dashes of a recording without them."""
    classes = found.get("least_classes", {})
    return [
        f"{classes[by]['class']} {classes[by]['ratio']:.2f}{', starved' * classes[by]['starved']}"
        if by in classes
        else "–"
        for by in LEAST
    ]


def starved_rows(recorded: Mapping[str, Any]) -> Rows:
    """Who starves which class of tasks, on every workload; ours is named if it starves none, or if nobody knows."""
    rows: list[list[str]] = []
    for workload, found in recorded["workloads"].items():
        for name, own in found["schedulers"].items():
            starved = own.get("starved_classes")
            if name == "dartsim" and not starved:
                rows.append([f"`{workload}`", f"`{name}`", "–" if starved is None else "none", *["–"] * 4])
            rows.extend(
                [
                    f"`{workload}`",
                    f"`{name}`",
                    f"{share['class']} ({share['by']})",
                    f"{share['ratio']:.2f} ({share['low']:.2f} to {share['high']:.2f})",
                    f"{share['trained_share']:.0%}",
                    f"{share['kept_share']:.0%}",
                    str(share["groups"]),
                ]
                for share in starved or ()
            )
    return ["", "", "starved", "trained, of all tasks'", "trained of usable", "usable of offered", "groups"], rows


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
    found = recorded["workloads"].get(workload, {"schedulers": {}})["schedulers"]
    rows = [
        [f"`{name}`", *(cell(own["figures"], column) for column in WORKLOAD_COLUMNS)] for name, own in found.items()
    ]
    return [f"`{workload}`", *WORKLOAD_COLUMNS], rows


def idea_rows(recorded: Mapping[str, Any]) -> Rows:
    """Ours with one idea taken out: trained turns against all ideas, and what else changes."""
    whole = {row["workload"]: row for row in recorded["ideas"] if row["idea"] == "all ideas"}
    rows = []
    for row in recorded["ideas"]:
        base = whole[row["workload"]]["figures"]["trained_turns_per_minute"]["mean"]
        change = row["figures"]["trained_turns_per_minute"]["mean"] / base - 1.0
        cells = [cell(row["figures"], column) for column in IDEA_COLUMNS]
        rows.append([f"`{row['workload']}`: {row['idea']}", f"{change:+.0%}", *cells, *least_cells(row)])
    return ["", "trained", *IDEA_COLUMNS, *LEAST_COLUMNS], rows


def window_rows(recorded: Mapping[str, Any]) -> Rows:
    """Screenshots dropped one by one against in blocks, by desktops an engine; dashes of an older recording."""
    found = {(row["desktops_per_worker"], row["max_excess"], row["window"]): row for row in recorded.get("windows", ())}
    rows = []
    for desktops, excess in dict.fromkeys((desktops, excess) for desktops, excess, _ in found):
        slide, block = (found[desktops, excess, window]["figures"] for window in ("slide", "block"))
        base, turns = (figures["generated_turns_per_minute"]["mean"] for figures in (slide, block))
        planned = PREDICTED_GAINS.get(desktops)
        rows.append(
            [
                f"{desktops:g}",
                f"{excess} more" if excess < desktops else "always",
                *(cell(figures, column) for column in WINDOW_COLUMNS for figures in (slide, block)),
                f"{turns / base - 1.0:+.0%}",
                "–" if planned is None else f"{planned:+.0%}",
            ]
        )
    head = [f"{column}{way}" for column in WINDOW_COLUMNS for way in (": one by one", ": in blocks")]
    head = ["desktops an engine", "sessions stay", *head, "gain", "gain, planned"]
    return head, rows or [["–"] * len(head)]


def provenance(recorded: Mapping[str, Any]) -> str:
    """Return where the figures of the schedulers were recorded, as a line of Markdown."""
    hours = ", ".join(f"`{name}` {value:g}" for name, value in recorded["config"]["hours"].items())
    return (
        f"Recorded with seeds {', '.join(map(str, recorded['seeds']))} at commit {short_commit(recorded)}; "
        f"simulated hours: {hours}. ± is half the 95 % confidence interval over seeds.\n"
    )
