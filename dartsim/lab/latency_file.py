"""Measured latencies of desktops from a CSV file, as settings of the modeled cluster."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

from dartsim.config.load import from_tree
from dartsim.core.errors import ConfigError
from dartsim.lab.measure import quantiles

MAX_MEDIAN_SECONDS = {"start": 600, "boot": 900, "setup": 300, "step": 60, "evaluate": 300, "teardown": 120}
"""Latencies of a desktop (``cluster.env.latency``), and the median above which a column looks like milliseconds."""

UNITS = {"s": 1.0, "ms": 1e-3}


def latency_settings(file: Path, columns: Mapping[str, str], unit: str | None) -> dict[str, Any]:
    """Return the settings of latencies, each with the quantiles of its column.

    Args:
        file: A CSV file with a line of column names.
        columns: The column of each latency.
        unit: ``s`` or ``ms``; None: seconds, unless a column looks like milliseconds.

    Raises:
        ConfigError: If the file, a column or a value is not usable, or the unit is ambiguous.
    """
    if unknown := [name for name in columns if name not in MAX_MEDIAN_SECONDS]:
        known = ", ".join(MAX_MEDIAN_SECONDS)
        raise ConfigError(f"a desktop has no latency {unknown[0]!r}; it has: {known} (--column step=NAME)")
    times = {name: _read_column(file, column) for name, column in columns.items()}
    if unit is None:
        for name, values in times.items():
            middle = median(values)
            if middle > MAX_MEDIAN_SECONDS[name] or columns[name].lower().endswith("ms"):
                raise ConfigError(
                    f"{file}: column {columns[name]!r} looks like milliseconds (median {middle:,.6g}): give --unit ms "
                    "or --unit s"
                )
    factor = UNITS[unit or "s"]
    latency = {name: quantiles(factor * value for value in values) for name, values in times.items()}
    tree = {"cluster": {"env": {"latency": latency}}}
    from_tree(tree)
    return tree


def _read_column(file: Path, column: str) -> list[float]:
    """Return the numbers in a column, without empty cells."""
    try:
        with file.open(newline="", encoding="utf-8-sig") as lines:
            rows = csv.DictReader(lines)
            names = rows.fieldnames or []
            if column not in names:
                raise ConfigError(f"{file} has no column {column!r}; it has: {', '.join(names) or 'none'}")
            cells = [(rows.line_num, (row[column] or "").strip()) for row in rows]
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise ConfigError(f"{file} is not a CSV file: {error}") from None
    values = [_number(file, line, column, cell) for line, cell in cells if cell]
    if len(values) < 2:
        raise ConfigError(f"{file}: column {column!r} has {len(values)} values; two or more are wanted")
    return values


def _number(file: Path, line: int, column: str, cell: str) -> float:
    try:
        value = float(cell)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value < 0.0:
        raise ConfigError(f"{file}, line {line}: {column} = {cell!r}; a number of 0 or more is wanted")
    return value
