"""The tables and pictures of docs/claims.md, from the figures of ``experiments.claims``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from experiments.charts import Panel, Series, draw
from experiments.claims_verdicts import gain, mean
from experiments.study import Figures, Rows, StudyPicture, cell, rows_of, short_commit

COLUMNS: Mapping[str, str] = {
    "trained/min": "{figures[trained_turns_per_minute]:.1f}",
    "generated/min": "{figures[generated_turns_per_minute]:.1f}",
    "desktops, %": "{figures[env_utilization]:.1p}",
    "GPUs, %": "{figures[gpu_utilization]:.1p}",
    "GPUs, attempts run, %": "{figures[gpu_utilization_rollout_phase]:.1p}",
    "GPUs, of peak, %": "{figures[gpu_peak_share]:.2p}",
    "all GPUs, %": "{figures[all_gpus_utilization]:.1p}",
    "hybrid GPUs, %": "{figures[hybrid_gpus_utilization]:.1p}",
    "stopped, %": "{figures[stopped_share]:.1p}",
    "mean": "{figures[staleness_mean]:.2f}",
    "too old, %": "{figures[stale_share]:.1p}",
    "not trained, %": "{figures[wasted_share]:.0p}",
    "minutes a version": "{figures[minutes_per_version]:.1f}",
}
"""Columns of an arm, by their heads."""


def _columns(*names: str) -> dict[str, str]:
    return {name: COLUMNS[name] for name in names}


def verdict_rows(recorded: Figures) -> Rows:
    """Every claim: published, its source, ours, whether they agree."""
    words = {True: "yes", False: "**no**", None: "–"}
    columns = {
        "statement": "{statement}",
        "published": "{published}",
        "source": "{source}",
        "here": "{ours}",
        "agrees": "{agrees}",
    }
    return rows_of(columns, ({**row, "agrees": words[row["agrees"]]} for row in recorded["verdicts"]))


def table_rows(recorded: Figures) -> Rows:
    """DART's table: the ladder, and DART with one part left out."""
    names = ("trained/min", "generated/min", "desktops, %", "GPUs, %", "GPUs, attempts run, %", "GPUs, of peak, %")
    columns = {"": "{name}", **_columns(*names, "all GPUs, %", "hybrid GPUs, %", "minutes a version")}
    # One set of GPUs can do both only where training and rollout never overlap.
    no_hybrid = {"hybrid_gpus_utilization": None}
    arms = recorded["claims"]["table"]
    return rows_of(
        columns,
        ({**arm, "figures": {**arm["figures"], **(no_hybrid if arm["staleness_max"] else {})}} for arm in arms),
    )


def definition_rows(recorded: Figures) -> Rows:
    """The ratio of GPU utilization, under each definition."""
    columns = {"definition": "{definition}", "coupled": "{coupled:.1%}", "DART": "{dart:.1%}", "ratio": "{ratio:.2f}x"}
    published = {"definition": "as published", "coupled": 0.296, "dart": 0.467, "ratio": 1.58}
    return rows_of(columns, [published, *recorded["gpu_definitions"]])


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
                *(cell(COLUMNS["GPUs, of peak, %"], arm) for arm in own.values()),
                *(f"{gain(arms, series, seconds, name):+.0%}" for name in own if name != "waited for"),
                *(f"{60.0 / mean(arm, 'minutes_per_version'):.1f}" for arm in own.values()),
                cell(COLUMNS["stopped, %"], waited),
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
    columns = {
        "": "{series}, bound {name}",
        **_columns("trained/min", "generated/min", "mean"),
        "most": "{staleness_max}",
        "share of turns by staleness, %": "{distribution}",
        **_columns("too old, %", "not trained, %"),
    }
    arms = recorded["claims"]["staleness"]
    return rows_of(columns, ({**arm, "distribution": distribution(arm["staleness_histogram"])} for arm in arms))


def distribution(histogram: Mapping[str, int]) -> str:
    """Return the share of turns at each staleness, in per cent; what rounds to nothing is left out."""
    total = sum(histogram.values())
    shares = {age: 100.0 * number / total for age, number in histogram.items()}
    return ", ".join(f"{age}: {share:.0f}" for age, share in shares.items() if share >= 0.5) or "–"


