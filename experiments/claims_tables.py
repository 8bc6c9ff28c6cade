"""The tables of docs/claims.md, from the figures of ``experiments.claims``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from experiments.claims_verdicts import gain, mean
from experiments.markdown import Rows, from_record, table_from_record

Figures = Mapping[str, Any]

COLUMNS: Mapping[str, tuple[str, float, str]] = {
    "trained/min": ("trained_turns_per_minute", 1.0, ".1f"),
    "generated/min": ("generated_turns_per_minute", 1.0, ".1f"),
    "desktops, %": ("env_utilization", 100.0, ".1f"),
    "GPUs, %": ("gpu_utilization", 100.0, ".1f"),
    "GPUs, attempts run, %": ("gpu_utilization_rollout_phase", 100.0, ".1f"),
    "GPUs, of peak, %": ("gpu_peak_share", 100.0, ".2f"),
    "all GPUs, %": ("all_gpus_utilization", 100.0, ".1f"),
    "hybrid GPUs, %": ("hybrid_gpus_utilization", 100.0, ".1f"),
    "stopped, %": ("stopped_share", 100.0, ".1f"),
    "mean": ("staleness_mean", 1.0, ".2f"),
    "too old, %": ("stale_share", 100.0, ".1f"),
    "not trained, %": ("wasted_share", 100.0, ".0f"),
    "minutes a version": ("minutes_per_version", 1.0, ".1f"),
    "killed/h": ("killed_per_hour", 1.0, ".0f"),
}
"""Columns, by their heads: figure, scale, form."""


def cell(arm: Figures, column: str) -> str:
    """Return a mean with half its 95 % confidence interval, if there is one."""
    name, scale, form = COLUMNS[column]
    found = arm["figures"][name]
    if found["mean"] is None:
        return "–"
    text = format(scale * found["mean"], form)
    width = found["half_width"]
    return text if width is None else f"{text} ±{format(scale * width, form)}"


def verdict_rows(recorded: Figures) -> Rows:
    """Every claim: published, its source, ours, whether they agree."""
    words = {True: "yes", False: "**no**", None: "–"}
    rows = [
        [one["statement"], one["published"], one["source"], one["ours"], words[one["agrees"]]]
        for one in recorded["verdicts"]
    ]
    return ["statement", "published", "source", "here", "agrees"], rows


def table_rows(recorded: Figures) -> Rows:
    """DART's table: the ladder, and DART with one part left out."""
    columns = (
        "trained/min",
        "generated/min",
        "desktops, %",
        "GPUs, %",
        "GPUs, attempts run, %",
        "GPUs, of peak, %",
        "all GPUs, %",
        "hybrid GPUs, %",
        "minutes a version",
    )
    rows = []
    for arm in recorded["claims"]["table"]:
        # One set of GPUs can do both only where training and rollout never overlap.
        shown = [column for column in columns if column != "hybrid GPUs, %" or arm["staleness_max"] == 0]
        rows.append([arm["name"], *(cell(arm, column) if column in shown else "–" for column in columns)])
    return ["", *columns], rows


def definition_rows(recorded: Figures) -> Rows:
    """The ratio of GPU utilization, under each definition."""
    rows = [
        [one["definition"], f"{one['coupled']:.1%}", f"{one['dart']:.1%}", f"{one['ratio']:.2f}x"]
        for one in recorded["gpu_definitions"]
    ]
    return ["definition", "coupled", "DART", "ratio"], [["as published", "29.6%", "46.7%", "1.58x"], *rows]


def interrupt_rows(recorded: Figures) -> Rows:
    """What interruption gains, by length of replies and time between syncs."""
    arms = recorded["claims"]["interrupt"]
    rows = []
    for series, seconds in dict.fromkeys((arm["series"], arm["value"]) for arm in arms):
        own = {arm["name"]: arm for arm in arms if (arm["series"], arm["value"]) == (series, seconds)}
        waited = own["waited for"]
        rows.append(
            [
                f"{series}, {seconds:g} s",
                *(cell(arm, "GPUs, of peak, %") for arm in own.values()),
                *(f"{gain(arms, series, seconds, name):+.0%}" for name in own if name != "waited for"),
                *(f"{60.0 / mean(arm, 'minutes_per_version'):.1f}" for arm in own.values()),
                cell(waited, "stopped, %"),
            ]
        )
    modes = list(dict.fromkeys(arm["name"] for arm in arms))
    head = [
        "",
        *(f"{mode}: tokens, % of peak" for mode in modes),
        *(f"gain, {mode}" for mode in modes[1:]),
        *(f"versions/h, {mode}" for mode in modes),
        "stopped while waited for, %",
    ]
    return head, rows


