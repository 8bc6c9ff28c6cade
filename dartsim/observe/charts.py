"""The charts of all pages, as plain data for plotly.js (``{"data": [...], "layout": {...}}``); pages add the theme."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dartsim.observe.bias import ByClass, ordered, usable
from dartsim.observe.figures import FIGURES
from dartsim.observe.states import AT_WORK, CAUSES, POPULATIONS, DesktopState, EngineState, TrainerState, state_infos

Chart = dict[str, Any]
Named = Sequence[tuple[str, Mapping[str, Any]]]
"""Summaries or series of runs, by name."""

DASHES = ("solid", "dash", "dot", "dashdot")
"""Line styles, where there are more than six runs."""
BLUE, TEAL, PURPLE = "#0072b2", "#0f8b8d", "#7a5cc9"
MUTED = "#8c97a8"
HOURS = "hours"
"""Title of every time axis."""
ENDING_COLOR, DROP_COLOR, STALE_COLOR = "#4f5bd5", "#c2416b", "#7a5cc9"

RUN_COLORS = (
    *("#8c97a8", "#4f5bd5", "#0f8b8d", "#c2416b", "#b7791f", "#5b8c2a"),
    *("#7b3f00", "#b09cf5", "#1f9ed1", "#e58fb1", "#2f3e57", "#9fb82f"),
)
"""Colors of compared runs, distinct from those of states."""


def chart(data: list[dict[str, Any]], height: int, **layout: Any) -> Chart:
    """Return a figure for plotly.js."""
    return {"data": data, "layout": {"height": height, **layout}}


def axis(title: str = "", **more: Any) -> dict[str, Any]:
    """Return an axis with a title."""
    return {"title": {"text": title}, **more}


NUM_POINTS = 240
"""Number of points of a curve."""


def rolling(
    data: Mapping[str, Any], values: Sequence[float], *, window_hours: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return hours and the mean of ``values`` in a window around each of them.

    Args:
        data: What ``intervals`` returned.
        values: One of its columns.
        window_hours: Width of the window; at the run's ends, only the part within the run counts.
    """
    start = np.asarray(data["from_hours"], dtype=np.float64)
    end = np.asarray(data["to_hours"], dtype=np.float64)
    if not len(start):
        return np.empty(0), np.empty(0)
    borders = np.append(start, end[-1])
    summed = np.append(0.0, np.cumsum(np.asarray(values, dtype=np.float64) * (end - start)))
    hours = np.linspace(borders[0], borders[-1], NUM_POINTS)
    low = np.maximum(hours - window_hours / 2.0, borders[0])
    high = np.minimum(hours + window_hours / 2.0, borders[-1])
    return hours, (np.interp(high, borders, summed) - np.interp(low, borders, summed)) / (high - low)


def floats(values: Iterable[float]) -> list[float]:
    """Round values to the precision of a page."""
    return [round(float(value), 4) for value in values]


def in_minutes(plot: Chart) -> Chart:
    """Return a chart with its time axis, if it has one, in minutes."""
    time_axis = plot["layout"].get("xaxis", {})
    if time_axis.get("title", {}).get("text") != HOURS:
        return plot
    data = [{**curve, "x": floats(60.0 * hour for hour in curve["x"])} for curve in plot["data"]]
    return {"data": data, "layout": {**plot["layout"], "xaxis": {**time_axis, **axis("minutes", ticksuffix=" min")}}}