def desktop_rows(recorded: Figures) -> Rows:
    """Turns and utilizations by desktops per rollout GPU, with the closed-form bounds."""
    columns = {
        "": "{series}, {name} a GPU",
        **_columns("trained/min", "generated/min", "desktops, %", "GPUs, %", "GPUs, of peak, %", "too old, %"),
        "desktops alone/min": "{figures[bound_desktops][mean]:.0f}",
        "engines alone/min": "{figures[bound_engines][mean]:.0f}",
    }
    return rows_of(columns, recorded["claims"]["desktops"])


def knee_rows(recorded: Figures) -> Rows:
    """The closed-form knee."""
    columns = {
        "turns a minute of a desktop": "{turns_per_minute_of_a_desktop:.2f}",
        "engine seconds of a turn alone": "{busy_seconds_of_a_turn_alone:.2f}",
        "knee, no prefix cached": "{no_prefix_cached} desktops a GPU",
        "all cached": "{all_prefixes_cached} desktops a GPU",
    }
    return rows_of(columns, [recorded["claims"]["knee"]])


def provenance(recorded: Figures) -> str:
    """Return where the figures were recorded, as a line of Markdown."""
    seeds = ", ".join(map(str, recorded["seeds"]))
    hours: dict[str, set[float]] = {}
    for claim, arms in recorded["claims"].items():
        if claim != "knee":
            hours[claim] = {arm["run"]["hours"] for arm in arms}
    shown = ", ".join(f"{claim} {'/'.join(f'{one:g}' for one in sorted(many))}" for claim, many in hours.items())
    return (
        f"Recorded with seeds {seeds} at commit {short_commit(recorded)}; simulated hours of a run: {shown}. "
        "± is half the 95 % confidence interval over seeds.\n"
    )


ROWS: Mapping[str, Callable[[Figures], Rows]] = {
    "claims-verdicts": verdict_rows,
    "claims-table": table_rows,
    "claims-gpus": definition_rows,
    "claims-interrupt": interrupt_rows,
    "claims-staleness": staleness_rows,
    "claims-desktops": desktop_rows,
    "claims-knees": knee_rows,
}
"""Head and rows of the tables, by their names on the page."""


def line(arms: Sequence[Figures], figure: str, color: int, *, scale: float = 1.0, name: str | None = None) -> Series:
    """Return one figure of some arms over what is varied."""
    found = [arm["figures"][figure] for arm in arms]
    widths = [None if one["half_width"] is None else scale * one["half_width"] for one in found]
    xs = [float(arm["value"]) for arm in arms]
    return Series(name or arms[0]["series"], xs, [scale * one["mean"] for one in found], widths, color)


def grouped(arms: Sequence[Figures], key: str = "series") -> dict[str, list[Figures]]:
    """Return the arms by series (or another key), in their order."""
    return {name: [arm for arm in arms if arm[key] == name] for name in dict.fromkeys(arm[key] for arm in arms)}


def ticks(arms: Sequence[Figures]) -> list[tuple[float, str]]:
    """Return the varied values as words on the axis."""
    return [(value, f"{value:g}") for value in dict.fromkeys(float(arm["value"]) for arm in arms)]


def table_picture(recorded: Figures) -> str:
    """Bars: three figures on every rung of the ladder and without each part."""
    panels = []
    figures = {
        "trained_turns_per_minute": ("trained turns a minute", 1.0),
        "env_utilization": ("environment utilization, %", 100.0),
        "gpu_utilization": ("rollout GPUs busy, %", 100.0),
    }
    arms = recorded["claims"]["table"]
    for figure, (title, scale) in figures.items():
        numbered = [{**arm, "value": number} for number, arm in enumerate(arms)]
        bars = [
            Series(bar.name, bar.xs, bar.ys, bar.widths, color)
            for color, own in enumerate(grouped(numbered).values())
            for bar in [line(own, figure, color, scale=scale)]
        ]
        panels.append(Panel(title, "", bars, [(i, arm["name"]) for i, arm in enumerate(arms)], bars=True))
    return draw(panels, tilt=True)


