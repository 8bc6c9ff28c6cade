"""The presets of real OSWorld on modeled clusters: what they train, and the GPU hours that 75,000 turns would take.

python -m experiments.osworld_twins            eight clusters, 12 simulated hours each: some six minutes on two cores
python -m experiments.osworld_twins --quick    the same keys, from two hours of the two smallest
"""

from __future__ import annotations

from collections.abc import Sequence

from dartsim.lab.sweep import ArmRun
from dartsim.lab.virtual import planned
from dartsim.run.prepare import prepare
from dartsim.run.simulation import run_simulation
from experiments.charts import Panel, Series, draw
from experiments.clusters import Cluster, mean_figures
from experiments.study import Experiment, Figures, Options, Rows, StudyPicture, rows_of, short_commit

HEADLINE_TURNS = 75_000
"""Turns that DART's headline run trained on, in 82 versions, while its success rate rose from .55 to .66."""

ARMS: Sequence[tuple[str, int | None]] = (
    ("osworld-1gpu", None),
    ("osworld-1gpu", 16),
    ("osworld-dartsim-1gpu", None),
    ("osworld-8gpu", None),
    ("osworld-dartsim-8gpu", None),
    ("osworld-16gpu", None),
    ("osworld-16gpu", 80),
    ("osworld-dartsim-16gpu", None),
)
"""Presets, and another number of desktops than the preset's."""

FIGURES = ("trained_turns_per_minute", "generated_turns_per_minute", "wasted_share", "gpu_utilization")


def run_twin(cluster: Cluster) -> Figures:
    """Run the virtual twin of one configuration and return its figures."""
    return run_simulation(prepare(planned(cluster.config))).figures


def measure(options: Options) -> Figures:
    """Run every twin."""
    arms, hours = (ARMS[:2], 2.0) if options.quick else (ARMS, 12.0)
    runs = []
    for preset, desktops in arms:
        changes = () if desktops is None else (f"rollout.num_envs={desktops}",)
        runs += [ArmRun(preset, seed, Cluster(preset, hours, seed, changes)) for seed in range(options.seeds)]
    done = options.sweep(run_twin, runs)
    found = []
    for number, (preset, _) in enumerate(arms):
        own = done[number * options.seeds : (number + 1) * options.seeds]
        figures, gpus = mean_figures(own, FIGURES), int(preset.rpartition("-")[2].removesuffix("gpu"))
        days = HEADLINE_TURNS / figures["trained_turns_per_minute"] / 60.0
        desktops = runs[number * options.seeds].spec.config.rollout.num_envs
        found.append(
            {**figures, "preset": preset, "desktops": desktops, "gpus": gpus, "hours": days, "gpu_hours": gpus * days}
        )
    return {"arms": found, "config": {"hours": hours, "turns": HEADLINE_TURNS}}


def twin_rows(figures: Figures) -> Rows:
    """Return a row for each cluster."""
    columns = {
        "preset": "`{preset}`",
        "desktops": "{desktops}",
        "trained turns/min": "{trained_turns_per_minute:.1f}",
        "generated": "{generated_turns_per_minute:.0f}",
        "not trained": "{wasted_share:.0%}",
        "engines busy": "{gpu_utilization:.0%}",
        f"GPU hours for {HEADLINE_TURNS:,} turns": "{gpu_hours:.0f}",
        "hours": "{hours:.0f}",
    }
    return rows_of(columns, figures["arms"])


def provenance(figures: Figures) -> str:
    """Say what was run."""
    return (
        f"`python -m experiments.osworld_twins`: {figures['config']['hours']:g} simulated hours each, seeds: "
        f"{len(figures['seeds'])}. Recorded at commit {short_commit(figures)}.\n"
    )


def twins_picture(figures: Figures) -> str:
    """Bars: turns a minute and GPU hours of every cluster."""
    arms = figures["arms"]
    xs, none = range(len(arms)), [None] * len(arms)
    names = [f"{arm['preset'].removeprefix('osworld-')}, {arm['desktops']}" for arm in arms]
    ticks = list(enumerate(names))
    turns = [
        Series("generated", xs, [arm["generated_turns_per_minute"] for arm in arms], none, 1),
        Series("trained", xs, [arm["trained_turns_per_minute"] for arm in arms], none),
    ]
    hours = Series("GPU hours", xs, [arm["gpu_hours"] for arm in arms], none, 2)
    title = f"GPU hours for {HEADLINE_TURNS:,} trained turns"
    panels = [Panel("turns a minute", "", turns, ticks, bars=True), Panel(title, "", [hours], ticks, bars=True)]
    return draw(panels, tilt=True)


STUDY = Experiment(
    name="osworld_twins",
    about=str(__doc__),
    measure=measure,
    seeds=1,
    tables={"osworld-twins": twin_rows, "osworld-twins-provenance": provenance},
    pictures={"osworld-twins": StudyPicture("Turns a minute and GPU hours of the presets of OSWorld", twins_picture)},
)

if __name__ == "__main__":
    STUDY.run()