def time_by_state(summaries: Named, populations: Sequence[str] = tuple(POPULATIONS)) -> Chart:
    """Stacked bars of states that add up to 100 %: one bar for each population and run."""
    several = len(summaries) > 1
    data = []
    for population in populations:
        for state, style in state_infos(population).items():
            shares = [summary[POPULATIONS[population].shares].get(state, 0.0) * 100.0 for _, summary in summaries]
            if max(shares, default=0.0) <= 0.0:
                continue
            bars = [name if several else POPULATIONS[population].title for name, _ in summaries]
            data.append(
                {
                    "type": "bar",
                    "orientation": "h",
                    "name": style.label,
                    "y": bars,
                    "x": floats(shares),
                    "text": [_bar_text(style.label, share) for share in shares],
                    "textposition": "inside",
                    "insidetextanchor": "middle",
                    "textangle": 0,
                    "constraintext": "inside",
                    "cliponaxis": True,
                    "marker": {"color": style.color, "line": {"width": 0}},
                    "hovertemplate": f"<b>{style.label}</b>  %{{x:.2f}} %<br>{style.meaning}<extra></extra>",
                }
            )
    num_bars = len(summaries) if several else len(populations)
    return chart(
        data,
        50 * num_bars + 34,
        barmode="stack",
        bargap=0.28,
        uniformtext={"mode": "hide", "minsize": 11},  # hides text that does not fit its bar
        showlegend=False,
        hovermode="closest",
        margin={"l": 8, "r": 30, "t": 6, "b": 24},
        xaxis=axis(range=[0, 100], ticksuffix=" %", fixedrange=True),
        yaxis=axis(autorange="reversed", fixedrange=True, showgrid=False),
    )


def _bar_text(label: str, share: float) -> str:
    """Return the text that fits a bar of this percentage of the page's width."""
    text = f"{label} {share:.0f} %"
    return text if share > 0.8 * len(text) else f"{share:.0f} %" if share >= 4.0 else ""


def _line(name: str, color: str, x: Iterable[float], y: Iterable[float], hover: str, **line: Any) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "x": floats(x),
        "y": floats(y),
        "line": {"color": color, "width": 2.2, **line},
        "hovertemplate": hover,
    }


def throughput(series: Mapping[str, Any], window_hours: float) -> Chart:
    """Turns per minute over time: generated, admitted, trained."""
    lines = (("generated", BLUE, "solid"), ("admitted", TEAL, "dot"), ("trained", PURPLE, "solid"))
    data = [
        _rate_line(name, color, series, f"{name}_turns_per_minute", window_hours, dash) for name, color, dash in lines
    ]
    return _over_time(data, "turns per minute")


def _rate_line(
    name: str, color: str, series: Mapping[str, Any], key: str, window_hours: float, dash: str
) -> dict[str, Any]:
    hours, rates = rolling(series, series["rates"][key], window_hours=window_hours)
    return _line(name, color, hours, rates, "%{y:.1f} turns/min", dash=dash)


def utilization(series: Mapping[str, Any], window_hours: float) -> Chart:
    """Utilization of environments, engines and the trainer over time."""
    values = series["utilization"]
    lines = (
        ("environments", values["env_utilization"], DesktopState.ACTING.info.color),
        ("GPUs of the engines", values["gpu_utilization"], EngineState.BUSY.info.color),
        ("trainer", series["shares"]["trainer"].get("training", []), TrainerState.TRAINING.info.color),
    )
    data = []
    for name, column, color in lines:
        hours, shares = rolling(series, column, window_hours=window_hours)
        data.append(_line(name, color, hours, shares * 100.0, "%{y:.1f} %"))
    return _over_time(data, "", yaxis=axis(range=[0, 102], ticksuffix=" %"))


def desktops_over_time(series: Mapping[str, Any], window_hours: float) -> Chart:
    """The desktops' states over time, stacked."""
    data = []
    for state, style in state_infos("desktops").items():
        column = series["shares"]["desktops"].get(state, [])
        if not any(column):
            continue
        hours, shares = rolling(series, column, window_hours=window_hours)
        line = _line(style.label, style.color, hours, shares * 100.0, "%{y:.1f} %", width=0)
        data.append({**line, "stackgroup": "all", "line": {"width": 0}, "fillcolor": style.color})
    return _over_time(data, "", yaxis=axis(range=[0, 100], ticksuffix=" %"))


def _over_time(data: list[dict[str, Any]], unit: str, **layout: Any) -> Chart:
    layout = {"yaxis": axis(unit, rangemode="tozero"), **layout}
    return chart(data, 320, hovermode="x unified", xaxis=axis(HOURS, hoverformat=".2f", ticksuffix=" h"), **layout)


