"""``dartsim explain``: why desktops, workers and trainer were idle, and what removing each cause would gain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from dartsim.cli.console import errors, out, plain_table, printable, write_json
from dartsim.cli.options import Json, OnOption, load_config
from dartsim.cli.progress import RunBar, bars
from dartsim.cli.signals import report_interrupt
from dartsim.cli.tune import Processes, RayAddress

if TYPE_CHECKING:
    from dartsim.config import Config
    from dartsim.lab.whatif import Gains

LEAST_SHARE = 0.005
"""Causes of less than this share of every population's time are not simulated away."""

MAX_HOURS = 8.0
"""Longest simulation, hours, unless more are asked for."""


def explain(
    run: Annotated[
        str, typer.Argument(help="A run's folder; or a scheduler to simulate: a preset, a TOML file.", metavar="RUN")
    ],
    on: OnOption = None,
    gain: Annotated[bool, typer.Option("--gain", help="Simulate the run without each cause.")] = False,
    hours: Annotated[float | None, typer.Option(help="Simulated hours of each; default: the run's, at most 8.")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Simulations of each, with the run's seed and the next.")] = 2,
    processes: Processes = None,
    ray: RayAddress = None,
    json_file: Json = None,
) -> None:
    """Show why a run's desktops, workers and trainer were idle: one cause for every second, largest first.

    With --gain the run is simulated again without each cause, and the table shows the gain in trained turns. For a
    real run, RUN/twin.toml is simulated, which `dartsim cluster RUN` writes. With --on, or in place of a run, a
    scheduler is simulated first; nothing is written.

    Examples:
        dartsim explain runs/dart-seed0
        dartsim explain runs/dart-seed0 --gain
        dartsim explain my.toml --on cluster.toml --gain
        dartsim explain runs/real --gain --hours 2 --json -
    """
    from dartsim.core.errors import ConfigError
    from dartsim.lab.virtual import as_virtual, changed
    from dartsim.observe.idle import ranking
    from dartsim.observe.rundir import reading

    config, idle = _idle_of(run, on, hours)
    if idle is None:
        raise ConfigError(f"{run} kept no segments to explain; run it again with recorder.max_segments above 0")
    with reading(Path(run)):
        rows = ranking(idle)
        explained: dict[str, Any] = {
            "run_dir": run,
            "from_hours": idle["start_seconds"] / 3600.0,
            "to_hours": idle["end_seconds"] / 3600.0,
            "causes": rows,
            "at_work": _at_work(idle),
        }
    gains: Gains | None = None
    if gain:
        simulated = as_virtual(config or load_config(_simulated_file(run)))
        length = {"run.hours": hours or min(simulated.run.hours, MAX_HOURS), "run.updates": None}
        gains = _gains(changed(simulated, length), rows, seeds, processes, ray)
        explained["gains"] = {"base": dict(gains.base), "without": [asdict(item) for item in gains.gains]}
    if json_file != "-":
        with reading(Path(run)):
            _show(explained, run, gains)
    if json_file is not None:
        write_json(explained, json_file)


def _at_work(idle: Mapping[str, Any]) -> dict[str, float]:
    """Return the share of each population's time in which it works: acting, busy, training."""
    from dartsim.observe.states import AT_WORK

    length = idle["end_seconds"] - idle["start_seconds"]
    return {
        name: population["seconds"].get(AT_WORK, 0.0) / (length * population["size"])
        for name, population in idle["populations"].items()
    }


def _simulated_file(run: str) -> str:
    """Return what to simulate in place of a run: the twin of a real one, or else its own configuration."""
    from dartsim.cli.cluster import TWIN
    from dartsim.core.files import below

    return str(below(Path(run), TWIN)) if (Path(run) / TWIN).is_file() else run


def _idle_of(run: str, on: str | None, hours: float | None) -> tuple[Config | None, Mapping[str, Any] | None]:
    """Return the idle causes of a run, or of a simulated scheduler with its configuration."""
    from dartsim.config import presets
    from dartsim.config.sections.run import RecorderConfig
    from dartsim.lab.virtual import as_virtual, changed
    from dartsim.observe.idle import idle
    from dartsim.observe.rundir import read_run
    from dartsim.run.prepare import prepare
    from dartsim.run.simulation import run_simulation

    if on is None and not run.endswith(".toml") and run not in presets():
        return None, read_run(Path(run)).idle
    config = load_config(_simulated_file(run), on=on)
    simulated = as_virtual(config)
    length = {"run.hours": hours or min(config.run.hours, MAX_HOURS), "run.updates": None}
    simulated = changed(simulated, {**length, "recorder.max_segments": RecorderConfig().max_segments})
    with report_interrupt("interrupted: nothing was written; the same command starts again"), bars() as progress:
        bar = RunBar(progress, config.name, simulated.run.hours)
        result = run_simulation(prepare(simulated), instruments=[bar])
    return config, idle(result.recorder)


def _gains(
    config: Config, rows: Sequence[Mapping[str, Any]], seeds: int, processes: int | None, ray: str | None
) -> Gains:
    """Simulate a configuration without each cause."""
    from dartsim.lab.sweep import WithProgress, executor_for, progress_bar
    from dartsim.lab.whatif import gains

    causes = dict.fromkeys(row["cause"] for row in rows if row["share"] >= LEAST_SHARE)
    first = config.run.seed
    interrupted = report_interrupt("interrupted: nothing was written; the same command starts again")
    with interrupted, executor_for(processes, ray) as executor, progress_bar(errors) as progress:
        counted = WithProgress(executor, progress, "runs")
        return gains(config, list(causes), tuple(range(first, first + seeds)), counted)


def _show(explained: Mapping[str, Any], name: str, gains: Gains | None) -> None:
    from dartsim.observe.states import CAUSES, POPULATIONS

    hours = f"hours {explained['from_hours']:.1f} to {explained['to_hours']:.1f}"
    out.print(printable(f"{Path(name).name}, {hours} (the part that was recorded in full)"), markup=False)
    for name, share in explained["at_work"].items():
        population = POPULATIONS[name]
        table = plain_table(
            f"{population.title}: {population.at_work.info.label} {share:.1%}", numbers=("idle",), after=("because",)
        )
        table.columns[0].min_width, table.columns[0].no_wrap = 24, True
        for row in explained["causes"]:
            if row["population"] == name:
                table.add_row(row["cause"], f"{row['share']:.1%}", CAUSES[row["cause"]].meaning)
        out.print()
        out.print(table)
    out.print()
    out.print("--gain simulates the run without each cause" if gains is None else _gain_table(gains))


def _gain_table(gains: Gains) -> Table:
    table = plain_table("simulated without", numbers=("trained/min", "gain", "generated/min"), after=("how",))
    table.columns[0].min_width, table.columns[0].no_wrap = 16, True
    trained, generated = (gains.base[f"{kind}_turns_per_minute"] for kind in ("trained", "generated"))
    table.add_row("– (as it is)", f"{trained:.1f}", "", f"{generated:.1f}", "")
    for item in gains.gains:
        if item.why_not:
            table.add_row(item.cause, "–", "–", "–", item.why_not.splitlines()[-1].strip())
            continue
        gain = "–" if item.gain is None else f"{item.gain:+.1%}"
        trained, generated = (item.figures[f"{kind}_turns_per_minute"] for kind in ("trained", "generated"))
        table.add_row(item.cause, f"{trained:.1f}", gain, f"{generated:.1f}", item.removed)
    return table
