"""``dartsim cluster``: write a modeled cluster from a few numbers, from a real run, or from a CSV file of times."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from dartsim.cli.console import TextConsole, errors, out, plain_table, write_json
from dartsim.cli.options import Json, file_target, new_folder
from dartsim.core.errors import ConfigError

if TYPE_CHECKING:
    from dartsim.config import Config
    from dartsim.lab.measure import Measurement
    from dartsim.lab.virtual import TwinCheck

TWIN = "twin.toml"
"""File in a real run's folder with its twin: the whole configuration in virtual time on the measured cluster."""


class TimeUnit(StrEnum):
    """Units of times in a CSV file."""

    S = "s"
    MS = "ms"


NEW, RUN, CSV = "A cluster of your own", "From a real run", "From a CSV file"


def cluster(
    source: Annotated[
        Path | None,
        typer.Argument(
            metavar="RUN|CSV",
            help="Folder of a real run, or a CSV file of measured times; default: describe your own cluster.",
        ),
    ] = None,
    out_file: Annotated[
        Path | None,
        typer.Option(
            "--out",
            callback=file_target,
            help="File to write; default: cluster.toml, RUN/profile.toml, or for a CSV file latencies.toml.",
        ),
    ] = None,
    gpus: Annotated[
        int | None,
        typer.Option(min=2, help="GPUs, for engines and trainer together; default 8.", rich_help_panel=NEW),
    ] = None,
    desktops: Annotated[int | None, typer.Option(min=1, help="Desktops; default 64.", rich_help_panel=NEW)] = None,
    hosts: Annotated[
        str | None,
        typer.Option(
            help="Machines for desktops: 4x64GiB, or 4x64GiBx32cores; default 8x64GiBx32cores.", rich_help_panel=NEW
        ),
    ] = None,
    update_seconds: Annotated[
        float | None,
        typer.Option(min=0.001, help="Seconds of an update of a full batch; default 216.", rich_help_panel=NEW),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Run the twin and compare its figures with RUN's.", rich_help_panel=RUN)
    ] = False,
    column: Annotated[
        list[str] | None,
        typer.Option(
            metavar="STEP[=COLUMN]",
            help="A latency of desktops (start, boot, setup, step, evaluate, teardown), and its column if the column "
            "has another name; repeatable.",
            rich_help_panel=CSV,
        ),
    ] = None,
    unit: Annotated[TimeUnit | None, typer.Option(help="Unit of the times: s or ms.", rich_help_panel=CSV)] = None,
    json_file: Json = None,
) -> None:
    r"""Write a cluster file for --on: your own cluster, that of a real run, or measured latencies.

    Without an argument it writes a cluster of these numbers, and all other settings with their meaning and source,
    ready to edit.

    From a real run it writes a profile of the timings, and RUN/twin.toml: the run's configuration in virtual time on
    the measured cluster. --check runs this twin for as long as RUN.

    From a CSV file it writes the latencies of desktops, for --on CLUSTER+latencies.toml.

    Examples:
        dartsim cluster
        dartsim cluster --gpus 8 --desktops 80 --hosts 10x64GiBx32cores \
          --update-seconds 240 --out large.toml
        dartsim cluster runs/real --check
        dartsim cluster times.csv --column step=action_ms --unit ms
    """
    numbers = {
        "gpus": gpus,
        "desktops": desktops,
        "hosts": hosts,
        "update_seconds": update_seconds,
    }
    given = {name: value for name, value in numbers.items() if value is not None}
    if source is not None and not source.exists():
        raise ConfigError(f"there is no run and no CSV file {source}")
    kind = NEW if source is None else RUN if source.is_dir() else CSV
    used = {NEW: bool(given), RUN: check, CSV: bool(column) or unit is not None}
    if wrong := [panel for panel, is_used in used.items() if is_used and panel != kind]:
        raise ConfigError(f"options under {wrong[0]!r} of --help do not go with {source or 'a cluster of your own'}")
    console = errors if json_file == "-" else out
    if source is None:
        written = _new(given, out_file or Path("cluster.toml"), console)
    elif kind == RUN:
        written = _measured(source, out_file, console, check=check)
    else:
        written = _latencies(source, column or [], unit, out_file or Path("latencies.toml"), console)
    if json_file is not None:
        write_json(written, json_file)


def _write_new(file: Path, text: str) -> None:
    """Write a file that must not exist yet."""
    try:
        with file.open("x", encoding="utf-8") as opened:
            opened.write(text)
    except FileExistsError:
        raise ConfigError(f"{file} exists already; name another file with --out, or remove it") from None
    except OSError as error:
        raise ConfigError(f"{file} cannot be written: {error.strerror}") from None


