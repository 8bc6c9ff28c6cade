"""The charts of the report, as plain data for plotly.js; the page adds the theme's colors.

Functions return ``{"data": [...], "layout": {...}}``; nothing here imports plotly.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any

from dartsim.observe.bias import ByClass, ordered, usable
from dartsim.observe.figures import FIGURES, rolling
from dartsim.observe.states import AT_WORK, CAUSES, POPULATIONS, DesktopState, EngineState, TrainerState, state_infos

Chart = dict[str, Any]
Named = Sequence[tuple[str, Mapping[str, Any]]]
"""Runs by what they are called: their summary or their series."""

DASHES = ("solid", "dash", "dot", "dashdot")
"""Of lines, where there are more runs than colors."""
BLUE, TEAL, PURPLE = "#0072b2", "#0f8b8d", "#7a5cc9"
MUTED = "#8c97a8"
HOURS = "hours"
"""Title of every axis of the run's time."""
ENDING_COLOR, DROP_COLOR, STALE_COLOR = "#4f5bd5", "#c2416b", "#7a5cc9"

RUN_COLORS = ("#8c97a8", "#4f5bd5", "#0f8b8d", "#c2416b", "#b7791f", "#5b8c2a")
"""Colors of runs that are compared; none of them is a state's."""


def chart(data: list[dict[str, Any]], height: int, **layout: Any) -> Chart:
    """Return a figure for plotly.js."""
    return {"data": data, "layout": {"height": height, **layout}}


def axis(title: str = "", **more: Any) -> dict[str, Any]:
    """Return an axis with a title."""
    return {"title": {"text": title}, **more}


def floats(values: Iterable[float]) -> list[float]:
    """Round values to what a page needs."""
    return [round(float(value), 4) for value in values]


def in_minutes(plot: Chart) -> Chart:
    """Return a chart with its axis of the run's time in minutes, for runs of less than an hour; others as they are."""
    time_axis = plot["layout"].get("xaxis", {})
    if time_axis.get("title", {}).get("text") != HOURS:
        return plot
    data = [{**curve, "x": floats(60.0 * hour for hour in curve["x"])} for curve in plot["data"]]
    return {"data": data, "layout": {**plot["layout"], "xaxis": {**time_axis, **axis("minutes", ticksuffix=" min")}}}


def time_by_state(summaries: Named, populations: Sequence[str] = tuple(POPULATIONS)) -> Chart:
    """Stacked bars that add up to 100 %: a bar for each population, of each run if there are several."""
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
        uniformtext={"mode": "hide", "minsize": 11},  # what does not fit into its bar, on a narrow page
        showlegend=False,
        hovermode="closest",
        margin={"l": 8, "r": 30, "t": 6, "b": 24},
        xaxis=axis(range=[0, 100], ticksuffix=" %", fixedrange=True),
        yaxis=axis(autorange="reversed", fixedrange=True, showgrid=False),
    )


def _bar_text(label: str, share: float) -> str:
    """Return what fits into a bar of that many per cent of the page's width."""
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
    """Turns per minute over the run's time: generated, admitted, trained."""
    lines: tuple[tuple[str, str, str, dict[str, Any]], ...] = (
        ("generated", "generated_turns_per_minute", BLUE, {}),
        ("admitted", "admitted_turns_per_minute", TEAL, {"dash": "dot"}),
        ("trained", "trained_turns_per_minute", PURPLE, {}),
    )
    data = [
        _line(
            name,
            color,
            *rolling(series, series["rates"][key], window_hours=window_hours),
            "%{y:.1f} turns/min",
            **line,
        )
        for name, key, color, line in lines
    ]
    return _over_time(data, "turns per minute")


def utilization(series: Mapping[str, Any], window_hours: float) -> Chart:
    """Utilization of environments, engines and the trainer over the run's time."""
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
    """Shares of the desktops' time by state over the run's time, stacked."""
    data = []
    for state, style in state_infos("desktops").items():
        column = series["shares"]["desktops"].get(state, [])
        if not any(column):
            continue
        hours, shares = rolling(series, column, window_hours=window_hours)
        line = _line(style.label, style.color, hours, shares * 100.0, "%{y:.1f} %", width=0)
        data.append({**line, "stackgroup": "one", "line": {"width": 0}, "fillcolor": style.color})
    return _over_time(data, "", yaxis=axis(range=[0, 100], ticksuffix=" %"))


