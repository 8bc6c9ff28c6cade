"""``dartsim cluster``: modeled clusters from a few numbers, a real run, other trainers' logs, or a CSV file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.table import Table

from dartsim.cli.command_group import command_group
from dartsim.cli.console import errors, result, table
from dartsim.cli.options import Json, file_target, new_folder
from dartsim.core.errors import ConfigError

if TYPE_CHECKING:
    from dartsim.config import Config
    from dartsim.lab.engine_fit import Load
    from dartsim.lab.measure import Measurement

TWIN = "twin.toml"
"""File in a real run's folder with its twin: the whole configuration in virtual time on the measured cluster."""


SERVER = "An inference server"

cluster_app = command_group(
    "cluster", "Cluster files: your own cluster, a real run, other trainers' logs, measured latencies."
)


Origin = Literal["verl", "areal", "prime-rl", "skyrl", "slime", "trl", "csv"]
"""What wrote the imported files."""


@cluster_app.command("new")
def new(
    gpus: Annotated[int, typer.Option(min=2, help="GPUs, for engines and trainer together.")] = 8,
    desktops: Annotated[int, typer.Option(min=1, help="Desktops.")] = 64,
    hosts: Annotated[str, typer.Option(help="Machines for desktops: 4x64GiB, or 4x64GiBx32cores.")] = "8x64GiBx32cores",
    update_seconds: Annotated[float, typer.Option(min=0.001, help="Seconds of an update of a full batch.")] = 216.0,
    out_file: Annotated[Path, typer.Option("--out", callback=file_target, help="File to write.")] = Path(
        "cluster.toml"
    ),
    json_file: Json = None,
) -> None:
    r"""Write a cluster file for --on from a few numbers.

    It has these numbers, and all other settings with their meaning and source, ready to edit.

    Examples:
        dartsim cluster new
        dartsim cluster new --gpus 8 --desktops 80 --hosts 10x64GiBx32cores \
          --update-seconds 240 --out large.toml
    """
    from dartsim.core.words import plural
    from dartsim.lab.new_cluster import BATCH_TURNS, cluster_settings, cluster_toml

    settings = cluster_settings(gpus=gpus, desktops=desktops, hosts=hosts, update_seconds=update_seconds)
    _write_new(out_file, cluster_toml(settings))
    engines = plural(settings["rollout.num_workers"], "GPU")
    result({"file": str(out_file), "settings": settings}, json_file).say(
        f"{out_file}: {plural(desktops, 'desktop')} on {hosts}, {engines} for engines "
        f"and {settings['cluster.learner.gpus']} for the trainer, {update_seconds:g} s an update of about "
        f"{BATCH_TURNS:,} turns\n"
        f"next: dartsim compare dartsim areal-eta4 dart --on {out_file} --seeds 3"
    )


@cluster_app.command("measure")
def measured(
    run: Annotated[
        Path | None, typer.Argument(metavar="RUN", help="Folder of a real run; default: a server (--engine).")
    ] = None,
    out_file: Annotated[
        Path | None,
        typer.Option("--out", callback=file_target, help="File to write; default: RUN/profile.toml or engine.toml."),
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Run the twin and compare its figures with RUN's.")] = False,
    engine: Annotated[
        str | None, typer.Option(metavar="URL", help="A server of OpenAI's /v1/completions.", rich_help_panel=SERVER)
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="Its model; default: the only one it serves.", rich_help_panel=SERVER)
    ] = None,
    minutes: Annotated[
        float, typer.Option(min=0.1, help="Longest time of all loads together.", rich_help_panel=SERVER)
    ] = 10.0,
    max_prompt: Annotated[int, typer.Option(min=32, help="Longest prompt, tokens.", rich_help_panel=SERVER)] = 1024,
    max_reply: Annotated[int, typer.Option(min=4, help="Longest reply, tokens.", rich_help_panel=SERVER)] = 128,
    max_clients: Annotated[
        int, typer.Option(min=2, help="Most requests at the same time.", rich_help_panel=SERVER)
    ] = 16,
    json_file: Json = None,
) -> None:
    """Measure a real run, or an inference server.

    Of a run it writes a profile of the timings, and RUN/twin.toml: the run's configuration in virtual time on the
    measured cluster. --check runs this twin for as long as RUN.

    A server (vLLM, SGLang and others) gets 12 loads of prompts, replies and clients up to the largest given, each
    twice. The engine's model is fitted to eight of them and tested on the others. It should have nothing else to do.
    The file is for --on CLUSTER+engine.toml.

    Examples:
        dartsim cluster measure runs/real --check
        dartsim cluster measure --engine http://127.0.0.1:8000 --max-prompt 4096 --max-clients 64
    """
    if (run is None) == (engine is None):
        raise ConfigError("name the folder of a real run, or a server with --engine URL")
    if engine is not None:
        if check:
            raise ConfigError("--check is for a RUN; a server is always tested on loads that were not fitted")
        from dartsim.lab.engine_fit import design

        loads = design(max_prompt=max_prompt, max_reply=max_reply, max_clients=max_clients)
        written, parts = _server(engine, model, loads, minutes, out_file or Path("engine.toml"))
    else:
        if run is None or not run.is_dir():
            raise ConfigError(f"there is no run {run}")
        written, parts = _measured(run, out_file, check=check)
    _show(written, parts, json_file)