def idle_over_time(idle: Mapping[str, Any], population: str) -> Chart:
    """One population's time in the recorded window, at work or by idle cause (``idle.json``), stacked."""
    edges, shares = idle["hours"], idle["populations"][population]["shares"]
    data = []
    work = POPULATIONS[population].at_work.info
    for cause, color in {AT_WORK: work.color, **{cause: info.color for cause, info in CAUSES.items()}}.items():
        if cause not in shares:
            continue
        steps = [100.0 * share for share in shares[cause]]
        name = work.label if cause == AT_WORK else cause
        line = _line(name, color, edges, [*steps, steps[-1]], "%{y:.1f} %", width=0, shape="hv")
        data.append({**line, "stackgroup": "all", "fillcolor": color})
    # A single color still needs its name in the legend.
    return _over_time(data, "", showlegend=True, yaxis=axis(range=[0, 100], ticksuffix=" %"))


def staleness(summary: Mapping[str, Any]) -> Chart:
    """Trained turns by the staleness of their oldest weights."""
    histogram = {int(key): number for key, number in summary.get("staleness_histogram", {}).items()}
    total = sum(histogram.values()) or 1
    behind = list(range(max(histogram, default=0) + 1))
    return chart(
        [
            {
                "type": "bar",
                "x": behind,
                "y": floats(100.0 * histogram.get(key, 0) / total for key in behind),
                "customdata": [histogram.get(key, 0) for key in behind],
                "marker": {"color": STALE_COLOR},
                "hovertemplate": "<b>%{x} behind</b><br>%{y:.2f} % of turns (%{customdata:,})<extra></extra>",
            }
        ],
        300,
        bargap=0.15,
        showlegend=False,
        xaxis=axis("versions behind", **({"dtick": 1} if len(behind) <= 15 else {})),
        yaxis=axis("", ticksuffix=" %", rangemode="tozero"),
    )


def count_bars(counts: Mapping[str, int], color: str, what: str) -> Chart:
    """Horizontal bars of counts, the largest first."""
    items = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    total = sum(counts.values()) or 1
    return chart(
        [
            {
                "type": "bar",
                "orientation": "h",
                "y": [name.replace("_", " ") for name, _ in items],
                "x": [number for _, number in items],
                "text": [f"{number:,}  ({100.0 * number / total:.1f} %)" for _, number in items],
                "textposition": "outside",
                "cliponaxis": False,
                "marker": {"color": color},
                "hovertemplate": f"<b>%{{y}}</b><br>%{{text}} of {what}<extra></extra>",
            }
        ],
        34 * max(len(items), 1) + 66,
        bargap=0.3,
        showlegend=False,
        xaxis=axis(range=[0, max(counts.values(), default=1) * 1.32]),
        yaxis=axis(autorange="reversed", showgrid=False),
    )


def bias(table: ByClass) -> Chart:
    """Each label's share of the offered, usable and trained trajectories."""
    labels = ordered(table)
    offered, trained = ({label: table[label].get(key, 0) for label in labels} for key in ("offered", "trained"))
    bars = [("offered", offered, MUTED), ("left by the filter", usable(table), TEAL), ("trained", trained, PURPLE)]
    data = []
    for name, counts, color in bars:
        if not counts:
            continue  # no group was judged
        total = sum(counts.values()) or 1
        data.append(
            {
                "type": "bar",
                "name": name,
                "x": labels,
                "y": floats(100.0 * counts[label] / total for label in labels),
                "customdata": [round(counts[label]) for label in labels],
                "marker": {"color": color},
                "hovertemplate": f"%{{y:.1f}} % of {name} (%{{customdata:,}})",
            }
        )
    return chart(
        data,
        300,
        barmode="group",
        bargap=0.25,
        hovermode="x unified",
        xaxis=axis(type="category"),
        yaxis=axis("", ticksuffix=" %", rangemode="tozero"),
    )


def reward(series: Mapping[str, Any]) -> Chart:
    """Mean reward of each update."""
    updates = series["updates"]
    hover = "<b>update %{x}</b><br>mean reward %{y:.3f}<extra></extra>"
    line = _line("mean reward", STALE_COLOR, updates["update"], updates["mean_reward"], hover)
    return chart(
        [{**line, "mode": "lines+markers", "marker": {"size": 5}}],
        300,
        showlegend=False,
        xaxis=axis("update"),
        yaxis=axis("", range=[-0.02, 1.02]),
    )


