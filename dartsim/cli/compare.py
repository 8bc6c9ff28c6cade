"""``dartsim compare``: several presets on the same workload, side by side."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from dartsim.cli.compared_runs import ComparedRun, make_runs
from dartsim.cli.console import SHOWN, errors, figure_table, out, plain_table, write_json
from dartsim.cli.options import FaultsOption, Hours, Json, Out, Overrides, WorkloadOption, new_folder, settings
from dartsim.config import Config, to_toml
from dartsim.core.errors import ConfigError
from dartsim.observe.bias import BAND, JUDGED, pooled

if TYPE_CHECKING:
    from dartsim.observe.rundir import RunDir

EXAMPLES = (
    "Examples:\n\n"
    "dartsim compare coupled dart-measured\n\n"
    "dartsim compare coupled dart-measured --seeds 3 --hours 8 --json figures.json\n\n"
    "dartsim compare coupled dart --faults hostile\n\n"
    "dartsim compare dart-measured areal-eta4 dartsim --workload osworld --seeds 5\n\n"
    "dartsim compare dart dart-released \\\n  --set cluster.hosts.count=8 --set rollout.num_envs=80"
)

PUBLISHED = {
    "coupled": {"trained_turns_per_minute": 22.6, "env_utilization": 0.122, "gpu_utilization": 0.296},
    "dart-measured": {"trained_turns_per_minute": 43.6, "env_utilization": 0.677, "gpu_utilization": 0.467},
}
"""The efficiency table of DART (arXiv 2509.23866, project page), by the presets that have its run's settings."""

BESIDE = 4
"""Largest number of presets in one table."""

UPDATES = "hours to update {}"
"""The row of the time to an update; its number is unwrap_paragraphs in."""

ROWS: dict[str, tuple[str, float]] = {
    "trained turns/min": ("trained_turns_per_minute", 1.0),
    "  with a signal": ("signal_turns_per_minute", 1.0),
    "  closed-form bound": ("bound_trained_turns_per_minute", 1.0),
    "admitted turns/min": ("admitted_turns_per_minute", 1.0),
    "generated turns/min": ("generated_turns_per_minute", 1.0),
    "desktops busy, %": ("env_utilization", 100.0),
    "GPUs busy, %": ("gpu_utilization", 100.0),
    "prefix hits, %": ("prefix_hit_share", 100.0),
    "staleness, mean": ("staleness_mean", 1.0),
    "staleness, most": ("staleness_max", 1.0),
    "not trained, %": ("wasted_share", 100.0),
    UPDATES: ("hours_to_updates", 1.0),
    "desktop h/1000 turns": ("desktop_hours_per_1000_turns", 1.0),
    "GPU h/1000 turns": ("gpu_hours_per_1000_turns", 1.0),
}
"""Rows of the table: the figure (``dartsim.lab.comparison``), and what it is multiplied by."""

Classes = Mapping[str, Any]
"""What ``dartsim.lab.comparison.classes_over_seeds`` returned."""

Column = tuple[str, Mapping[str, Mapping[str, float | None]], Classes]
"""A preset: its name, ``over_seeds`` of its runs, its classes of tasks."""


