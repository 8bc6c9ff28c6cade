"""One style for every figure of the docs, as SVG by matplotlib that reads in light and dark mode.

A figure brings its own background, and swaps it together with its ink where the reader's system is dark.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from io import StringIO
from typing import Any

from experiments.study import Figures

INK, MUTED, GRID, PAPER = "#24292f", "#6e7781", "#d8dee4", "#ffffff"
DARK = {INK: "#d6dde6", MUTED: "#98a2ad", GRID: "#353d47", PAPER: "#12171e"}
"""The colors that a dark page swaps."""

BLUE, ORANGE, GREEN, RED, PURPLE, GRAY = "#3b82d6", "#d97f12", "#2f9e62", "#d0503f", "#8f68c8", "#8a939d"
PINK, YELLOW = "#c77fae", "#e8cf4a"
COLORS = (BLUE, ORANGE, GREEN, RED, PURPLE, GRAY)
MARKERS = "os^Dv*"
"""Of series, in order, so that they can be told apart in print."""

FONT_SIZE, FONTS = 8.5, "system-ui, 'Segoe UI', 'DejaVu Sans', sans-serif"

STYLE: Any = {
    "axes.axisbelow": True,
    "axes.edgecolor": MUTED,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.labelcolor": INK,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlecolor": INK,
    "axes.titlelocation": "left",
    "axes.titlesize": 9.5,
    "axes.titleweight": "bold",
    "figure.constrained_layout.use": True,
    "figure.facecolor": PAPER,
    "axes.facecolor": PAPER,
    "font.size": FONT_SIZE,
    "grid.color": GRID,
    "legend.frameon": False,
    "lines.markersize": 4.5,
    "svg.fonttype": "none",  # words stay words
    "svg.hashsalt": "dartsim",  # the same figures are the same file
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "ytick.major.size": 2,
    "xtick.major.size": 2,
}


def drawing(height: float, width: float = 9.0) -> Callable[[Callable[..., None]], Callable[..., str]]:
    """Make what draws on a figure of this size, inches, from recorded figures return it as SVG."""

    def decorate(paint: Callable[..., None]) -> Callable[..., str]:
        def draw(*recorded: Figures) -> str:
            return figure_as_svg(lambda figure: paint(figure, *recorded), width=width, height=height)

        draw.__doc__ = paint.__doc__
        return draw

    return decorate


def figure_as_svg(paint: Callable[[Any], None], *, width: float, height: float) -> str:
    """Return as SVG what ``paint`` draws on a matplotlib figure of this size in inches."""
    # Imported here: pages without a picture need no matplotlib.
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(STYLE):
        figure = Figure(figsize=(width, height))
        paint(figure)
        written = StringIO()
        figure.savefig(written, format="svg", metadata={"Date": None, "Creator": None})
    return compact(written.getvalue())


RECTANGLE = re.compile(r"M (\S+) (\S+)\s+L (\S+) \2\s+L \3 (\S+)\s+L \1 \4\s+(?:L \1 \2\s+)?z")
WORDY = (
    r"<!--.*?-->",
    r"<metadata>.*?</metadata>",
    rf"font-size: {FONT_SIZE}px; ",
    r"font-family: [^;]*; ",
    r' transform="rotate\(-0 [^"]*"',
    r'(?<=<g) id="[^"]*"',
)
"""What no reader of an SVG of matplotlib's misses."""


def compact(svg: str) -> str:
    """Return an SVG of matplotlib's with colors for dark pages, in a third of the size."""
    number = re.compile(r"-?\d+\.\d{2,}")
    svg = re.sub(r"<[^>]*>", lambda tag: number.sub(lambda one: f"{float(one[0]):.1f}".removesuffix(".0"), tag[0]), svg)
    svg = RECTANGLE.sub(r"M \1 \2H \3V \4H \1z", svg)
    for wordy in WORDY:
        svg = re.sub(wordy, "", svg, flags=re.DOTALL)
    swapped = "".join(
        f'[style*="{of}: {light}"]{{{of}:{dark} !important}}'
        for light, dark in DARK.items()
        for of in ("fill", "stroke")
    )
    styles = f"<style>text{{font:{FONT_SIZE}px {FONTS}}}@media (prefers-color-scheme: dark){{{swapped}}}</style>"
    svg = svg.replace("<defs>", f"{styles}\n<defs>", 1)
    return "".join(f"{line.strip()}\n" for line in svg.splitlines() if line.strip())


def boxes(
    axes: Any, rectangles: Iterable[Sequence[float]], color: str, label: str | None = None, alpha: float | None = None
) -> None:
    """Fill rectangles (left, bottom, width, height) of one color as a single path, which keeps files small."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    corners: list[tuple[float, float]] = []
    codes: list[Any] = []
    for left, bottom, width, height in rectangles:
        right, top = left + width, bottom + height
        corners += [(left, bottom), (right, bottom), (right, top), (left, top), (left, bottom)]
        codes += [Path.MOVETO, Path.LINETO, Path.LINETO, Path.LINETO, Path.CLOSEPOLY]
    if corners:
        axes.add_patch(PathPatch(Path(corners, codes), facecolor=color, edgecolor="none", label=label, alpha=alpha))


def line(axes: Any, arms: Sequence[Figures], figure: str, number: int, label: str, scale: float = 1.0) -> None:
    """Draw a figure of some arms over what is varied, with its 95 % intervals, in the color of a number."""
    found = [arm["figures"][figure] for arm in arms]
    axes.errorbar(
        [float(arm["value"]) for arm in arms],
        [scale * one["mean"] for one in found],
        [scale * (one["half_width"] or 0.0) for one in found],
        color=COLORS[number],
        marker=MARKERS[number],
        label=label,
    )


def label_axes(axes: Any, title: str, x: str = "", y: str = "", *, zero: bool = True) -> None:
    """Write a title and the axes' labels; ``zero``: the y axis begins at 0."""
    axes.set_title(title)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    if zero:
        axes.set_ylim(bottom=0.0)


def rows_axis(axes: Any, names: Sequence[str]) -> None:
    """Name rows from the top down; grid lines stand upright."""
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.grid(visible=False, axis="y")
    axes.grid(visible=True, axis="x")


def legend_below(figure: Any, columns: int = 4) -> None:
    """Put one legend for all axes below the figure."""
    handles = {
        label: handle for axes in figure.axes for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=columns)


def grouped(arms: Sequence[Figures], key: str = "series") -> Mapping[str, list[Figures]]:
    """Return the arms by series (or another key), in their order."""
    return {name: [arm for arm in arms if arm[key] == name] for name in dict.fromkeys(arm[key] for arm in arms)}
