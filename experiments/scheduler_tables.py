"""The tables of docs/schedulers.md, from the figures of ``experiments.schedulers``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments.study import HALF_INTERVAL, Rows, recorded_line, rows_of

PREDICTED_GAINS: Mapping[float, float] = {8: 1.16 / 1.05 - 1, 16: 2.17 / 1.67 - 1, 32: 3.53 / 2.13 - 1}
"""By desktops per engine, turns that dropping screenshots in blocks was predicted to gain, before any run."""


def best_rows(recorded: Mapping[str, Any]) -> Rows:
    """Ours against the best other scheduler, the bound and the closed form with queues, on every workload."""
    columns = {
        "workload": "`{workload}`",
        "`dartsim`": "{ours[trained_turns_per_minute]:.1f}",
        "best other": "{other[trained_turns_per_minute]:.1f} (`{best_other}`)",
        "ratio": "{ours_over_best_other:.2f}x",
        "scheduling alone": "{alone_over_best_other:.2f}x",
        "of the bound": "{ours_over_bound:.0%}",
        "of the bound with queues": "{ours_over_predicted:.0%}",
        "largest staleness": "{ours[staleness_max]:.0f}, other {other[staleness_max]:.0f}",
        "starved": "{starved}",
    }
    entries = []
    for workload, found in recorded["workloads"].items():
        own, other = (found["schedulers"][name] for name in ("dartsim", found["best_other"]))
        starved = ", ".join(share["class"] for share in own["starved_classes"]) or "none"
        figures = {"ours": own["figures"], "other": other["figures"], "starved": starved}
        entries.append({**found, "workload": workload, **figures})
    return rows_of(columns, entries)


def starved_rows(recorded: Mapping[str, Any]) -> Rows:
    """Which scheduler starves which class of tasks."""
    columns = {
        "workload": "`{workload}`",
        "scheduler": "`{name}`",
        "starved": "{class} (by {by})",
        "trained, relative to all tasks": "{ratio:.2f} ({low:.2f} to {high:.2f})",
        "groups": "{groups}",
    }
    return rows_of(
        columns,
        (
            {"workload": workload, "name": name, **share}
            for workload, found in recorded["workloads"].items()
            for name, own in found["schedulers"].items()
            for share in own["starved_classes"]
        ),
    )


def window_rows(recorded: Mapping[str, Any]) -> Rows:
    """What dropping screenshots in blocks gains, with what was predicted of it."""
    columns = {
        "desktops per engine": "{desktops:g}",
        "a session moves": "{moves}",
        "prefix hits, one by one, %": "{slide[prefix_hit_share]:.0p}",
        "prefix hits, in blocks, %": "{block[prefix_hit_share]:.0p}",
        "at most, %": "{block[bound_prefix_hit_share]:.0p}",
        "generated turns": "{gain:+.0%}",
        "predicted": "{planned:+.0%}",
    }
    found = {
        (row["desktops_per_worker"], row["max_excess"], row["window"]): row["figures"] for row in recorded["windows"]
    }
    entries = []
    for desktops, excess in dict.fromkeys((desktops, excess) for desktops, excess, _ in found):
        figures = {name: found[desktops, excess, name] for name in ("slide", "block")}
        turns = {name: own["generated_turns_per_minute"]["mean"] for name, own in figures.items()}
        entries.append(
            {
                "desktops": desktops,
                "moves": "from 2 more requests" if excess < desktops else "never",
                **figures,
                "gain": turns["block"] / turns["slide"] - 1.0,
                "planned": PREDICTED_GAINS.get(desktops),
            }
        )
    return rows_of(columns, entries)


def provenance(recorded: Mapping[str, Any]) -> str:
    """Return where the figures of the schedulers were recorded."""
    hours = ", ".join(f"`{name}` {value:g}" for name, value in recorded["config"]["hours"].items())
    return recorded_line(dict(recorded), f"simulated hours: {hours}", HALF_INTERVAL)
