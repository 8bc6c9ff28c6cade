"""Tables of real runs, measured and predicted by their simulated twins: docs/desktops.md and docs/inference.md."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from experiments.common import Figures
from experiments.markdown import from_record, short_commit, table


def twin_table(figures: Figures) -> str:
    """A real run, measured and predicted."""
    rows = []
    for name, measured in figures["measured"].items():
        predicted, error = figures["predicted"][name], figures["relative_error"][name]
        cells = ["–" if value is None else f"{value:.4g}" for value in (measured, predicted)]
        rows.append([name.replace("_", " "), *cells, "–" if error is None else f"{error:+.1%}"])
    return table(["figure", "measured", "predicted", "error"], rows) + "\n"


def real_profile(figures: Figures) -> str:
    """A run on real desktops, measured and predicted."""
    settings = figures["config"]
    about = (
        f"{settings['rollout']['num_envs']} desktops, {60.0 * settings['run']['hours']:.3g} minutes, "
        f"{figures['runs'][0]['num_updates']} updates. "
        f"Recorded at commit {short_commit(figures)}, "
        f"load {figures['load_average']:.1f} at its begin.\n"
    )
    return twin_table(figures) + about


def real_loop(figures: Figures) -> str:
    """The whole loop for real, measured and predicted, and what it learned and lost."""
    about = (
        f"Engines: {figures['engines']}; {60.0 * figures['config']['run']['hours']:.3g} minutes, seeds "
        f"{', '.join(map(str, figures['seeds']))}: success on held-out tasks {figures['success_rate_first']:.1%} → "
        f"{figures['success_rate_last']:.1%}; {figures['failed_requests']} requests failed and were asked again, "
        f"{figures['lost_requests']} were lost; a change of weights took {figures['sync_seconds_p50']:.2f} s (median). "
        f"Recorded at commit {short_commit(figures)}, load {figures['load_average']:.1f}.\n"
    )
    return twin_table(figures) + about


TABLES: Mapping[str, Callable[[], str]] = {
    "desktop-twin": from_record("real_profile_desktop", real_profile),
    "real-loop": from_record("real_loop", real_loop),
}
"""The tables, by their names on the pages."""
