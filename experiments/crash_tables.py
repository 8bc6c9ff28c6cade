"""The table of docs/storage.md: what crashes lost."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from experiments.common import Figures
from experiments.markdown import from_record, table


def crashes(figures: Figures) -> str:
    """Crashes by way: how many, what was under way, what was wrong."""
    rows = [
        [row["way"], *(f"{row[name]:,}" for name in ("crashes", "attempts", "interrupted", "updates")), _wrong(row)]
        for row in figures["simulated"]
    ]
    real = figures["real"]
    rows.append(["`kill -9` of a process (dart)", f"{real['kills']:,}", "", "", "", _wrong(real)])
    head = ["runs", "crashes", "attempts", "interrupted", "updates", "violations"]
    return table(head, rows) + f"\nLost: {figures['lost']}. Trained twice: {figures['doubled']}.\n"


def _wrong(row: dict[str, Any]) -> str:
    return ", ".join(f"{name}: {number}" for name, number in row["violations"].items()) or "none"


TABLES: Mapping[str, Callable[[], str]] = {
    "crashes": from_record("crashes", crashes),
}
"""The tables, by their names on the pages."""
