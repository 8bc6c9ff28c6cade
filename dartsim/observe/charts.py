"""The charts of the report, as plain data for plotly.js; the page adds the theme's colors.

Functions return ``{"data": [...], "layout": {...}}``; nothing here imports plotly.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dartsim.observe.bias import ByClass, ordered, usable
from dartsim.observe.series import rolling
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


def _chart(data: list[dict[str, Any]], height: int, **layout: Any) -> Chart:
    return {"data": data, "layout": {"height": height, **layout}}


def _axis(title: str = "", **more: Any) -> dict[str, Any]:
    return {"title": {"text": title}, **more}


def _floats(values: Iterable[float]) -> list[float]:
    return [round(float(value), 4) for value in values]


chart, axis, floats = _chart, _axis, _floats
"""What the charts of other pages are made of."""


def in_minutes(chart: Chart) -> Chart:
    """Return a chart with its axis of the run's time in minutes, for runs of less than an hour; others as they are."""
    axis = chart["layout"].get("xaxis", {})
    if axis.get("title", {}).get("text") != HOURS:
        return chart
    data = [{**curve, "x": _floats(60.0 * hour for hour in curve["x"])} for curve in chart["data"]]
    return {"data": data, "layout": {**chart["layout"], "xaxis": {**axis, **_axis("minutes", ticksuffix=" min")}}}


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
                    "x": _floats(shares),
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
    return _chart(
        data,
        50 * num_bars + 34,
        barmode="stack",
        bargap=0.28,
        uniformtext={"mode": "hide", "minsize": 11},  # what does not fit into its bar, on a narrow page
        showlegend=False,
        hovermode="closest",
        margin={"l": 8, "r": 30, "t": 6, "b": 24},
        xaxis=_axis(range=[0, 100], ticksuffix=" %", fixedrange=True),
        yaxis=_axis(autorange="reversed", fixedrange=True, showgrid=False),
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
        "x": _floats(x),
        "y": _floats(y),
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
    return _over_time(data, "", yaxis=_axis(range=[0, 102], ticksuffix=" %"))


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
    return _over_time(data, "", yaxis=_axis(range=[0, 100], ticksuffix=" %"))


def _over_time(data: list[dict[str, Any]], unit: str, **layout: Any) -> Chart:
    layout = {"yaxis": _axis(unit, rangemode="tozero"), **layout}
    return _chart(
        data,
        320,
        hovermode="x unified",
        xaxis=_axis(HOURS, hoverformat=".2f", ticksuffix=" h"),
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
    return _over_time(data, "", showlegend=True, yaxis=_axis(range=[0, 100], ticksuffix=" %"))


def staleness(summary: Mapping[str, Any]) -> Chart:
    """Trained turns by how many versions behind their oldest weights were."""
    histogram = {int(key): number for key, number in summary.get("staleness_histogram", {}).items()}
    total = sum(histogram.values()) or 1
    behind = list(range(max(histogram, default=0) + 1))
    return _chart(
        [
            {
                "type": "bar",
                "x": behind,
                "y": _floats(100.0 * histogram.get(key, 0) / total for key in behind),
                "customdata": [histogram.get(key, 0) for key in behind],
                "marker": {"color": STALE_COLOR},
                "hovertemplate": "<b>%{x} behind</b><br>%{y:.2f} % of turns (%{customdata:,})<extra></extra>",
            }
        ],
        300,
        bargap=0.15,
        showlegend=False,
        xaxis=_axis("versions behind", **({"dtick": 1} if len(behind) <= 15 else {})),
        yaxis=_axis("", ticksuffix=" %", rangemode="tozero"),
    )


def counted(counts: Mapping[str, int], color: str, what: str) -> Chart:
    """Horizontal bars of counts, the largest first."""
    items = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    total = sum(counts.values()) or 1
    return _chart(
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
        xaxis=_axis(range=[0, max(counts.values(), default=1) * 1.32]),
        yaxis=_axis(autorange="reversed", showgrid=False),
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
                "y": _floats(100.0 * counts[label] / total for label in labels),
                "customdata": [round(counts[label]) for label in labels],
                "marker": {"color": color},
                "hovertemplate": f"%{{y:.1f}} % of {name} (%{{customdata:,}})",
            }
        )
    return _chart(
        data,
        300,
        barmode="group",
        bargap=0.25,
        hovermode="x unified",
        xaxis=_axis(type="category"),
        yaxis=_axis("", ticksuffix=" %", rangemode="tozero"),
    )


def reward(series: Mapping[str, Any]) -> Chart:
    """Mean reward of what each update was trained on."""
    updates = series["updates"]
    hover = "<b>update %{x}</b><br>mean reward %{y:.3f}<extra></extra>"
    line = _line("mean reward", STALE_COLOR, updates["update"], updates["mean_reward"], hover)
    return _chart(
        [{**line, "mode": "lines+markers", "marker": {"size": 5}}],
        300,
        showlegend=False,
        xaxis=_axis("update"),
        yaxis=_axis("", range=[-0.02, 1.02]),
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
        curve: ``attempts`` and ``held_out``, each with ``hours`` and ``success_rate``; see ``dartsim.run.curve``.
    """
    attempts, held_out = curve["attempts"], curve["held_out"]
    rate = "<b>%{x:.2f}</b><br>%{y:.1%}<extra></extra>"
    data = [_line("attempts", BLUE, attempts["hours"], attempts["success_rate"], rate)]
    if held_out["hours"]:
        points = _line("held-out tasks", PURPLE, held_out["hours"], held_out["success_rate"], rate)
        data.append({**points, "mode": "lines+markers", "marker": {"size": 7}})
    return _chart(
        data,
        320,
        hovermode="closest",
        xaxis=_axis(HOURS, ticksuffix=" h"),
        yaxis=_axis("", range=[-0.02, 1.02], tickformat=".0%"),
    )
