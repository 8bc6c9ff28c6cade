"""One figure of several runs as bars: upright where they are few, one below the other where they are many."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dartsim.observe.charts import Chart, Named, axis, chart, floats, run_colors
from dartsim.observe.figures import FIGURES

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
