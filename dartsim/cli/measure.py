"""``dartsim measure``: a real run's timings as a profile of the modeled cluster, and how well that predicts it."""

from __future__ import annotations

import datetime
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from dartsim.cli.console import errors, out, plain_table, write_json
from dartsim.cli.options import Json, file_target, new_folder
from dartsim.cli.progress import RunBar, bars

if TYPE_CHECKING:
    from dartsim.lab.measure import Measured
    from dartsim.lab.virtual import TwinCheck

TWIN = "twin.toml"
"""Files of a run's folder: the settings that were measured, and its whole configuration turned virtual."""


def measure(
    run: Annotated[Path, typer.Argument(help="Folder of a run by the machine's clock.", metavar="RUN")],
    out_file: Annotated[
        Path | None,
        typer.Option("--out", callback=file_target, help="Where the profile is written; default: RUN/profile.toml."),
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Run the twin and compare its figures with RUN's.")] = False,
    json_file: Json = None,
) -> None:
    """Turn the timings of a real run into a profile that `dartsim run --profile` loads, and RUN/twin.toml.

    The twin is the same configuration in virtual time, on the cluster that was measured. --check runs it for as long
    as RUN, and compares its figures with RUN's.

    Examples:
        dartsim run --backend mock --hours 0.1 --out runs/real
        dartsim measure runs/real
        dartsim measure runs/real --check
        dartsim run runs/real/twin.toml
        dartsim run my.toml --profile runs/real/profile.toml --set rollout.num_envs=4
    """
    from dartsim.config import load, to_toml
    from dartsim.config.load import PROFILE
    from dartsim.lab.measure import measure as measured_by
    from dartsim.lab.measure import profile_toml
    from dartsim.lab.verdict import run_figures
    from dartsim.lab.virtual import as_json, compare
    from dartsim.lab.virtual import twin as twin_of
    from dartsim.observe.rundir import CONFIG, read_run, reading, write_text
    from dartsim.observe.timings import TIMINGS, read_timings
    from dartsim.run.execute import execute

    summary = read_run(run).summary
    config = load(run / CONFIG)
    profile = out_file or run / PROFILE
    with reading(run):
        measured = measured_by(config, read_timings(run))
        write_text(profile, profile_toml(measured, _about(run, measured)))
        twin = twin_of(config, measured, summary, run / TIMINGS)
    write_text(run / TWIN, to_toml(twin))
    written: dict[str, Any] = {
        "profile": str(profile),
        "twin": str(run / TWIN),
        "timings": [asdict(row) for row in measured.rows],
        "settings": measured.settings,
        "notes": list(measured.notes),
    }
    if json_file != "-":
        out.print(_timing_table(measured))
        for note in measured.notes:
            out.print(note, highlight=False)
        out.print(f"profile: {profile}\ntwin: {run / TWIN}", soft_wrap=True, highlight=False)
    if check:
        folder = new_folder("twin", run)
        with bars() as progress:
            live = RunBar(progress, "twin", twin.run.hours)
            done, result = execute(twin, folder, [live], more_figures=run_figures)
        checks = compare(summary, done.summary)
        written |= {**as_json(checks), "run_dir": str(folder)}
        if json_file != "-":
            out.print()
            out.print(_check_table(checks))
        if result.interrupted:
            errors.print("the twin was interrupted: its figures cover only what ran")
    if json_file is not None:
        write_json(written, json_file)


def _about(run: Path, measured: Measured) -> dict[str, Any]:
    """Return the origin of a profile: run, machine, date."""
    from dartsim.observe.timings import TIMINGS
    from dartsim.real.machine import describe_machine

    machine = describe_machine()
    when = datetime.datetime.fromtimestamp((run / TIMINGS).stat().st_mtime, tz=datetime.UTC)
    return {
        "title": f"Measured in the run {run.resolve().name}",
        "source": f"dartsim measure {run}",
        "date": when.date(),
        "machine": f"{machine['cpu_model']}, {machine['logical_cores']} cores, {machine['memory_gib']} GiB",
        "counts": measured.counts,
        "notes": list(measured.notes),
    }


def _timing_table(measured: Measured) -> Table:
    table = plain_table("what", numbers=("n", "median ms", "p95 ms", "mean ms", "failed", "concurrent"))
    for row in measured.rows:
        times = (f"{1e3 * seconds:,.1f}" for seconds in (row.median, row.p95, row.mean))
        table.add_row(row.what, f"{row.n:,}", *times, str(row.failed), f"{row.beside:.1f}")
    return table


def _check_table(checks: list[TwinCheck]) -> Table:
    table = plain_table("", numbers=("measured", "predicted", "error"))
    for check in checks:
        error = "–" if check.relative_error is None else f"{check.relative_error:+.1%}"
        table.add_row(check.figure.replace("_", " "), _number(check.measured), _number(check.predicted), error)
    return table


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:,.4g}" if abs(value) < 1e4 else f"{value:,.0f}"