def _new(given: dict[str, Any], file: Path, console: TextConsole) -> dict[str, Any]:
    from dartsim.core.words import plural
    from dartsim.lab.new_cluster import ClusterNumbers, cluster_toml

    numbers = ClusterNumbers(**given)
    _write_new(file, cluster_toml(numbers))
    settings = numbers.settings
    engines = plural(settings["rollout.num_workers"], "GPU")
    console.say(
        f"{file}: {plural(numbers.desktops, 'desktop')} on {numbers.hosts}, {engines} for engines "
        f"and {settings['cluster.learner.gpus']} for the trainer, {numbers.update_seconds:g} s an update of about "
        f"{numbers.batch_turns:,.0f} turns\n"
        f"next: dartsim compare dartsim areal-eta4 dart --on {file} --seeds 3"
    )
    return {"file": str(file), "settings": settings}


def _latencies(
    source: Path, column: list[str], unit: TimeUnit | None, file: Path, console: TextConsole
) -> dict[str, Any]:
    import tomli_w

    from dartsim.lab.latency_file import latency_settings

    if not column:
        raise ConfigError(f"which column of {source} is which latency? Give --column step, or --column step=NAME")
    columns = {name: other or name for name, _, other in (text.partition("=") for text in column)}
    tree = latency_settings(source, columns, unit)
    about = {"title": f"Measured latencies of {source.name}", "source": f"dartsim cluster {source}"}
    _write_new(file, tomli_w.dumps({"about": about, **tree}))
    console.say(f"{file}: {', '.join(columns)}\nnext: dartsim compare dartsim areal-eta4 --on osworld+{file}")
    return {"file": str(file), "settings": tree}


def _measured(run: Path, out_file: Path | None, console: TextConsole, *, check: bool) -> dict[str, Any]:
    from dartsim.config import load, to_toml
    from dartsim.config.load import PROFILE
    from dartsim.lab.measure import measure, profile_toml
    from dartsim.lab.virtual import twin as twin_of
    from dartsim.observe.rundir import CONFIG, read_run, reading, write_text
    from dartsim.observe.timings import TIMINGS, read_timings

    summary = read_run(run).summary
    config = load(run / CONFIG)
    file = out_file or run / PROFILE
    with reading(run):
        measured = measure(config, read_timings(run))
        write_text(file, profile_toml(measured, _about(run, measured)))
        twin = twin_of(config, measured, summary, run / TIMINGS)
    write_text(run / TWIN, to_toml(twin))
    console.say(f"profile: {file}\ntwin: {run / TWIN}")
    return {
        "file": str(file),
        "twin": str(run / TWIN),
        "counts": measured.counts,
        "settings": measured.settings,
        **(_run_twin(run, twin, summary, console) if check else {}),
    }


def _about(run: Path, measured: Measurement) -> dict[str, Any]:
    """Return the origin of a profile: run, machine, date."""
    import datetime

    from dartsim.observe.timings import TIMINGS
    from dartsim.real.machine import describe_machine

    machine = describe_machine()
    when = datetime.datetime.fromtimestamp((run / TIMINGS).stat().st_mtime, tz=datetime.UTC)
    return {
        "title": f"Measured in the run {run.resolve().name}",
        "source": f"dartsim cluster {run}",
        "date": when.date(),
        "machine": f"{machine['cpu_model']}, {machine['logical_cores']} cores, {machine['memory_gib']} GiB",
        "counts": measured.counts,
    }


def _run_twin(run: Path, twin: Config, summary: Mapping[str, Any], console: TextConsole) -> dict[str, Any]:
    """Run the twin, show its figures beside the run's, and return both."""
    from dartsim.cli.progress import RunBar, bars
    from dartsim.lab.virtual import as_json, compare
    from dartsim.run.execute import execute

    folder = new_folder("twin", run)
    with bars() as progress:
        done, result = execute(twin, folder, [RunBar(progress, "twin", twin.run.hours)])
    checks = compare(summary, done.summary)
    console.print()
    console.print(_check_table(checks))
    if result.interrupted:
        errors.print("the twin was interrupted: its figures cover only what ran")
    return {**as_json(checks), "run_dir": str(folder)}


def _check_table(checks: list[TwinCheck]) -> Table:
    table = plain_table("", numbers=("measured", "predicted", "error"))
    for check in checks:
        error = "–" if check.relative_error is None else f"{check.relative_error:+.1%}"
        table.add_row(check.figure.replace("_", " "), _number(check.measured), _number(check.predicted), error)
    return table


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:,.4g}" if abs(value) < 1e4 else f"{value:,.0f}"
