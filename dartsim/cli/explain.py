"""``dartsim explain``: why desktops, workers and trainer were idle, and what removing each cause would gain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from dartsim.cli.console import errors, out, plain_table, write_json
from dartsim.cli.options import Json
from dartsim.cli.tune import Processes, RayAddress

if TYPE_CHECKING:
    from dartsim.config import Config
    from dartsim.lab.whatif import Gains
    from dartsim.observe.rundir import RunDir

EXAMPLES = (
    "Examples:\n\n"
    "dartsim explain runs/dart-seed0\n\n"
    "dartsim explain runs/dart-seed0 --gain\n\n"
    "dartsim explain runs/real --gain --hours 2 --json -"
)

LEAST_SHARE = 0.005
"""Causes of less than this share of every population's time are not simulated away."""


def explain(
    run: Annotated[Path, typer.Argument(help="A run's folder.", metavar="RUN")],
    gain: Annotated[bool, typer.Option("--gain", help="Simulate the run without each cause.")] = False,
    hours: Annotated[float | None, typer.Option(help="Simulated hours of each; default: the run's, at most 8.")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Simulations of each, with the run's seed and the next.")] = 2,
    processes: Processes = None,
    ray: RayAddress = None,
    json_file: Json = None,
) -> None:
    """Show why a run's desktops, workers and trainer were idle: one cause for every second, largest first.

    With --gain the run is simulated again without each cause, and the table shows the gain in trained turns. Of
    a run by the machine's clock, RUN/twin.toml is simulated; `dartsim measure RUN` makes it.
    """
    from dartsim.core.errors import ConfigError
    from dartsim.observe.idle import ranking
    from dartsim.observe.rundir import read_run

    folder = read_run(run)
    if folder.idle is None:
        raise ConfigError(f"{run} kept no segments to explain; run it again with recorder.max_segments above 0")
    rows = ranking(folder.idle)
    found: dict[str, Any] = {
        "run_dir": str(run),
        "from_hours": folder.idle["start_seconds"] / 3600.0,
        "to_hours": folder.idle["end_seconds"] / 3600.0,
        "causes": rows,
        "at_work": at_work(folder.idle),
    }
    made: Gains | None = None
    if gain:
        made = _gains(folder, rows, hours, seeds, processes, ray)
        found["gains"] = {"base": dict(made.base), "without": [asdict(item) for item in made.gains]}
    if json_file != "-":
        _show(found, folder, made)
    if json_file is not None:
        write_json(found, json_file)


def at_work(idle: Mapping[str, Any]) -> dict[str, float]:
    """Return the share of each population's time that is at work: acting, busy, training."""
    from dartsim.observe.states import AT_WORK

    length = idle["end_seconds"] - idle["start_seconds"]
    return {
        name: population["seconds"].get(AT_WORK, 0.0) / (length * population["size"])
        for name, population in idle["populations"].items()
    }


def _gains(
    folder: RunDir,
    rows: Sequence[Mapping[str, Any]],
    hours: float | None,
    seeds: int,
    processes: int | None,
    ray: str | None,
) -> Gains:
    from dartsim.lab.sweep import WithProgress, executor_for, progress_bar
    from dartsim.lab.virtual import as_virtual, changed
    from dartsim.lab.whatif import gains

    config = as_virtual(_config(folder))
    config = changed(config, {"run.hours": hours or min(config.run.hours, 8.0), "run.updates": None})
    causes = dict.fromkeys(row["cause"] for row in rows if row["share"] >= LEAST_SHARE)
    first = config.run.seed
    try:
        with executor_for(processes, ray) as executor, progress_bar(errors) as progress:
            counted = WithProgress(executor, progress, "runs", size=lambda job: len(job.seeds))
            return gains(config, list(causes), tuple(range(first, first + seeds)), counted)
    except KeyboardInterrupt:
        errors.print("interrupted: nothing was written; the same command starts again")
        raise typer.Exit(130) from None


def _config(folder: RunDir) -> Config:
    """Return what stands for a run in the laboratory: its configuration, or its twin if it was real."""
    from dartsim.cli.measure import TWIN
    from dartsim.config import load
    from dartsim.observe.rundir import CONFIG

    twin = folder.path / TWIN
    return load(twin if twin.is_file() else folder.path / CONFIG)


def _show(found: Mapping[str, Any], folder: RunDir, made: Gains | None) -> None:
    from dartsim.observe.states import CAUSES, POPULATIONS

    out.print(f"{folder.name}, hours {found['from_hours']:.1f} to {found['to_hours']:.1f} (what the run kept in full)")
    for name, share in found["at_work"].items():
        population = POPULATIONS[name]
        rows = [row for row in found["causes"] if row["population"] == name]
        table = plain_table()
        table.add_column(f"{population.title}: {population.at_work.info.label} {share:.1%}", min_width=24, no_wrap=True)
        table.add_column("idle", justify="right")
        table.add_column("because", overflow="fold")
        for row in rows:
            table.add_row(row["cause"], f"{row['share']:.1%}", CAUSES[row["cause"]].meaning)
        out.print()
        out.print(table)
    if made is None:
        out.print("\n--gain simulates the run without each cause")
        return
    out.print()
    out.print(_gain_table(made))


def _gain_table(made: Gains) -> Table:
    base = made.base["trained_turns_per_minute"]
    table = plain_table()
    table.add_column("simulated without", min_width=16, no_wrap=True)
    for column in ("trained/min", "gain", "generated/min"):
        table.add_column(column, justify="right")
    table.add_column("how", overflow="fold")
    table.add_row("– (as it is)", f"{base:.1f}", "", f"{made.base['generated_turns_per_minute']:.1f}", "")
    for item in made.gains:
        if item.why_not:
            table.add_row(item.cause, "–", "–", "–", item.why_not.splitlines()[-1].strip())
            continue
        gain = "–" if item.gain is None else f"{item.gain:+.1%}"
        rates = (item.figures[f"{kind}_turns_per_minute"] for kind in ("trained", "generated"))
        trained, generated = (f"{rate:.1f}" for rate in rates)
        table.add_row(item.cause, trained, gain, generated, item.removed)
    return table
