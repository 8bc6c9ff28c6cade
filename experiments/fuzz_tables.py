"""Tables of docs/fuzzing.md from the recorded figures of ``experiments.fuzz_power``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from statistics import median
from typing import Any

from experiments.markdown import Rows, from_record, short_commit, table_from_record


def bug_rows(figures: dict[str, Any]) -> Rows:
    """Return the planted bugs: under how many seeds each was found, by what, and what it took."""
    rows = [
        [
            bug["bug"],
            bug["text"],
            f"{bug['found']} of {len(bug['runs'])}",
            ", ".join(bug["rules"]),
            f"{median(bug['runs']):g}",
            f"{median(bug['cpu_seconds']):.2f}",
        ]
        for bug in figures["bugs"]
    ]
    return ["planted bug", "what is wrong", "found", "by", "runs", "CPU s"], rows


def preset_rows(figures: dict[str, Any]) -> Rows:
    """Return what was searched of every preset: drawn cases, and hours of hostile operation."""
    long = {one["preset"]: one for one in figures["operation"]}
    rows = []
    for one in figures["presets"]:
        hours = long.get(one["preset"])
        wrong = one["violations"] + (hours["violations"] if hours else 0)
        worked = ["–", "–"] if hours is None else [f"{hours['hours']:,.0f}", f"{hours['cpu_seconds']:.1f}"]
        rows.append([f"`{one['preset']}`", str(one["runs"]), f"{one['hours']:.1f}", *worked, str(wrong)])
    return ["preset", "drawn runs", "their hours", "hostile hours", "CPU s of them", "violations"], rows


def provenance(figures: dict[str, Any]) -> str:
    """Return what was searched in all, how fast, and where."""
    speed = figures["speed"]
    return (
        f"{figures['planted_found']} of {figures['planted_total']} planted bugs were found under every seed. "
        f"{figures['seeds_searched']:,} runs, {figures['simulated_hours']:,.0f} cluster-hours, "
        f"{figures['violations']} violations; an hour of hostile operation takes "
        f"{figures['cpu_seconds_per_cluster_hour']:.3f} CPU seconds. Drawn cases: {speed['runs_per_cpu_second']:.0f} "
        f"a CPU second, {speed['runs_per_minute']:.0f} a minute on {speed['processes']:.0f} cores, "
        f"{speed['faults_injected']:,.0f} faults injected. `python -m experiments.fuzz_power`, commit "
        f"{short_commit(figures)}.\n"
    )


TABLES: Mapping[str, Callable[[], str]] = {
    "fuzz-bugs": table_from_record("fuzz_power", bug_rows),
    "fuzz-presets": table_from_record("fuzz_power", preset_rows),
    "fuzz-provenance": from_record("fuzz_power", provenance),
}
"""The tables, by their names on the page."""