def staleness_rows(recorded: Figures) -> Rows:
    """Throughput, staleness and dropped work by bound."""
    rows = [
        [
            f"{arm['series']}, bound {arm['name']}",
            *(cell(arm, column) for column in ("trained/min", "generated/min", "mean")),
            str(arm["staleness_max"]),
            distribution(arm["staleness_histogram"]),
            *(cell(arm, column) for column in ("too old, %", "not trained, %")),
        ]
        for arm in recorded["claims"]["staleness"]
    ]
    head = ["", "trained/min", "generated/min", "mean", "most", "share of turns by staleness, %"]
    return [*head, "too old, %", "not trained, %"], rows


def distribution(histogram: Mapping[str, int]) -> str:
    """Return the share of turns at each staleness, in per cent; what rounds to nothing is left out."""
    total = sum(histogram.values())
    shares = {age: 100.0 * number / total for age, number in histogram.items()}
    return ", ".join(f"{age}: {share:.0f}" for age, share in shares.items() if share >= 0.5) or "–"


def sync_rows(recorded: Figures) -> Rows:
    """Rolling against global sync, by reload time."""
    columns = (
        "trained/min",
        "generated/min",
        "desktops, %",
        "GPUs, %",
        "stopped, %",
        "mean",
        "too old, %",
        "killed/h",
    )
    arms = recorded["claims"]["sync"]
    rows = [[f"{arm['series']}, {arm['name']}", *(cell(arm, column) for column in columns)] for arm in arms]
    heads = {"mean": "staleness"}
    return ["", *(heads.get(column, column) for column in columns)], rows


def desktop_rows(recorded: Figures) -> Rows:
    """Turns and utilizations by desktops per rollout GPU, with the closed-form bounds."""
    columns = ("trained/min", "generated/min", "desktops, %", "GPUs, %", "GPUs, of peak, %", "too old, %")
    rows = []
    for arm in recorded["claims"]["desktops"]:
        bounds = [arm["figures"][name]["mean"] for name in ("bound_desktops", "bound_engines")]
        shown = ["–" if bound is None else f"{bound:.0f}" for bound in bounds]
        rows.append([f"{arm['series']}, {arm['name']} a GPU", *(cell(arm, column) for column in columns), *shown])
    return ["", *columns, "desktops alone/min", "engines alone/min"], rows


def knee_rows(recorded: Figures) -> Rows:
    """The closed-form knee."""
    knee = recorded["claims"]["knee"]
    head = ["turns a minute of a desktop", "engine seconds of a turn alone", "knee, no prefix cached", "all cached"]
    row = [
        f"{knee['turns_per_minute_of_a_desktop']:.2f}",
        f"{knee['busy_seconds_of_a_turn_alone']:.2f}",
        f"{knee['no_prefix_cached']} desktops a GPU",
        f"{knee['all_prefixes_cached']} desktops a GPU",
    ]
    return head, [row]


def provenance(recorded: Figures) -> str:
    """Return where the figures were recorded, as a line of Markdown."""
    seeds = ", ".join(map(str, recorded["seeds"]))
    hours: dict[str, set[float]] = {}
    for claim, arms in recorded["claims"].items():
        if claim != "knee":
            hours[claim] = {arm["run"]["hours"] for arm in arms}
    shown = ", ".join(f"{claim} {'/'.join(f'{one:g}' for one in sorted(many))}" for claim, many in hours.items())
    return (
        f"Recorded with seeds {seeds} at commit `{recorded['commit']['id'][:12]}`; simulated hours of a run: {shown}. "
        "± is half the 95 % confidence interval over seeds.\n"
    )


ROWS: Mapping[str, Callable[[Figures], Rows]] = {
    "claims-verdicts": verdict_rows,
    "claims-table": table_rows,
    "claims-gpus": definition_rows,
    "claims-interrupt": interrupt_rows,
    "claims-staleness": staleness_rows,
    "claims-sync": sync_rows,
    "claims-desktops": desktop_rows,
    "claims-knees": knee_rows,
}
"""Head and rows of the tables, by their names on the page."""

TABLES: Mapping[str, Callable[[], str]] = {
    **{name: table_from_record("claims", rows) for name, rows in ROWS.items()},
    "claims-provenance": from_record("claims", provenance),
}
"""The tables, by their names on the page."""
