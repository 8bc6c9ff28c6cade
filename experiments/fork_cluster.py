"""Desktops that boot, return to a snapshot, or fork from their task's set-up: what each is worth on DART's cluster.

python -m experiments.fork_cluster               three seeds, 24 simulated hours each: about two minutes on two cores
python -m experiments.fork_cluster --quick       the same keys in less than one minute

Real desktops: ``experiments.fork``.
"""

from __future__ import annotations

from typing import Any, Literal

from dartsim.lab.bounds import around_seconds
from dartsim.run.prepare import prepare
from experiments.charts import BLUE, ORANGE, drawing, label_axes, rows_axis
from experiments.clusters import Cluster, mean_figures, run_clusters
from experiments.headline import LABELS
from experiments.other_runs import PRESET
from experiments.study import Experiment, Figures, Options, Rows, StudyPicture, cell, recorded_line

Mode = Literal["boot", "snapshot", "fork"]
MODES: tuple[Mode, ...] = ("boot", "snapshot", "fork")
FIGURES = ("env_utilization", "generated_turns_per_minute", "trained_turns_per_minute", "gpu_utilization")
EXPECTED = {
    "boot": {"env_utilization": 0.69, "generated_turns_per_minute": 181.0},
    "fork": {"env_utilization": 0.93, "generated_turns_per_minute": 226.0},
}
"""What was predicted before desktops could fork."""


def measure(options: Options) -> Figures:
    """Run DART's cluster in each mode over the seeds."""
    hours = 6.0 if options.quick else 24.0
    clusters = [
        Cluster(PRESET, hours, seed, (f'desktop.revert="{mode}"',)) for mode in MODES for seed in range(options.seeds)
    ]
    runs = run_clusters(clusters, options, "modes")
    size = options.seeds
    predicted: dict[str, Any] = {}
    for number, mode in enumerate(MODES):
        own = runs[number * size : (number + 1) * size]
        prepared = prepare(clusters[number * size].config)
        predicted[mode] = {
            **mean_figures(own, FIGURES),
            "around_seconds": around_seconds(prepared),
            "setup_share": sum(run["desktop_shares"]["setup"] for run in own) / size,
            "event_hashes": [run["event_hash"] for run in own],
        }
    return {
        "predicted": predicted,
        "expected": EXPECTED,
        "config": {mode: clusters[number * size].config.model_dump(mode="json") for number, mode in enumerate(MODES)},
    }


def fork_modes(figures: Figures) -> Rows:
    """DART's cluster in each mode."""
    found = figures["predicted"]
    rows = [[label, *(cell(f"{{{name}:{form}}}", found[mode]) for mode in MODES)] for name, label, form in ROWS]
    return ["", *(f"`{mode}`" for mode in MODES)], rows


ROWS = [
    ("env_utilization", *LABELS["env_utilization"]),
    ("generated_turns_per_minute", *LABELS["generated_turns_per_minute"]),
    ("gpu_utilization", *LABELS["gpu_utilization"]),
    ("around_seconds", "seconds around an attempt, if nothing waits", ".1f"),
    ("setup_share", "desktop time in set-up, or waiting for another's, %", ".1p"),
]


@drawing(2.0)
def fork_picture(figure: Any, figures: Figures) -> None:
    """Environment utilization and generated turns of each mode, with what was expected."""
    found, expected = figures["predicted"], figures["expected"]
    for axes, name in zip(figure.subplots(1, 2, sharey=True), FIGURES[:2], strict=True):
        scale, unit = (100.0, " %") if name == "env_utilization" else (1.0, "")
        values = [scale * found[mode][name] for mode in MODES]
        axes.barh(range(len(MODES)), values, color=BLUE, height=0.6)
        for row, mode in enumerate(MODES):
            axes.annotate(
                f"{values[row]:.0f}{unit}",
                (values[row], row),
                (-4, 0),
                textcoords="offset points",
                ha="right",
                va="center",
                color="white",
            )
            if mode in expected:
                axes.plot([scale * expected[mode][name]], [row], color=ORANGE, marker="D", ls="")
        rows_axis(axes, list(MODES))
        label_axes(axes, LABELS[name][0], "diamond: expected beforehand")


def provenance(figures: Figures) -> str:
    """What the recorded runs were."""
    return recorded_line(figures, f"{figures['config']['boot']['run']['hours']:g} simulated hours each")


STUDY = Experiment(
    name="fork_cluster",
    about=str(__doc__),
    measure=measure,
    tables={"fork-cluster-modes": fork_modes, "fork-cluster-provenance": provenance},
    pictures={
        "fork-cluster": StudyPicture(
            "Environment utilization and generated turns when desktops boot or fork", fork_picture
        )
    },
)

if __name__ == "__main__":
    STUDY.run()
