"""The tables of docs/schedulers.md, from the figures of ``experiments.schedulers``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments.study import Rows, rows_of, short_commit

COLUMNS: Mapping[str, str] = {
    "trained/min": "{trained_turns_per_minute:.1f}",
    "bound": "{bound_trained_turns_per_minute:.1f}",
    "generated/min": "{generated_turns_per_minute:.1f}",
    "desktops, %": "{env_utilization:.0p}",
    "GPUs, %": "{gpu_utilization:.0p}",
    "prefix hits, %": "{prefix_hit_share:.0p}",
    "hits at most, %": "{bound_prefix_hit_share:.0p}",
    "lost by moving, %": "{prefix_lost_moved_share:.0p}",
    "staleness": "{staleness_mean:.2f}",
    "stalest": "{staleness_max:.0f}",
    "not trained, %": "{wasted_share:.0p}",
    "long tasks": "{long_tasks_ratio:.2f}",
    "hard, % of offered": "{hard_share_offered:.0p}",
    "hard, % of usable": "{hard_share_usable:.0p}",
    "hard, % of trained": "{hard_share_trained:.0p}",
    "desktop h/1000": "{desktop_hours_per_1000_turns:.1f}",
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

WINDOW_COLUMNS = ("prefix hits, %", "hits at most, %", "lost by moving, %", "generated/min")


def best_rows(recorded: Mapping[str, Any]) -> Rows:
    """Ours, whole and as a scheduler alone, against the best other scheduler and the bound, on every workload."""
    columns = {
        "": "`{workload}`",
        "ours": "{ours[trained_turns_per_minute]:.1f}",
        "alone": "{alone[trained_turns_per_minute]:.1f}",
        "best other": "{other[trained_turns_per_minute]:.1f} (`{best_other}`, stalest {other[staleness_max]:.0f})",
        "ratio": "{ours_over_best_other:.2f}x",
        "ratio, alone": "{alone_over_best_other:.2f}x",
        "alone, by signal": "{alone_over_best_other_by_signal:.2f}x",
        "of the bound": "{ours_over_bound:.0%}",
        "desktops, %": "{ours[env_utilization]:.0p}",
        "staleness": "{ours[staleness_mean]:.2f}",
        "stalest": "{ours[staleness_max]:.0f}",
        **LEAST_COLUMNS,
    }
    entries = []
    for workload, found in recorded["workloads"].items():
        own, other = (found["schedulers"][name] for name in ("dartsim", found["best_other"]))
        figures = {"ours": own["figures"], "other": other["figures"], "alone": found["alone"]["figures"]}
        entries.append({**found, "workload": workload, **figures, **least_trained(own)})
    return rows_of(columns, entries)


def limit_rows(recorded: Mapping[str, Any]) -> Rows:
    """Ours against what no scheduler can pass, against the closed form with queues, and with no queue at engines."""
    columns = {
        "": "`{workload}`",
        "ours": "{own[figures][trained_turns_per_minute]:.1f}",
        "bound": "{own[figures][bound_trained_turns_per_minute]:.1f}",
        "of the bound": "{ours_over_bound:.0%}",
        "with queues": "{own[predicted_turns_per_minute]:.1f}",
        "of it": "{ours_over_predicted:.0%}",
        "an engine a desktop: of the bound": "{unqueued[over_bound]:.0%}",
    }
    return rows_of(
        columns,
        (
            {**found, "workload": workload, "own": found["schedulers"]["dartsim"]}
            for workload, found in recorded["workloads"].items()
        ),
    )


LEAST = ("length", "difficulty")
"""Classifications of tasks that the workloads have."""
LEAST_COLUMNS = {f"least by {by}": f"{{{by}[class]}} {{{by}[ratio]:.2f}}{{{by}[starved]}}" for by in LEAST}


def least_trained(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return the class that is trained least, by length and by difficulty, for ``LEAST_COLUMNS``."""
    return {by: {**own, "starved": ", starved" * own["starved"]} for by, own in found["least_classes"].items()}


def starved_rows(recorded: Mapping[str, Any]) -> Rows:
    """Who starves which class of tasks, on every workload; ours is listed even if it starves none."""
    columns = {
        "": "`{workload}`",
        "scheduler": "`{name}`",
        "starved": "{what}",
        "trained, of all tasks'": "{ratio:.2f} ({low:.2f} to {high:.2f})",
        "trained of usable": "{trained_share:.0%}",
        "usable of offered": "{kept_share:.0%}",
        "groups": "{groups}",
    }
    entries = []
    for workload, found in recorded["workloads"].items():
        for name, own in found["schedulers"].items():
            shares = [{"what": f"{share['class']} ({share['by']})", **share} for share in own["starved_classes"]]
            if name == "dartsim" and not shares:
                shares = [{"what": "none"}]
            entries += [{"workload": workload, "name": name, **share} for share in shares]
    return rows_of(columns, entries)