@cluster_app.command("import")
def import_files(
    files: Annotated[list[Path], typer.Argument(metavar="FILES", help="Logs of one run, or a CSV file of latencies.")],
    origin: Annotated[Origin, typer.Option("--from", help="What wrote them.")],
    given: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="What logs do not say, e.g. machines.gpu=H100; repeatable."),
    ] = None,
    steps: Annotated[
        str | None, typer.Option(metavar="FIRST:LAST", help="Steps of the logs to use; default: all but the first.")
    ] = None,
    column: Annotated[
        list[str] | None,
        typer.Option(
            metavar="STEP[=COLUMN]",
            help="csv: a latency of desktops (start, boot, setup, step, evaluate, teardown), and its column if the "
            "column has another name; repeatable.",
        ),
    ] = None,
    unit: Annotated[Literal["s", "ms"], typer.Option(help="csv: unit of the times, s or ms.")] = "s",
    out_file: Annotated[
        Path | None,
        typer.Option("--out", callback=file_target, help="File to write; default: run.toml, for csv latencies.toml."),
    ] = None,
    json_file: Json = None,
) -> None:
    r"""Import the logs of another trainer's run, or measured latencies.

    Logs become a table for `dartsim predict`: JSONL of metrics, a console log, TensorBoard files or their folder, a
    Hugging Face trainer_state.json, and beside them the text of vLLM's /metrics. It says what they determine and what
    is assumed. --set gives what they do not say, in the table's terms: machines.gpu, machines.trainer and
    machines.rollout (or machines.colocated), model.name, workload.groups. Other exports, such as of W&B: as JSONL.

    A CSV file becomes latencies of desktops, for --on CLUSTER+latencies.toml.

    Examples:
        dartsim cluster import verl.log --from verl --set machines.gpu=H100 --set machines.trainer=8 \
          --set machines.rollout=8 --set model.name=Qwen2.5-7B
        dartsim cluster import times.csv --from csv --column step=action_ms --unit ms
    """
    if missing := [str(file) for file in files if not file.exists()]:
        raise ConfigError(f"there is no file {missing[0]}")
    if origin == "csv":
        if len(files) > 1 or given or steps:
            raise ConfigError("--from csv reads one file, and has --column and --unit alone")
        written, parts = _latencies(files[0], column or [], unit, out_file or Path("latencies.toml"))
    else:
        if column or unit != "s":
            raise ConfigError(f"--column and --unit go with --from csv, not with --from {origin}")
        written, parts = _logs(files, origin, given or [], steps, out_file or Path("run.toml"))
    _show(written, parts, json_file)


Output = tuple[dict[str, Any], list[str | Table]]
"""A result as JSON, and what is printed."""


def _show(written: dict[str, Any], parts: list[str | Table], json_file: str | None) -> None:
    console = result(written, json_file)
    for part in parts:
        if isinstance(part, str):
            console.say(part)
        else:
            console.print(part)


def _write_new(file: Path, text: str) -> None:
    """Write a file that must not exist yet."""
    try:
        with file.open("x", encoding="utf-8") as opened:
            opened.write(text)
    except FileExistsError:
        raise ConfigError(f"{file} exists already; name another file with --out, or remove it") from None
    except OSError as error:
        raise ConfigError(f"{file} cannot be written: {error.strerror}") from None


def _logs(files: list[Path], origin: Origin, settings: list[str], steps: str | None, file: Path) -> Output:
    import tomli_w

    from dartsim.config.load import parse_override
    from dartsim.config.settings import merge
    from dartsim.lab.log_import import import_logs

    first, _, last = (steps or "0:0").partition(":")
    if not (first.isdecimal() and last.isdecimal()):
        raise ConfigError(f"--steps {steps!r} is not of the form FIRST:LAST")
    given: dict[str, Any] = {}
    for text in settings:
        given = merge(given, parse_override(text))
    tree, measured = import_logs(files, origin, given, (int(first), int(last)) if steps else None)
    _write_new(file, tomli_w.dumps(tree))
    return {"file": str(file), "table": tree, "measured": measured}, [
        *(f"measured: {each}" for each in measured),
        *(f"assumed: {each}" for each in tree["assumptions"]),
        f"next: add [[rows]] with what differs to {file}; dartsim predict {file}",
    ]


