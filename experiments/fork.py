"""Real desktops that boot, return to a snapshot or fork: training runs, their predictions, and forks under kills.

python -m experiments.fork --results FILE          everything: 90 minutes; needs `dartsim desktop build --vm`
python -m experiments.fork few --results FILE      one part of it
python -m experiments.fork --results FILE --record what FILE lacks, and record all

Parts, with emulated machines on two cores: six runs of one or two machines (few, 25 minutes), three of four machines
(four, 36 minutes), six of containers (containers, 8 minutes), and 500 forks while containers are killed (kills, 25
minutes). FILE keeps each finished run.
"""

from __future__ import annotations

import argparse
from statistics import median
from typing import Any, Literal

from dartsim.lab.sweep import ArmRun, InProcess, sweep
from experiments.charts import BLUE, GRAY, INK, ORANGE, drawing, label_axes
from experiments.study import Experiment, Figures, Options, Rows, StudyPicture, rows_of, short_commit

Mode = Literal["boot", "snapshot", "fork"]
MODES: tuple[Mode, ...] = ("boot", "snapshot", "fork")
SPARE_MODES: tuple[Mode, ...] = ("boot", "fork")
"""Those of containers."""
PARTS = ("few", "four", "containers", "kills")
PREDICTED = ("env_utilization", "generated_turns_per_minute", "trajectories_per_minute")
"""Figures whose prediction is judged: those of desktops."""


def measure(options: Options) -> Figures:
    """Make the runs of the parts that were asked for, then the forks under kills; finished ones come from the file."""
    # Imported here: pages are made without Docker.
    from experiments.fork_work import DesktopRun, desktop_run, forks_under_kills

    own, quick = options.own, options.quick
    if options.record and own.parts:
        raise SystemExit("--record keeps all parts; name none, and give --results with those that were measured")
    minutes = min(own.minutes, 1.0) if quick else own.minutes
    short, shortest = min(minutes, 3.0), min(minutes, 1.0)
    runs = {
        "few": [DesktopRun("vm", mode, number, short) for number in (1, 2) for mode in MODES],
        "four": [DesktopRun("vm", mode, 4, minutes) for mode in MODES],
        "containers": [DesktopRun("container", mode, number, shortest) for number in (1, 2, 4) for mode in SPARE_MODES],
    }
    parts = own.parts or PARTS
    arms = [
        ArmRun(f"{spec.num_desktops} {spec.desktop} {spec.mode}", 0, spec)
        for part in parts
        for spec in runs.get(part, ())
    ]
    common: dict[str, Any] = {"console": options.console, "results": options.results, "reports": True}
    rows = sweep(desktop_run, arms, name="runs", executor=InProcess(), **common)
    figures: Figures = {"modes": rows}
    if "kills" in parts:
        forks = ArmRun("kills", 0, min(own.forks, 10) if quick else own.forks)
        [figures["killed"]] = sweep(forks_under_kills, [forks], name="kills", executor=InProcess(), **common)
    everything = [*rows, *([figures["killed"]] if "killed" in figures else [])]
    return {
        **figures,
        "forks": sum(row["counts"].get("forked", 0) for row in everything),
        **{name: sum(row[name] for row in everything) for name in ("leaked", "mixed_up", "wrong_scores")},
        "config": DesktopRun("vm", "fork", 4, minutes).config.model_dump(mode="json"),
    }


def run_rows(figures: Figures) -> Rows:
    """Every run."""
    columns = {
        "desktops": "{num_desktops} {desktop}",
        "mode": "`{mode}`",
        "attempts": "{attempts}",
        "updates": "{updates}",
        "seconds between attempts": "{p50:.1f}",
        "95th percentile": "{p95:.1f}",
        "steps/min": "{steps_per_minute:.1f}",
        "predicted": "{predicted[generated_turns_per_minute]:.1f}",
        "a state, MB": "{snapshot_mb}",
        "wrong scores": "{wrong_scores}",
    }
    return rows_of(columns, [{**row, **row["gap_seconds"]} for row in figures["modes"]])


OPERATIONS = {
    "desktop/start": "start the container",
    "desktop/boot": "boot, or answer again",
    "env/save": "save a state",
    "env/restore": "return to a state",
    "desktop/setup": "set up",
    "desktop/ready": "set-up shows",
    "desktop/act": "carry out an action",
    "desktop/settle": "screen rests",
    "desktop/screenshot": "screenshot",
    "desktop/evaluate": "score",
    "desktop/teardown": "tear down",
}
"""Calls of a desktop by their names in the timings."""


