"""What the headline's parameters predict for runs they were not fitted to.

All are facts of DART's public run history; ``fitted`` ones are of the runs to which the parameters were fitted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from experiments.clusters import Cluster, run_clusters
from experiments.study import Options

Figures = Mapping[str, Any]

PRESET = "dart-measured"
"""The headline run: what was measured had 8 attempts of a fixed length at every task."""

READ: Mapping[str, Callable[[Figures], float]] = {
    # Desktop seconds of a turn: between the first request and the last observation, and of any kind.
    "seconds_per_turn": lambda run: run["num_envs"] * run["env_utilization"] * 60.0 / run["generated_turns_per_minute"],
    "desktop_seconds_per_turn": lambda run: run["num_envs"] * 60.0 / run["generated_turns_per_minute"],
    "trajectories_per_version": lambda run: run["trajectories_per_minute"] * run["minutes_per_version"],
}
"""How our figure is computed where it is not a figure of the run itself."""


class OtherRunFigure(NamedTuple):
    """One figure of a run that we predict."""

    name: str
    figure: str
    kind: str
    known: float
    changes: tuple[str, ...] = ()

    def read(self, run: Figures) -> float:
        return float(READ[self.figure](run) if self.figure in READ else run[self.figure])


def _size(num_envs: int, num_workers: int, *more: str) -> tuple[str, ...]:
    hosts = max(1, num_envs // 10)
    return (
        f"rollout.num_envs={num_envs}",
        f"rollout.num_workers={num_workers}",
        f"cluster.hosts.count={hosts}",
        *more,
    )


GPU8, GPU2 = _size(77, 8, "rollout.max_turns=100"), _size(20, 2, "rollout.max_turns=15")
PER_MINUTE, PER_VERSION = "trajectories_per_minute", "trajectories_per_version"

PREDICTIONS = tuple(
    OtherRunFigure(*row)
    for row in (
        ("train181: 4 GPUs, 38 desktops, 24.4 h", "desktop_seconds_per_turn", "fitted", 12.1),
        ("headline: 4 GPUs, 38 desktops", PER_VERSION, "fitted", 278.4),
        ("gpu8: 8 GPUs, 77 desktops, 100 turns, 3.1 h", PER_MINUTE, "measured", 12.1, GPU8),
        ("gpu8: 8 GPUs, 77 desktops, 100 turns, next 2.1 h", PER_MINUTE, "measured", 9.9, GPU8),
        ("gpu2: 2 GPUs, 20 desktops, 15 turns, steady state", PER_MINUTE, "measured", 34 / 223 * 60, GPU2),
        ("gpu2: 2 GPUs, 20 desktops, 15 turns, cold start", "seconds_per_turn", "measured", 12.0, GPU2),
        ("45-task ablation: 2 GPUs, 20 desktops", PER_VERSION, "measured", 140.0, _size(20, 2, "tasks.count=45")),
    )
)


def other_runs(hours: float, options: Options) -> list[dict[str, Any]]:
    """Predict all of them and return the entries of the headline's ``other_runs``."""
    changes = list(dict.fromkeys(prediction.changes for prediction in PREDICTIONS))
    clusters = [Cluster(PRESET, hours, changes=change) for change in changes]
    figures = {
        change: {**found, "num_envs": cluster.config.rollout.num_envs}
        for change, cluster, found in zip(changes, clusters, run_clusters(clusters, options, "other runs"), strict=True)
    }
    entries = []
    for prediction in PREDICTIONS:
        predicted = prediction.read(figures[prediction.changes])
        entries.append(
            {
                "name": prediction.name,
                "figure": prediction.figure,
                "kind": prediction.kind,
                "measured": prediction.known,
                "predicted": predicted,
                "error": predicted / prediction.known - 1.0,
            }
        )
    return entries
