"""Tables of docs/learning.md and docs/ablation.md about runs that learn: the main job, and history images."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from experiments.common import Figures
from experiments.history_images import HEAD as HISTORY_HEAD
from experiments.history_images import rows as history_rows
from experiments.markdown import from_record, table


def main_job(figures: Figures) -> str:
    """The main job by seed."""
    rows = [
        [
            str(run["seed"]),
            f"{run['success_rate_initial']:.1%}",
            f"{run['success_rate_final']:.1%}",
            str(run["total_updates"]),
            f"{run['simulated_hours']:.1f}",
            f"{run['cpu_seconds']:.0f}",
        ]
        for run in figures["runs"]
    ]
    head = ["seed", "success at first", "at last", "updates", "simulated hours", "CPU seconds"]
    reached = f"{figures['learned']} of {len(rows)} seeds end at {figures['wanted_success_rate']:.0%} or more"
    return table(head, rows) + f"\n{reached}, on held-out tasks; the run ends itself at 92 %.\n"


def history_images(figures: Figures) -> str:
    """Learning by how history screenshots are dropped."""
    less = figures["block_less_slide"]
    last = f"Block less slide, seed by seed: {less['mean']:+.1%} ± {less['ci95']:.1%}"
    return table(HISTORY_HEAD, history_rows(figures)) + f"\n{last}, {len(figures['seeds'])} seeds.\n"


TABLES: Mapping[str, Callable[[], str]] = {
    "main-job": from_record("main_job", main_job),
    "history-images": from_record("history_images", history_images),
}
"""The tables, by their names on the pages."""
