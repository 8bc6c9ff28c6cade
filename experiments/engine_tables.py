"""Tables of docs/inference.md and docs/cluster.md: what calls cost, on the way to engines and through Ray."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from experiments.common import Figures
from experiments.markdown import from_record, short_commit, table

RAY_CALLS = {
    "step_112px": "step of the mock desktop, 112 px (38 KB)",
    "step_448px": "the same, 448 px (0.6 MB)",
    "generate_112px": "request to the tiny model",
}


def router(figures: Figures) -> str:
    """The way of a turn by client and turns at once, and where it misses what is aimed at."""
    names = {"ours": "ours", "httpx": "`httpx`", "pooled": "64 `httpx`", "openai": "openai"}
    there = [name for name in names if f"{name}_cpu_ms" in figures["rows"][0]]
    seconds = figures["reply_seconds"]
    rows = [
        [
            f"{row['live']:,}",
            *("–" if row[f"{name}_cpu_ms"] is None else f"{row[f'{name}_cpu_ms']:.2f}" for name in there),
            f"{row['overhead_ms']:+.2f}",
            f"{row['kept_at_once']:.2f}x",
            f"{row['kept']:.2f}x",
            f"{row['ours_throughput_share']:.0%}",
        ]
        for row in figures["rows"]
    ]
    clients = [f"{names[name]}, CPU ms" for name in there]
    head = ["turns", *clients, "over a bare loop, ms", "kept at once", f"kept, {seconds:g} s", "share"]
    missed = [f"{one['figure']} = {one['value']:g} at {one['live']:,} turns" for one in figures["not_met"]]
    about = (
        f"Not met: {', '.join(missed) or 'nowhere'}. Recorded at commit {short_commit(figures)}, "
        f"{len(figures['seeds'])} rounds, load {figures['load_average']:.1f}.\n"
    )
    return table(head, rows) + "\n" + about


def sync_cost(figures: Figures) -> str:
    """What a change of weights costs by engine and mode."""
    engines = {"standin": "stand-in", "vllm": "vLLM"}
    modes = {
        "rolling_keep": "one at a time, `keep`",
        "global_pause": "all at once, `keep`",
        "restart": "`restart`, as DART released it",
    }
    seconds = ("away_seconds_per_change", "stopped_seconds_per_publication", "turn_seconds_longest")
    rows = [
        [
            f"{engines[engine]}, {modes[mode]}",
            *(f"{row[name]:.2f}" for name in seconds),
            str(row["killed_requests"]),
            str(row["failed_requests"]),
            str(row["lost_requests"]),
            f"{row['turns']:,}",
        ]
        for engine, found in figures["engines"].items()
        for mode, row in found.items()
    ]
    config = figures["config"]
    head = ["", "an engine is away, s a change", "no engine serves, s a publication", "longest turn, s"]
    head += ["killed", "failed", "lost", "turns"]
    about = (
        f"{config['num_engines']} engines, {config['num_desktops']} desktops; the stand-in starts in "
        f"{config['standin_start_seconds']:g} s. {'vLLM was not measured. ' if figures['missing'] else ''}"
        f"Recorded at commit {short_commit(figures)}, load {figures['load_average']:.1f}.\n"
    )
    return table(head, rows) + "\n" + about


def ray_overhead(figures: Figures) -> str:
    """Milliseconds a call in one process and through Ray."""
    rows = []
    for call, name in RAY_CALLS.items():
        for at_once, row in figures[call].items():
            cells = (row["inline_ms"], row["ray_ms"], row["added_ms"])
            rows.append([name, at_once, *(f"{cell:.2f}" for cell in cells), f"{row['ratio']:.1f}"])
    return table(["", "at once", "in process, ms", "on Ray, ms", "added, ms", "ratio"], rows)


TABLES: Mapping[str, Callable[[], str]] = {
    "router": from_record("router", router),
    "sync-cost": from_record("sync_cost", sync_cost),
    "ray-overhead": from_record("ray_overhead", ray_overhead),
}
"""The tables, by their names on the pages."""
