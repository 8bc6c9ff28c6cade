"""Charts for the docs: panels of lines or bars with error bars, side by side, as SVG by matplotlib."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from io import StringIO
from typing import Any

LONG_POINT = re.compile(r"^([LM] -?\d+\.\d\d)\d*( -?\d+\.\d\d)\d*", re.MULTILINE)
"""A point of a path in SVG; its groups leave out what is below a hundredth of a point."""

COLORS = ("#4269d0", "#e07b00", "#3ca951", "#b83a2f", "#8a5cc4", "#6c7a89")
MARKERS = "os^Dv*"
"""Of the series, in order, so that they can be told apart in print."""

WIDTH, HEIGHT = 3.8, 3.0
"""Of a panel, inches."""

GRAY = "#78828e"
"""Of words and lines: legible on white and on the dark background of pages in dark mode."""

STYLE: Any = {
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "axes.edgecolor": GRAY,
    "axes.labelcolor": GRAY,
    "text.color": GRAY,
    "xtick.color": GRAY,
    "ytick.color": GRAY,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "font.family": ["DejaVu Sans", "sans-serif"],
    "font.size": 9,
    "grid.color": "#8886",
    "svg.fonttype": "none",  # words stay words
    "svg.hashsalt": "dartsim",  # the same figures are the same file
}


@dataclass(frozen=True, slots=True)
class Series:
    """A line, or the bars of one color: a point at each x, with half-widths (None: no error bar)."""

    name: str
    xs: Sequence[float]
    ys: Sequence[float]
    widths: Sequence[float | None]
    color: int = 0


@dataclass(frozen=True, slots=True)
class Panel:
    """One pair of axes."""

    title: str
    x_title: str
    series: Sequence[Series]
    ticks: Sequence[tuple[float, str]]
    bars: bool = False
    log_x: bool = False
    marks: Sequence[tuple[float, str]] = ()


def draw(panels: Sequence[Panel], *, tilt: bool = False) -> str:
    """Return the panels side by side as one SVG, with one legend for all."""

    def paint(figure: Any) -> None:
        for axes, panel in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
            _panel(axes, panel, tilt=tilt)
        handles = {
            label: handle
            for axes in figure.axes
            for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
        }
        if len(handles) > 1:
            figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=4, frameon=False)

    return figure_as_svg(paint, width=WIDTH * len(panels), height=HEIGHT + (1.0 if tilt else 0.0))


def figure_as_svg(paint: Callable[[Any], None], *, width: float, height: float) -> str:
    """Return as SVG what ``paint`` draws on a matplotlib figure of this size in inches."""
    # Imported here: pages without a picture need no matplotlib.
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        paint(figure)
        written = StringIO()
        figure.savefig(written, format="svg", metadata={"Date": None, "Creator": None})
    return "".join(f"{line.rstrip()}\n" for line in LONG_POINT.sub(r"\1\2", written.getvalue()).splitlines())


def _panel(axes: Any, panel: Panel, *, tilt: bool) -> None:
    """Draw one pair of axes."""
    places = [x for series in panel.series for x in series.xs]
    beside = len(panel.series) if len(places) > len(set(places)) else 1  # bars at the same x are drawn side by side
    for number, series in enumerate(panel.series):
        color, errors = COLORS[series.color], [width or 0.0 for width in series.widths]
        if panel.bars:
            room = 0.76 / beside
            xs = [x + room * (number % beside - (beside - 1) / 2.0) for x in series.xs]
            axes.bar(xs, series.ys, room, yerr=errors, color=color, label=series.name, ecolor=GRAY)
        else:
            marker = MARKERS[series.color]
            axes.errorbar(series.xs, series.ys, errors, color=color, marker=marker, ms=4, label=series.name)
    if panel.log_x:
        axes.set_xscale("log")
        axes.minorticks_off()
    axes.set_xticks([value for value, _ in panel.ticks], [words for _, words in panel.ticks])
    if tilt:
        axes.tick_params("x", rotation=40)
        for label in axes.get_xticklabels():
            label.set_horizontalalignment("right")
    for value, words in panel.marks:
        axes.axvline(value, color=GRAY, linestyle=":")
        axes.annotate(words, (value, 1.0), (3, -9), xycoords=("data", "axes fraction"), textcoords="offset points")
    axes.set_ylim(bottom=0.0)
    axes.set_title(panel.title, loc="left")
    axes.set_xlabel(panel.x_title)
