"""The page of a study: how it went, its Pareto front, and what each knob does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

from dartsim.observe import charts
from dartsim.observe.report import lone_page
from dartsim.observe.rundir import write_text

GIVEN, BEST, FRONT = "#8c97a8", "#4f5bd5", "#d55e00"


def render_study(found: Mapping[str, Any], path: Path) -> Path:
    """Write the page of a study and return its path.

    Args:
        found: What ``dartsim tune --json`` writes.
        path: The page's file.
    """
    wanted = found["objectives"]
    finished = [trial for trial in found["trials"] if trial["values"]]
    plots: dict[str, charts.Chart] = {"history": history(finished, wanted[0])}
    if len(wanted) > 1:
        plots["front"] = front(finished, found["front"], wanted)
    knobs = list(found["space"])
    plots |= {f"knob{place}": knob(finished, key, wanted[0]) for place, key in enumerate(knobs)}
    write_text(path, lone_page("study.html.j2", plots, found=found, knobs=knobs, wanted=wanted))
    return path


def history(trials: Sequence[Mapping[str, Any]], wanted: Mapping[str, str]) -> charts.Chart:
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
    return charts.chart(data, 300, xaxis=charts.axis("trial"), yaxis=charts.axis(_label(wanted)), hovermode="closest")


def front(
    trials: Sequence[Mapping[str, Any]], best: Sequence[Mapping[str, Any]], wanted: Sequence[Mapping[str, str]]
) -> charts.Chart:
    """All trials by the first two objectives, those that no other beats as a line."""
    shown = sorted(best, key=lambda trial: trial["values"][1])
    data = [
        _points("trials", trials, [trial["values"][1] for trial in trials], 0, GIVEN),
        {**_points("front", shown, [trial["values"][1] for trial in shown], 0, FRONT), "mode": "lines+markers"},
    ]
    axes = {"xaxis": charts.axis(_label(wanted[1])), "yaxis": charts.axis(_label(wanted[0]))}
    return charts.chart(data, 380, hovermode="closest", **axes)


def knob(trials: Sequence[Mapping[str, Any]], key: str, wanted: Mapping[str, str]) -> charts.Chart:
    """Every trial's value of the first objective by the value of one knob."""
    known = [trial for trial in trials if key in trial["settings"]]
    values = [trial["settings"][key] for trial in known]
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
    shown = values if numbers else [str(value) for value in values]
    data = [_points("trials", known, shown, 0, BEST)]
    axis = charts.axis(key) if numbers else charts.axis(key, type="category")
    return charts.chart(data, 260, showlegend=False, hovermode="closest", xaxis=axis, yaxis=charts.axis(_label(wanted)))


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