def interrupt_picture(recorded: Figures) -> str:
    """Lines: tokens generated by time between syncs, a panel for each length of replies."""
    panels = []
    for series, arms in grouped(recorded["claims"]["interrupt"]).items():
        lines = [
            line(own, "gpu_peak_share", color, scale=100.0, name=f"running requests are {mode}")
            for color, (mode, own) in enumerate(grouped(arms, "name").items())
        ]
        panels.append(Panel(f"{series}: % of peak", "seconds between syncs", lines, ticks(arms), log_x=True))
    return draw(panels)


def staleness_picture(recorded: Figures) -> str:
    """Lines: throughput, measured staleness and dropped work by bound."""
    arms = recorded["claims"]["staleness"]
    figures = {
        "trained_turns_per_minute": ("trained turns a minute", 1.0),
        "staleness_mean": ("measured staleness, mean", 1.0),
        "stale_share": ("attempts dropped as too old, %", 100.0),
    }
    panels = [
        Panel(
            title,
            "bound on staleness",
            [line(own, name, i, scale=scale) for i, own in enumerate(grouped(arms).values())],
            ticks(arms),
        )
        for name, (title, scale) in figures.items()
    ]
    return draw(panels)


def sync_picture(recorded: Figures) -> str:
    """Lines: trained and generated turns by reload time, relative to the fastest reload of the same workload."""
    panels = []
    for workload in dict.fromkeys(arm["series"].split(",")[0] for arm in recorded["claims"]["sync"]):
        arms = [arm for arm in recorded["claims"]["sync"] if arm["series"].startswith(f"{workload},")]
        for name, words in (("trained_turns_per_minute", "trained"), ("generated_turns_per_minute", "generated")):
            lines = [
                line(own, name, i, name=series.split(", ")[1]) for i, (series, own) in enumerate(grouped(arms).items())
            ]
            title = f"{workload}: {words} turns a minute"
            panels.append(Panel(title, "reload, seconds", lines, ticks(arms), log_x=True))
    return draw(panels)


def desktops_picture(recorded: Figures) -> str:
    """Lines: turns and utilizations by desktops per GPU, with the knee."""
    arms = recorded["claims"]["desktops"]
    panels = []
    for series, own in grouped(arms).items():
        knee = recorded["claims"]["knee"]["no_prefix_cached"]
        marks = [(float(knee), f"knee: {knee}")]
        turns = [
            line(own, "trained_turns_per_minute", 0, name="trained turns"),
            line(own, "generated_turns_per_minute", 1, name="generated turns"),
        ]
        shares = [
            line(own, "env_utilization", 2, scale=100.0, name="environment utilization"),
            line(own, "gpu_utilization", 3, scale=100.0, name="rollout GPUs busy"),
        ]
        for title, lines in ((f"{series}: turns a minute", turns), (f"{series}: utilization, %", shares)):
            panels.append(Panel(title, "desktops per rollout GPU", lines, ticks(own), marks=marks))
    return draw(panels)


PICTURES: Mapping[str, StudyPicture] = {
    "claims-table": StudyPicture(
        "DART's table: parts added to the coupled baseline, and taken from DART", table_picture
    ),
    "claims-interrupt": StudyPicture(
        "Tokens generated by what a weight sync does to running requests", interrupt_picture
    ),
    "claims-staleness": StudyPicture(
        "Throughput, staleness and dropped work by the bound on staleness", staleness_picture
    ),
    "claims-sync": StudyPicture("Rolling against global weight sync, by reload time", sync_picture),
    "claims-desktops": StudyPicture("Turns and utilization by desktops per rollout GPU", desktops_picture),
}
"""The pictures, by the names of their files in docs/figures."""


PAGE_TABLES: Mapping[str, Callable[[Figures], Rows | str]] = {**ROWS, "claims-provenance": provenance}
"""The tables of docs/claims.md, by the names of its marks."""