def _over_time(data: list[dict[str, Any]], unit: str, **layout: Any) -> Chart:
    layout = {"yaxis": axis(unit, rangemode="tozero"), **layout}
    return chart(
        data,
        320,
        hovermode="x unified",
        xaxis=axis(HOURS, hoverformat=".2f", ticksuffix=" h"),
        **layout,
    )


def idle_over_time(found: Mapping[str, Any], population: str) -> Chart:
    """One population's time in the recorded window, at work and by cause of being idle, stacked.

    Args:
        found: What ``dartsim.observe.idle`` wrote.
        population: Which one.
    """
    edges, shares = found["hours"], found["populations"][population]["shares"]
    data = []
    work = POPULATIONS[population].at_work.info
    for cause, color in {AT_WORK: work.color, **{cause: info.color for cause, info in CAUSES.items()}}.items():
        if cause not in shares:
            continue
        steps = [100.0 * share for share in shares[cause]]
        name = work.label if cause == AT_WORK else cause
        line = _line(name, color, edges, [*steps, steps[-1]], "%{y:.1f} %", width=0, shape="hv")
        data.append({**line, "stackgroup": "one", "fillcolor": color})
    # A chart of one color needs its name too.
    return _over_time(data, "", showlegend=True, yaxis=axis(range=[0, 100], ticksuffix=" %"))


def staleness(summary: Mapping[str, Any]) -> Chart:
    """Trained turns by how many versions behind their oldest weights were."""
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


def counted(counts: Mapping[str, int], color: str, what: str) -> Chart:
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
    """Each label's share of what was offered, of what the group filter leaves of it, and of what was trained."""
    labels = ordered(table)
    offered, trained = ({label: table[label].get(key, 0) for label in labels} for key in ("offered", "trained"))
    bars = [("offered", offered, MUTED), ("left by the filter", usable(table), TEAL), ("trained", trained, PURPLE)]
    data = []
    for name, counts, color in bars:
        if not counts:
            continue  # an older run, which did not count what the filter did
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
    """Mean reward of what each update was trained on."""
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
    """Return a color for each run, the first one grey."""
    return [RUN_COLORS[index % len(RUN_COLORS)] for index in range(num_runs)]