def run_colors(num_runs: int) -> list[str]:
    """Return a different color for each run; the first is gray."""
    more = (f"hsl({137.5 * index % 360.0:g}, 50%, 50%)" for index in range(num_runs - len(RUN_COLORS)))
    return [*RUN_COLORS[:num_runs], *more]


def rates_of_runs(all_series: Named, key: str, window_hours: float) -> Chart:
    """One rate of every run over time."""
    dashes = [DASHES[index // 6 % len(DASHES)] for index in range(len(all_series))]
    data = [
        _rate_line(name, color, series, key, window_hours, dash)
        for (name, series), color, dash in zip(all_series, run_colors(len(all_series)), dashes, strict=True)
    ]
    return _over_time(data, "turns per minute")


def learning(curve: Mapping[str, Any]) -> Chart:
    """Success rate over time: of attempts as they end, and of evaluations on held-out tasks."""
    attempts, held_out = curve["attempts"], curve["held_out"]
    rate = "<b>%{x:.2f}</b><br>%{y:.1%}<extra></extra>"
    data = [_line("attempts", BLUE, attempts["hours"], attempts["success_rate"], rate)]
    if held_out["hours"]:
        points = _line("held-out tasks", PURPLE, held_out["hours"], held_out["success_rate"], rate)
        data.append({**points, "mode": "lines+markers", "marker": {"size": 7}})
    return chart(
        data,
        320,
        hovermode="closest",
        xaxis=axis(HOURS, ticksuffix=" h"),
        yaxis=axis("", range=[-0.02, 1.02], tickformat=".0%"),
    )


Mean = Mapping[str, float | None]
"""``mean`` over seeds and ``half_width`` of its 95 % confidence interval."""

UPRIGHT = 4
"""Largest number of upright bars; names of more would overlap."""

PUBLISHED_COLOR = "#e69f00"


def efficiency(
    figure: str, summaries: Named, published: Sequence[float | None], means: Sequence[Mean | None] = ()
) -> Chart:
    """One figure of every run as bars, with published values as diamonds: upright for a few runs, else horizontal.

    Args:
        figure: The figure's name.
        summaries: The runs.
        published: The published value of each run, if there is one.
        means: Mean over seeds for each run, which replaces the run's own value; its interval becomes a whisker.
    """
    style = FIGURES[figure]
    scale = style.scale
    over_seeds = [mean or {} for mean in means] or [{} for _ in summaries]
    values = [
        (mean.get("mean", summary.get(figure)) or 0.0) * scale
        for (_, summary), mean in zip(summaries, over_seeds, strict=True)
    ]
    whiskers = [(mean.get("half_width") or 0.0) * scale for mean in over_seeds]
    diamonds = {index: value * scale for index, value in enumerate(published) if value is not None}
    names = [name for name, _ in summaries]
    upright = len(names) <= UPRIGHT
    position, size = ("x", "y") if upright else ("y", "x")
    prefix, suffix = "<b>%{customdata}</b><br>", f" %{{{size}:.2f}} {style.unit}<extra></extra>"
    bars = {
        "type": "bar",
        "orientation": "v" if upright else "h",
        position: list(range(len(names))),
        size: floats(values),
        "marker": {"color": run_colors(len(names))},
        "width": 0.52,
        f"error_{size}": {
            "type": "data",
            "array": floats(whiskers),
            "visible": any(whiskers),
            "thickness": 1.2,
            "width": 4,
        },
        "customdata": names,
        "hovertemplate": f"{prefix}measured here{suffix}",
    }
    data = [bars]
    if diamonds:
        data.append(
            {
                **_texts(diamonds, style.decimals, position, size, offset=0.37),  # beside the bar's own value
                "mode": "markers+text",
                "marker": {"symbol": "diamond", "size": 12, "color": PUBLISHED_COLOR},
                "customdata": [names[index] for index in diamonds],
                "hovertemplate": f"{prefix}published{suffix}",
            }
        )
    ends = [value + whisker for value, whisker in zip(values, whiskers, strict=True)]
    # Values are placed beyond the whiskers, which would hide a bar's own text.
    text = [_text(value, style.decimals, size) for value in values]
    font: dict[str, Any] = {"textfont": {"size": 15 if upright else 12}, "hoverinfo": "skip"}
    data.append({**_texts(dict(enumerate(ends)), style.decimals, position, size), "text": text, **font})
    largest = max([*ends, *diamonds.values(), 0.0])
    positions = axis(
        "",
        tickvals=list(range(len(names))),
        ticktext=names,
        range=[-0.5, len(names) - 0.4] if upright else [len(names) - 0.4, -0.6],
        showgrid=False,
    )
    sizes = axis("", range=[0, largest * (1.15 if upright else 1.3) or 1.0])
    return chart(
        data,
        330 if upright else 90 + 26 * len(names),
        showlegend=False,
        title={"text": f"{style.label}{', %' if style.unit == '%' else ' per minute'}"},
        **{f"{position}axis": positions, f"{size}axis": sizes},
    )


def _texts(
    values: Mapping[int, float], decimals: int, position: str, size: str, *, offset: float = 0.0
) -> dict[str, Any]:
    """Return values as text at their positions."""
    return {
        "type": "scatter",
        "mode": "text",
        position: [index + offset for index in values],
        size: floats(values.values()),
        "text": [_text(value, decimals, size) for value in values.values()],
        "textposition": "top center" if size == "y" else "middle right",
        "cliponaxis": False,
    }


def _text(value: float, decimals: int, size: str) -> str:
    return f"{value:.{decimals}f}" if size == "y" else f" {value:.{decimals}f}"  # clear of the whisker's end


GIVEN, BEST, FRONT = "#8c97a8", "#4f5bd5", "#d55e00"


def history(trials: Sequence[Mapping[str, Any]], objective: Mapping[str, str]) -> Chart:
    """The first objective of every trial, and the best feasible value so far."""
    best = max if objective["direction"] == "maximize" else min
    within = [trial for trial in trials if trial["feasible"]]
    so_far = list(accumulate((trial["values"][0] for trial in within), best))
    data = [
        _points("trials", trials, [trial["number"] for trial in trials], 0, GIVEN),
        {
            "type": "scatter",
            "mode": "lines",
            "name": "best within the bounds",
            "x": [trial["number"] for trial in within],
            "y": so_far,
            "line": {"color": BEST, "width": 2.2, "shape": "hv"},
            "hovertemplate": "%{y:.4g}<extra></extra>",
        },
    ]
    return chart(data, 300, xaxis=axis("trial"), yaxis=axis(_label(objective)), hovermode="closest")


def front(
    trials: Sequence[Mapping[str, Any]], best: Sequence[Mapping[str, Any]], objectives: Sequence[Mapping[str, str]]
) -> Chart:
    """All trials by the first two objectives, with the Pareto front as a line."""
    shown = sorted(best, key=lambda trial: trial["values"][1])
    data = [
        _points("trials", trials, [trial["values"][1] for trial in trials], 0, GIVEN),
        {**_points("front", shown, [trial["values"][1] for trial in shown], 0, FRONT), "mode": "lines+markers"},
    ]
    axes = {"xaxis": axis(_label(objectives[1])), "yaxis": axis(_label(objectives[0]))}
    return chart(data, 380, hovermode="closest", **axes)


def knob(trials: Sequence[Mapping[str, Any]], key: str, objective: Mapping[str, str]) -> Chart:
    """The first objective of every trial by the value of one knob."""
    known = [trial for trial in trials if key in trial["settings"]]
    values = [trial["settings"][key] for trial in known]
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
    shown = values if numbers else [str(value) for value in values]
    data = [_points("trials", known, shown, 0, BEST)]
    xaxis = axis(key) if numbers else axis(key, type="category")
    return chart(data, 260, showlegend=False, hovermode="closest", xaxis=xaxis, yaxis=axis(_label(objective)))


def _points(name: str, trials: Sequence[Mapping[str, Any]], x: Sequence[Any], value: int, color: str) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "x": list(x),
        "y": [trial["values"][value] for trial in trials],
        "text": [f"trial {trial['number']}" for trial in trials],
        "marker": {
            "color": color,
            "size": 7,
            "symbol": ["circle" if trial["feasible"] else "circle-open" for trial in trials],
        },
        "hovertemplate": "<b>%{text}</b><br>%{x} · %{y:.4g}<extra></extra>",
    }


def _label(objective: Mapping[str, str]) -> str:
    return objective["figure"].replace("_", " ")
