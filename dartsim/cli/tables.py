"""Tables of figures for the terminal; labels, units and definitions are those of the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

from dartsim.observe.figures import FIGURES, figure_text

SHOWN = (
    "trained_turns_per_minute",
    "generated_turns_per_minute",
    "env_utilization",
    "gpu_utilization",
    "gpu_utilization_rollout_phase",
    "prefix_hit_share",
    "trajectories_per_minute",
    "minutes_per_version",
    "staleness_mean",
    "staleness_max",
    "wasted_share",
    "mean_reward",
)


def plain_table(*columns: str, numbers: Sequence[str] = (), **options: Any) -> Table:
    """Return a table without a frame: columns of text, then right-aligned columns of numbers."""
    table = Table(show_edge=False, pad_edge=False, header_style="bold", title_justify="left", **options)
    for name in columns:
        table.add_column(name, overflow="fold")
    for name in numbers:
        table.add_column(name, justify="right")
    return table


def figure_table(columns: Sequence[tuple[str, Mapping[str, Any]]]) -> Table:
    """Return a table of figures, one column a run; with two runs, the ratio of the second to the first."""
    table = plain_table()
    table.add_column("", no_wrap=True)
    for name, _ in columns:
        table.add_column(name, justify="right", overflow="fold")
    if len(columns) == 2:
        table.add_column("ratio", justify="right", style="bold")
    for figure in SHOWN:
        values = [summary.get(figure) for _, summary in columns]
        row = [FIGURES[figure].label, *(figure_text(figure, value) for value in values)]
        if len(columns) == 2:
            row.append(ratio(values[0], values[1]))
        table.add_row(*row)
    return table


def ratio(base: float | None, value: float | None) -> str:
    """Return how many times ``base`` a value is."""
    if not base or value is None:
        return "–"
    return f"{value / base:.2f}x"
