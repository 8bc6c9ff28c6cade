"""What the headline's parameters predict for runs they were not fitted to.

Three kinds of entries: ``measured`` ones are facts of DART's public run history; ``fitted`` ones are such facts of the
runs to which the parameters were fitted; ``prototype`` ones are figures of an earlier, unpublished model of the same
system (1/n sharing of GPU seconds instead of an engine), which tell how much a conclusion depends on the model.
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
    # Share of desktop time that is not spent waiting for the rest of a sampling unit.
    "busy_desktops": lambda run: 1.0 - run["desktop_shares"]["wait_unit"],
}
"""How our figure is computed where it is not a figure of the run itself."""


class OtherRunFigure(NamedTuple):
    """One figure of a run that we predict.

    Attributes:
        name: The run.
        figure: What is predicted.
        kind: ``measured``, ``fitted`` or ``prototype``.
        known: The figure there.
        changes: What differs from the headline run, as ``--set`` takes it.
    """

    name: str
    figure: str
    kind: str
    known: float
    changes: tuple[str, ...] = ()

    def read(self, run: Figures) -> float:
        """Return our figure, from the figures of our run."""
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

MEASURED = tuple(
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

# A trainer and a weight sync that take no time, so that only the sampling unit matters.
PURE = (
    "cluster.learner.fixed_seconds=0.0",
    "cluster.learner.turn_seconds=0.0",
    "cluster.engine.reload_seconds=0.0",
    'rollout.sync.mode="keep"',
)

# desktops: (batch-wise, task-wise, rollout-wise) share of busy desktops
PURE_SCHEDULING = {
    8: (0.69, 0.69, 1.0),
    40: (0.54, 0.69, 0.997),
    80: (0.51, 0.69, 0.993),
    180: (0.49, 0.69, 0.98),
}

# change: (trained turns/min, environment utilization, GPU utilization, generated turns/min)
SENSITIVITIES: dict[str, tuple[tuple[str, ...], tuple[float, float, float, float]]] = {
    "base": ((), (43.8, 0.657, 0.460, 190)),
    "20 desktops": (_size(20, 4), (43.1, 0.648, 0.246, 102)),
    "60 desktops": (_size(60, 4), (44.1, 0.684, 0.673, 279)),
    "80 desktops": (_size(80, 4), (43.2, 0.712, 0.818, 338)),
    "80 desktops, 8 GPUs": (_size(80, 8), (43.6, 0.652, 0.495, 409)),
    "set-up + 60 s": (("cluster.env.latency.settle_seconds=60.0",), (44.7, 0.483, 0.344, 143)),
    "desktop step x 2": (
        ('cluster.env.latency.step={kind="gamma", mean_seconds=10.6, k=16.0}',),
        (45.1, 0.760, 0.322, 133),
    ),
    "trainer 2x faster": (
        ("cluster.learner.fixed_seconds=135.0", "cluster.learner.turn_seconds=0.55"),
        (88.6, 0.665, 0.453, 186),
    ),
    "trainer 4x faster": (
        ("cluster.learner.fixed_seconds=67.5", "cluster.learner.turn_seconds=0.275"),
        (102.3, 0.666, 0.449, 185),
    ),
    "120 desktops": (_size(120, 4), (43.8, 0.793, 0.878, 362)),
    "trainer 4x faster, all groups trained": (
        (
            "cluster.learner.fixed_seconds=67.5",
            "cluster.learner.turn_seconds=0.275",
            "curation.groups.drop_all_failed=false",
            "curation.groups.drop_solved=false",
        ),
        (171.6, 0.679, 0.430, 178),
    ),
    "slice reload 20 s": (("cluster.engine.reload_seconds=20.0",), (44.5, 0.653, 0.470, 194)),
}

SENSITIVE = ("trained_turns_per_minute", "env_utilization", "gpu_utilization", "generated_turns_per_minute")


def predictions() -> list[OtherRunFigure]:
    """Return everything that is predicted."""
    found = list(MEASURED)
    for num_envs, by_unit in PURE_SCHEDULING.items():
        for unit, known in zip(("batch", "task", "rollout"), by_unit, strict=True):
            changes = _size(num_envs, max(1, num_envs // 8), f'rollout.unit="{unit}"', *PURE)
            name = f"pure scheduling: {num_envs} desktops, {unit}-wise"
            found.append(OtherRunFigure(name, "busy_desktops", "prototype", known, changes))
    for name, (changes, values) in SENSITIVITIES.items():
        for figure, known in zip(SENSITIVE, values, strict=True):
            found.append(OtherRunFigure(f"sensitivity: {name}", figure, "prototype", known, changes))
    return found


def other_runs(hours: float, options: Options) -> list[dict[str, Any]]:
    """Predict all of them and return the entries of the headline's ``other_runs``."""
    wanted = predictions()
    changes = list(dict.fromkeys(prediction.changes for prediction in wanted))
    clusters = [Cluster(PRESET, hours, changes=change) for change in changes]
    figures = {
        change: {**found, "num_envs": cluster.config.rollout.num_envs}
        for change, cluster, found in zip(changes, clusters, run_clusters(clusters, options, "other runs"), strict=True)
    }
    entries = []
    for prediction in wanted:
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