def bound_rows(recorded: Mapping[str, Any]) -> Rows:
    """Ours as a scheduler alone, at staleness bounds, against the best other that kept to the bound."""
    columns = {
        "": "`{workload}`",
        "bound": "{bound}",
        "ours, alone": "{ours[figures][trained_turns_per_minute]:.1f}",
        "best other within it": "{other[figures][trained_turns_per_minute]:.1f} (`{best_other}`)",
        "ratio": "{ours_over_best_other:.2f}x",
        "staleness": "{ours[figures][staleness_mean]:.2f}",
        "the other's": "{other[figures][staleness_mean]:.2f}",
    }
    return rows_of(
        columns,
        (
            {**row, "workload": workload, "other": found["schedulers"].get(row["best_other"])}
            for workload, found in recorded["workloads"].items()
            for row in found["at_bounds"]
        ),
    )


def trained_rows(recorded: Mapping[str, Any]) -> Rows:
    """Trained turns a minute: a row a scheduler, a column a workload."""
    workloads = recorded["workloads"]
    columns = {"": "`{name}`"} | {f"`{name}`": f"{{{name}[trained_turns_per_minute]:.1f}}" for name in workloads}
    return rows_of(
        columns,
        (
            {"name": name, **{key: found["schedulers"][name]["figures"] for key, found in workloads.items()}}
            for name in next(iter(workloads.values()))["schedulers"]
        ),
    )


def workload_rows(recorded: Mapping[str, Any], workload: str) -> Rows:
    """All schedulers on one workload."""
    columns = {f"`{workload}`": "`{name}`", **{column: COLUMNS[column] for column in WORKLOAD_COLUMNS}}
    schedulers = recorded["workloads"].get(workload, {"schedulers": {}})["schedulers"]
    return rows_of(columns, ({"name": name, **own["figures"]} for name, own in schedulers.items()))


def idea_rows(recorded: Mapping[str, Any]) -> Rows:
    """Ours with one idea taken out: trained turns against all ideas, and what else changes."""
    trained = "trained_turns_per_minute"
    whole = {row["workload"]: row["figures"] for row in recorded["ideas"] if row["idea"] == "all ideas"}
    columns = {
        "": "`{workload}`: {idea}",
        "trained": "{change:+.0%}",
        **{column: COLUMNS[column] for column in IDEA_COLUMNS},
        **LEAST_COLUMNS,
    }
    entries = []
    for row in recorded["ideas"]:
        change = row["figures"][trained]["mean"] / whole[row["workload"]][trained]["mean"] - 1.0
        entries.append({**row, **row["figures"], "change": change, **least_trained(row)})
    return rows_of(columns, entries)


def window_rows(recorded: Mapping[str, Any]) -> Rows:
    """Screenshots dropped one by one against in blocks, by desktops an engine."""
    windows = {"one by one": "slide", "in blocks": "block"}
    columns = {"desktops an engine": "{desktops:g}", "sessions stay": "{stay}"}
    for column in WINDOW_COLUMNS:
        columns |= {
            f"{column}: {words}": COLUMNS[column].replace("{", f"{{{name}[").replace(":", "]:")
            for words, name in windows.items()
        }
    columns |= {"gain": "{gain:+.0%}", "gain, planned": "{planned:+.0%}"}
    found = {
        (row["desktops_per_worker"], row["max_excess"], row["window"]): row["figures"] for row in recorded["windows"]
    }
    entries = []
    for desktops, excess in dict.fromkeys((desktops, excess) for desktops, excess, _ in found):
        figures = {name: found[desktops, excess, name] for name in windows.values()}
        slide, block = (figures[name]["generated_turns_per_minute"]["mean"] for name in ("slide", "block"))
        stay = f"{excess} more" if excess < desktops else "always"
        planned = PREDICTED_GAINS.get(desktops)
        entries.append({"desktops": desktops, "stay": stay, **figures, "gain": block / slide - 1.0, "planned": planned})
    return rows_of(columns, entries)


def provenance(recorded: Mapping[str, Any]) -> str:
    """Return where the figures of the schedulers were recorded, as a line of Markdown."""
    hours = ", ".join(f"`{name}` {value:g}" for name, value in recorded["config"]["hours"].items())
    return (
        f"Recorded with seeds {', '.join(map(str, recorded['seeds']))} at commit {short_commit(recorded)}; "
        f"simulated hours: {hours}. ± is half the 95 % confidence interval over seeds.\n"
    )