def compare(
    presets: Annotated[list[str], typer.Argument(help="Presets; see `dartsim presets`.", metavar="PRESET")],
    overrides: Overrides = None,
    hours: Hours = None,
    faults: FaultsOption = None,
    workload: WorkloadOption = None,
    seeds: Annotated[int, typer.Option(min=1, help="Seeds of each preset, from 0; figures are means.")] = 1,
    updates: Annotated[
        int | None,
        typer.Option(min=1, help="Report time to this update; default: the last update that all runs finished."),
    ] = None,
    ray: Annotated[
        str | None,
        typer.Option(
            "--ray",
            metavar="ADDRESS",
            help="Spread the runs over a Ray cluster: HOST:PORT of its head, auto, or local.",
        ),
    ] = None,
    out_folder: Out = None,
    json_file: Json = None,
) -> None:
    """Run presets side by side, on all cores or on a Ray cluster, and show one table and one page.

    With a workload, a preset is its scheduler alone: cluster, tasks and latencies are the workload's. Every run's own
    folder lies below the comparison's.
    """
    from dartsim.lab.comparison import classes_over_seeds, over_seeds
    from dartsim.observe.report import render_comparison, surrogates
    from dartsim.observe.rundir import read_run

    folder = out_folder or new_folder("compare-" + "-".join(dict.fromkeys(presets)))
    jobs = plan(presets, settings(overrides, hours, None, faults), seeds, folder, workload)
    try:
        make_runs(jobs, ray)
    except KeyboardInterrupt:
        _report_interrupted(jobs, folder)
        raise typer.Exit(130) from None
    runs = [read_run(job.path) for job in jobs]
    updates, figures = _figures(runs, updates)
    by_preset = {
        name: [found for run, found in zip(runs, figures, strict=True) if run.name == name]
        for name in dict.fromkeys(presets)
    }
    classes = {name: classes_over_seeds(own) for name, own in by_preset.items()}
    columns = [(name, over_seeds(own), classes[name]) for name, own in by_preset.items()]
    page = render_comparison(
        [run for run in runs if run.summary["seed"] == 0],
        folder / "comparison.html",
        # On a workload a preset is not the run whose figures were published.
        published=PUBLISHED if workload is None else None,
        means=[found for _, found, _ in columns],
        table=scheduler_rows(columns, updates),
        bias=[pooled([found["bias"] for found in own]) for own in by_preset.values()],
        num_seeds=seeds,
    )
    if json_file != "-":
        means = [(name, _mean([r.summary for r in runs if r.name == name])) for name in by_preset]
        if len(means) <= 2:
            out.print(figure_table(means))
        for table in scheduler_tables(columns, updates):
            out.print(table)
        for line in starved_lines(classes):
            out.print(line, highlight=False)
        if seeds > 1:
            out.print(
                f"means over {seeds} seeds, ± half the 95 % confidence interval; the page's timelines show seed 0"
            )
        told = surrogates([(run.name, run.summary) for run in runs])
        if told:
            out.print(told, highlight=False)
        out.print(f"report: {page.resolve().as_uri()}", soft_wrap=True)
    if json_file is not None:
        write_json([_row(run, found, updates) for run, found in zip(runs, figures, strict=True)], json_file)


def plan(
    presets: Sequence[str], overrides: Sequence[str], seeds: int, folder: Path, workload: str | None = None
) -> list[ComparedRun]:
    """Return the runs of a comparison, each checked before any of them starts.

    Raises:
        ConfigError: If a preset or setting is wrong, or the folder holds a comparison already.
    """
    from dartsim.config import load
    from dartsim.run.prepare import prepare

    files = [name for name in presets if name.endswith(".toml") or Path(name).is_file()]
    if files:
        raise ConfigError(
            f"compare takes presets, not files, and got {', '.join(files)}; `dartsim run FILE` runs one, "
            "`dartsim presets` lists presets"
        )
    jobs: list[ComparedRun] = []
    for preset in dict.fromkeys(presets):
        for seed in range(seeds):
            config = load(preset_name=preset, workload_name=workload, overrides=[*overrides, f"run.seed={seed}"])
            prepare(config)
            _refuse_without_engine(config)
            jobs.append(ComparedRun(config, folder / f"{preset}-seed{seed}"))
    _refuse_other_comparison(jobs, folder)
    return jobs


def _refuse_other_comparison(runs: Sequence[ComparedRun], folder: Path) -> None:
    """Refuse a folder that holds anything but a part of this very comparison.

    Raises:
        ConfigError: If it does.
    """
    from dartsim.observe.rundir import CONFIG

    begun = {run.path for run in runs if (run.path / CONFIG).is_file()}
    own = {
        run.path for run in runs if run.path in begun and (run.path / CONFIG).read_text("utf-8") == to_toml(run.config)
    }
    if folder.exists() and (begun != own or not set(folder.iterdir()) <= {run.path for run in runs}):
        raise ConfigError(f"{folder} already exists; name another folder with --out")


def _report_interrupted(jobs: Sequence[ComparedRun], folder: Path) -> None:
    """Report how many runs were finished, and how to resume."""
    from dartsim.observe.rundir import SUMMARY

    done = sum((job.path / SUMMARY).is_file() for job in jobs)
    errors.print(
        f"interrupted: {done} of {len(jobs)} runs were finished, no comparison was written; the same command "
        + (f"with --out {folder} resumes" if folder.exists() else "begins again"),
        highlight=False,
    )