def _latencies(source: Path, column: list[str], unit: str, file: Path) -> Output:
    from statistics import median

    import tomli_w

    from dartsim.config.load import from_tree
    from dartsim.lab.measure import quantiles, read_latencies

    if not column:
        raise ConfigError(f"which column of {source} is which latency? Give --column step, or --column step=NAME")
    columns = {name: other or name for name, _, other in (text.partition("=") for text in column)}
    times = read_latencies(source, columns, 1.0 if unit == "s" else 1e-3)
    tree = {"cluster": {"env": {"latency": {name: quantiles(values) for name, values in times.items()}}}}
    from_tree(tree)
    about = {"title": f"Measured latencies of {source.name}", "source": f"dartsim cluster import {source} --from csv"}
    _write_new(file, tomli_w.dumps({"about": about, **tree}))
    return {"file": str(file), "settings": tree}, [
        f"{file}: {', '.join(f'{name} {median(values):.3g} s' for name, values in times.items())} (medians)\n"
        f"next: dartsim compare dartsim areal-eta4 --on osworld+{file}"
    ]


def _measured(run: Path, out_file: Path | None, *, check: bool) -> Output:
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
    written = {
        "file": str(file),
        "twin": str(run / TWIN),
        "counts": measured.counts,
        "settings": measured.settings,
    }
    figures, tables = _run_twin(run, twin, summary) if check else ({}, [])
    return written | figures, [f"profile: {file}\ntwin: {run / TWIN}", *tables]


def _server(url: str, model: str | None, loads: list[Load], minutes: float, file: Path) -> Output:
    """Play the loads against a server, fit, and write the engine's settings with their test."""
    import asyncio

    import tomli_w

    from dartsim.lab.engine_fit import compare, fit, measure
    from dartsim.lab.progress import progress_bar
    from dartsim.real.engines.completions import Completions

    async def play_all() -> str:
        async with Completions(url, model) as server:
            with progress_bar(errors) as progress:
                task = progress.add_task("loads", total=2 * len(loads), live="")
                await measure(loads, server.send, minutes=minutes, report=lambda: progress.update(task, advance=1))
            return str(server.model)

    served = asyncio.run(play_all())
    times = fit(loads)
    rows = compare(loads, times)
    overhead = times.pop("overhead_seconds")
    engine = {"model": "fluid", "overhead_seconds": overhead, "roofline": times}
    about = {"title": f"{served}, measured from outside", "source": f"dartsim cluster measure --engine {url}"}
    _write_new(file, tomli_w.dumps({"about": about, "cluster": {"engine": engine}}))
    cells = [
        (
            row["load"],
            row["figure"],
            row["measured"],
            row["predicted"],
            _error(row["error"]),
            "fitted" if row["fitted"] else "",
        )
        for row in rows
    ]
    largest = max((abs(row["error"]), row["load"]) for row in rows if not row["fitted"])
    return {"file": str(file), "engine": engine, "engine_fit": rows}, [
        table(["load", "figure", "#measured", "#predicted", "#error", ""], cells),
        f"{file}: {', '.join(f'{name} {value:.3g}' for name, value in times.items())}\n"
        f"largest error on loads that were not fitted: {largest[0]:.1%} ({largest[1]})\n"
        f"next: dartsim run areal-eta4 --on osworld+{file}",
    ]


def _about(run: Path, measured: Measurement) -> dict[str, Any]:
    """Return the origin of a profile: run, machine, date."""
    import datetime

    from dartsim.observe.timings import TIMINGS
    from dartsim.real.machine import describe_machine

    machine = describe_machine()
    when = datetime.datetime.fromtimestamp((run / TIMINGS).stat().st_mtime, tz=datetime.UTC)
    return {
        "title": f"Measured in the run {run.resolve().name}",
        "source": f"dartsim cluster measure {run}",
        "date": when.date(),
        "machine": f"{machine['cpu_model']}, {machine['logical_cores']} cores, {machine['memory_gib']} GiB",
        "counts": measured.counts,
    }


def _run_twin(run: Path, twin: Config, summary: Mapping[str, Any]) -> Output:
    """Run the twin, and return its figures beside the run's."""
    from dartsim.lab.progress import run_bar
    from dartsim.lab.virtual import compare, compared_figures
    from dartsim.run.execute import execute

    folder = new_folder("twin", run)
    with run_bar(errors, "twin", twin.run.hours) as bar:
        done, ended = execute(twin, folder, [bar])
    compared = compare(compared_figures(summary), compared_figures(done.summary))
    if ended.interrupted:
        errors.print("the twin was interrupted: its figures cover only what ran")
    rows = [
        (name.replace("_", " "), value, compared["predicted"][name], _error(compared["relative_error"][name]))
        for name, value in compared["measured"].items()
    ]
    return {**compared, "run_dir": str(folder)}, ["", table(["", "#measured", "#predicted", "#error"], rows)]


def _error(value: float | None) -> str | None:
    return None if value is None else f"{value:+.1%}"