def operation_rows(figures: Figures) -> Rows:
    """Seconds of each operation of one machine alone and of four, by mode."""
    machines = [row for row in figures["modes"] if row["desktop"] == "vm" and row["num_desktops"] in (1, 4)]
    columns = {
        "median seconds": "{operation}",
        **{f"`{row['mode']}`, {row['num_desktops']}": f"{{m{number}:.2f}}" for number, row in enumerate(machines)},
    }
    entries = (
        {"operation": words, **{f"m{number}": row["seconds"].get(name) for number, row in enumerate(machines)}}
        for name, words in OPERATIONS.items()
    )
    return rows_of(columns, entries)


def found(figures: Figures) -> str:
    """Say what it came to."""
    if len({(row["desktop"], row["num_desktops"]) for row in figures["modes"]}) < 6 or "killed" not in figures:
        return "Parts are missing.\n"
    runs, killed = figures["modes"], figures["killed"]
    machines = {(row["num_desktops"], row["mode"]): row for row in runs if row["desktop"] == "vm"}
    containers = {(row["num_desktops"], row["mode"]): row for row in runs if row["desktop"] == "container"}

    def gap(rows: Any, mode: str) -> float:
        return float(rows[4, mode]["gap_seconds"]["p50"])

    state = median(row["snapshot_mb"] for row in machines.values() if row["snapshot_mb"] is not None)
    name, mode, error = worst_prediction(figures)
    return (
        f"Four emulated machines on {figures['machine']['logical_cores']} cores, median seconds between two attempts: "
        f"{gap(machines, 'boot'):.0f} with `boot`, {gap(machines, 'snapshot'):.0f} with `snapshot`, "
        f"{gap(machines, 'fork'):.1f} with `fork` (four containers: {gap(containers, 'boot'):.1f}, and "
        f"{gap(containers, 'fork'):.1f} with spares that are set up); a state takes {state:.0f} MB. Largest error of "
        f"their twins' predictions {abs(error):.0%} ({name.replace('_', ' ')}, `{mode}`). {figures['forks']} forks, "
        f"{killed['counts'].get('forked', 0)} of them while {killed['kills']} containers were killed at random: "
        f"{figures['leaked']} containers or volumes left behind, {figures['mixed_up']} attempts in the state of "
        f"another task, {figures['wrong_scores']} wrong scores. Recorded at commit {short_commit(figures)}.\n"
    )


def worst_prediction(figures: Figures) -> tuple[str, str, float]:
    """Return the figure of four machines that was predicted worst, its mode, and the relative error."""
    four = [row for row in figures["modes"] if (row["desktop"], row["num_desktops"]) == ("vm", 4)]
    errors = [(name, row["mode"], row["relative_error"][name] or 0.0) for row in four for name in PREDICTED]
    return max(errors, key=lambda error: abs(error[2]))


@drawing(2.2)
def picture(figure: Any, figures: Figures) -> None:
    """Seconds between attempts by number of machines, and steps per minute of four, by mode."""
    machines = [row for row in figures["modes"] if row["desktop"] == "vm"]
    left, right = figure.subplots(1, 2)
    for mode, color in zip(MODES, (GRAY, ORANGE, BLUE), strict=True):
        own = sorted((row["num_desktops"], row["gap_seconds"]["p50"]) for row in machines if row["mode"] == mode)
        left.plot(*zip(*own, strict=True), color=color, marker="o", label=mode)
    left.set_yscale("log")
    left.set_yticks([1, 3, 10, 30, 60], ["1", "3", "10", "30", "60"])
    left.minorticks_off()
    left.set_xticks([1, 2, 4])
    left.legend()
    label_axes(left, "seconds between attempts", "machines", zero=False)
    four = [next(row for row in machines if (row["mode"], row["num_desktops"]) == (mode, 4)) for mode in MODES]
    right.bar(MODES, [row["steps_per_minute"] for row in four], color=[GRAY, ORANGE, BLUE])
    right.plot(MODES, [row["predicted"]["generated_turns_per_minute"] for row in four], "D", color=INK)
    label_axes(right, "steps per minute, four machines", "diamond: predicted by the twin")


def _own_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("parts", nargs="*", choices=[[], *PARTS], metavar="PART", help=f"{', '.join(PARTS)}; default: all")
    add("--minutes", type=float, default=10.0, help="length of the runs with four machines; at most 3 of other runs")
    add("--forks", type=int, default=500, help="forks while containers are killed, default 500")


STUDY = Experiment(
    name="fork",
    about=str(__doc__),
    measure=measure,
    seeds=1,
    tables={"fork-runs": run_rows, "fork-operations": operation_rows, "fork-found": found},
    pictures={"fork": StudyPicture("Seconds between attempts, and steps per minute, by mode", picture)},
    add_arguments=_own_options,
)

if __name__ == "__main__":
    STUDY.run()