def _refuse_without_engine(config: Config) -> None:
    """Refuse a preset on real desktops where no engine of this machine answers."""
    local = all(host.url is None for host in config.desktop.hosts.values())
    if not config.backend.boots or not local:
        return
    from dartsim.cli.doctor import check_engine
    from dartsim.cli.service_checks import OK

    engine = check_engine()
    if engine.state is not OK:
        raise ConfigError(f"preset {config.preset!r} needs real desktops, and {engine.found}; {engine.fix}")


def _mean(summaries: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the mean of each shown figure over seeds; of the largest staleness, the largest."""
    found: dict[str, Any] = {}
    for name in SHOWN:
        values = [summary[name] for summary in summaries if summary.get(name) is not None]
        if values:
            found[name] = max(values) if name == "staleness_max" else mean(values)
    return found


def _row(run: RunDir, figures: dict[str, Any], updates: int | None) -> dict[str, Any]:
    return {
        "preset": run.summary["preset"],
        "seed": run.summary["seed"],
        "workload": run.summary["config"]["workload"],
        "updates": updates,
        **figures,
    }


def _figures(runs: Sequence[RunDir], updates: int | None) -> tuple[int | None, list[dict[str, Any]]]:
    """Return the update to which time is reported, and each run's figures.

    Args:
        runs: All of them.
        updates: That update; None: the last one that all of them finished, if there is one.
    """
    from dartsim.lab.comparison import compared

    finished = [update_hours(run.path) for run in runs]
    number = updates or min(map(len, finished)) or None
    return number, [compared(run.summary, hours, updates=number) for run, hours in zip(runs, finished, strict=True)]


def update_hours(path: Path) -> list[float]:
    """Return when each update of a run was finished, hours of the run's time."""
    from dartsim.run.resume_point import METRICS

    lines = (path / METRICS).read_text("utf-8").splitlines()
    return [json.loads(line)["time"] / 3600.0 for line in lines]


def scheduler_rows(found: Sequence[Column], updates: int | None) -> list[tuple[str, list[str]]]:
    """Return rows of one cell a preset: means over seeds, with half the 95 % confidence interval if there is one.

    Below them the class of tasks that is trained least, of all seeds together.

    Args:
        found: The presets.
        updates: The update to which time is reported.
    """
    known = [name for name in JUDGED if any(name in classes["least_classes"] for *_, classes in found)]
    figures = [
        (label.format(updates or "–"), [_cell(figures.get(figure), scale) for _, figures, _ in found])
        for label, (figure, scale) in ROWS.items()
    ]
    return figures + [
        (f"least by {by}", [_least(classes["least_classes"].get(by)) for *_, classes in found]) for by in known
    ]


def scheduler_tables(found: Sequence[Column], updates: int | None) -> list[Table]:
    """Return ``scheduler_rows`` as tables of a few presets beside each other."""
    tables = []
    rows = scheduler_rows(found, updates)
    for start in range(0, len(found), BESIDE):
        part = slice(start, start + BESIDE)
        table = plain_table("", numbers=[name for name, *_ in found[part]])
        for label, cells in rows:
            table.add_row(label, *cells[part])
        tables.append(table)
    return tables


def _least(share: Mapping[str, Any] | None) -> str:
    return "–" if share is None else f"{share['class']} {share['ratio']:.2f}"


def starved_lines(classes: Mapping[str, Classes]) -> list[str]:
    """Return a line for each class of tasks that a preset starves."""
    return [
        f"{preset} starves {share['class']} tasks (by {share['by']}): of what the group filter leaves of them, "
        f"{share['ratio']:.2f} times as much is trained as of all ({share['low']:.2f} to {share['high']:.2f} at 95 %; "
        f"starved is below {BAND:g})"
        for preset, found in classes.items()
        for share in found["starved_classes"] or ()
    ]


def _cell(figure: Mapping[str, float | None] | None, scale: float) -> str:
    if figure is None or figure["mean"] is None:
        return "–"
    if isinstance(figure["mean"], int):  # a largest one is a count, not a mean
        return str(figure["mean"])
    width = figure["half_width"]
    digits = 2 if scale * abs(figure["mean"]) < 10 else 1
    text = f"{scale * figure['mean']:.{digits}f}"
    return text if width is None else f"{text} ±{scale * width:.{digits}f}"