def rates_of_runs(all_series: Named, key: str, window_hours: float) -> Chart:
    """One rate of every run over the run's time."""
    data = [
        _line(
            name,
            color,
            *rolling(series, series["rates"][key], window_hours=window_hours),
            "%{y:.1f} turns/min",
            dash=DASHES[index // len(RUN_COLORS) % len(DASHES)],
        )
        for index, ((name, series), color) in enumerate(zip(all_series, run_colors(len(all_series)), strict=True))
    ]
    return _over_time(data, "turns per minute")


def learning(curve: Mapping[str, Any]) -> Chart:
    """Success rate over the run's time: attempts as they ended, and evaluations on held-out tasks.

    Args:
        curve: ``attempts`` and ``held_out``, each with ``hours`` and ``success_rate``; see ``dartsim.run.results``.
    """
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
"""Most bars beside each other; the names of more would lie across each other, and some be left out."""

PUBLISHED_COLOR = "#e69f00"


def efficiency(
    figure: str, summaries: Named, published: Sequence[float | None], means: Sequence[Mean | None] = ()
) -> Chart:
    """One figure of every run, with the published values as diamonds.

    Args:
        figure: Its name.
        summaries: The runs.
        published: Of each run, the published value if there is one.
        means: Of each run, its mean over seeds; the bars are these then, with their intervals as whiskers.
    """
    style = FIGURES[figure]
    scale = 100.0 if style.unit == "%" else 1.0
    of_runs = [summary.get(figure) for _, summary in summaries]
    over_seeds = [found or {} for found in means] or [{} for _ in of_runs]
    values = [(found.get("mean", value) or 0.0) * scale for value, found in zip(of_runs, over_seeds, strict=True)]
    whiskers = [(found.get("half_width") or 0.0) * scale for found in over_seeds]
    given = {index: value * scale for index, value in enumerate(published) if value is not None}
    names = [name for name, _ in summaries]
    upright = len(names) <= UPRIGHT
    place, size = ("x", "y") if upright else ("y", "x")
    before, behind = "<b>%{customdata}</b><br>", f" %{{{size}:.2f}} {style.unit}<extra></extra>"
    bars = {
        "type": "bar",
        "orientation": "v" if upright else "h",
        place: list(range(len(names))),
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
        "hovertemplate": f"{before}measured here{behind}",
    }
    data = [bars]
    if given:
        diamonds = _texts(given, style.decimals, place, size, beside=0.37)  # where neither hides the other
        diamonds |= {
            "mode": "markers+text",
            "marker": {"symbol": "diamond", "size": 12, "color": PUBLISHED_COLOR},
            "customdata": [names[index] for index in given],
            "hovertemplate": f"{before}published{behind}",
        }
        data.append(diamonds)
    ends = [value + whisker for value, whisker in zip(values, whiskers, strict=True)]
    data.append(_ends(values, ends, style.decimals, place, size))
    most = max([*ends, *given.values(), 0.0])
    places = axis(
        "",
        tickvals=list(range(len(names))),
        ticktext=names,
        range=[-0.5, len(names) - 0.4] if upright else [len(names) - 0.4, -0.6],
        showgrid=False,
    )
    sizes = axis("", range=[0, most * (1.15 if upright else 1.3) or 1.0])
    return chart(
        data,
        330 if upright else 90 + 26 * len(names),
        showlegend=False,
        title={"text": f"{style.label}{', %' if style.unit == '%' else ' per minute'}"},
        **{f"{place}axis": places, f"{size}axis": sizes},
    )


def _texts(values: Mapping[int, float], decimals: int, place: str, size: str, *, beside: float = 0.0) -> dict[str, Any]:
    """Return values, by their places, written where they lie."""
    return {
        "type": "scatter",
        "mode": "text",
        place: [index + beside for index in values],
        size: floats(values.values()),
        "text": [_text(value, decimals, size) for value in values.values()],
        "textposition": "top center" if size == "y" else "middle right",
        "cliponaxis": False,
    }


def _ends(values: Sequence[float], ends: Sequence[float], decimals: int, place: str, size: str) -> dict[str, Any]:
    """Return the values, written behind the ends of bars and whiskers: a bar's own text would lie under its whisker."""
    found = _texts(dict(enumerate(ends)), decimals, place, size)
    text = [_text(value, decimals, size) for value in values]
    return {**found, "text": text, "textfont": {"size": 15 if size == "y" else 12}, "hoverinfo": "skip"}


def _text(value: float, decimals: int, size: str) -> str:
    return f"{value:.{decimals}f}" if size == "y" else f" {value:.{decimals}f}"  # clear of the whisker's end


GIVEN, BEST, FRONT = "#8c97a8", "#4f5bd5", "#d55e00"


def history(trials: Sequence[Mapping[str, Any]], wanted: Mapping[str, str]) -> Chart:
    """Every trial's value of the first objective, and the best one within the bounds so far."""
    best = max if wanted["direction"] == "maximize" else min
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
    return chart(data, 300, xaxis=axis("trial"), yaxis=axis(_label(wanted)), hovermode="closest")


def front(
    trials: Sequence[Mapping[str, Any]], best: Sequence[Mapping[str, Any]], wanted: Sequence[Mapping[str, str]]
) -> Chart:
    """All trials by the first two objectives, those that no other beats as a line."""
    shown = sorted(best, key=lambda trial: trial["values"][1])
    data = [
        _points("trials", trials, [trial["values"][1] for trial in trials], 0, GIVEN),
        {**_points("front", shown, [trial["values"][1] for trial in shown], 0, FRONT), "mode": "lines+markers"},
    ]
    axes = {"xaxis": axis(_label(wanted[1])), "yaxis": axis(_label(wanted[0]))}
    return chart(data, 380, hovermode="closest", **axes)


def knob(trials: Sequence[Mapping[str, Any]], key: str, wanted: Mapping[str, str]) -> Chart:
    """Every trial's value of the first objective by the value of one knob."""
    known = [trial for trial in trials if key in trial["settings"]]
    values = [trial["settings"][key] for trial in known]
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
    shown = values if numbers else [str(value) for value in values]
    data = [_points("trials", known, shown, 0, BEST)]
    xaxis = axis(key) if numbers else axis(key, type="category")
    return chart(data, 260, showlegend=False, hovermode="closest", xaxis=xaxis, yaxis=axis(_label(wanted)))


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


def _label(wanted: Mapping[str, str]) -> str:
    return wanted["figure"].replace("_", " ")
