"""``dartsim show``: a run's state and figures, and why its desktops, engines and trainer were idle."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from dartsim.cli.console import FIGURES_NOTE, errors, figure_table, out, printable, result, table
from dartsim.cli.options import Json, file_target, folder_target
from dartsim.core.errors import ConfigError
from dartsim.core.words import plural
from dartsim.observe.alarm import alarm_text, hours


def show(
    runs: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Folders of runs: running, finished or crashed; or of one comparison. None: all below this folder.",
            metavar="RUN",
        ),
    ] = None,
    live: Annotated[
        bool, typer.Option("--live", help="Serve the page of the runs, and open it in the browser.")
    ] = False,
    host: Annotated[
        str, typer.Option("--host", metavar="ADDRESS", help="With --live: address; any but loopback gets a token.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="With --live: port; 0: any free one.")] = 0,
    html: Annotated[
        Path | None,
        typer.Option("--html", metavar="FILE", callback=file_target, help="Also write the page as one file."),
    ] = None,
    pictures: Annotated[bool, typer.Option("--pictures", help="With --html: with screenshots.")] = False,
    trace: Annotated[
        Path | None,
        typer.Option(
            "--trace", metavar="FILE.json.gz", callback=file_target, help="Write the schedule for ui.perfetto.dev."
        ),
    ] = None,
    attempt: Annotated[
        int | None, typer.Option("--attempt", metavar="N", help="The attempt to export; --live lists them.")
    ] = None,
    gif: Annotated[
        Path | None, typer.Option("--gif", metavar="FILE", callback=file_target, help="Write the attempt as a GIF.")
    ] = None,
    osworld: Annotated[
        Path | None,
        typer.Option(
            "--osworld",
            metavar="DIR",
            callback=folder_target,
            help="Write the attempt, or all whose screenshots are kept, in the layout of OSWorld's results.",
        ),
    ] = None,
    json_file: Json = None,
) -> None:
    """Show the state of a run, its figures, and why it was idle; or a page of runs, in the browser.

    While a run is going: what every component is waiting for, since when, what ends the wait, and the alarms. After its
    end: its figures, what limited it, and a cause for every second in which desktops, engines or trainer were idle. It
    only reads and does not disturb the run. Without a RUN, it lists the runs below this folder.

    Examples:
        dartsim show
        dartsim show --live
        dartsim show runs/dart-seed0
        dartsim show runs/dart-seed0 --live
        dartsim show runs/dart-seed0 runs/areal-seed0 --html page.html
        dartsim show runs/errands-seed0 --attempt 130 --gif attempt.gif
        dartsim show runs/errands-seed0 --osworld results
        dartsim show runs/dart-seed0 --trace trace.json.gz
        dartsim show runs/dart-seed0 --json - | jq .figures.env_utilization
    """
    from dartsim.observe.rundir import STUDY, reading

    folders, root = runs or [], Path.cwd()
    if len(folders) == 1 and (folders[0] / STUDY).is_file():
        folders, root = [], folders[0]
    if live:
        from dartsim.cli.live import serve

        for folder in folders:
            _refuse_missing(folder)
        serve(folders, root=root, host=host, port=port)
        return
    if html is not None:
        _write_page(folders, root, html, pictures)
    if len(folders) != 1:
        if html is None or json_file is not None:
            _list(folders, root, json_file)
        return
    (folder,) = folders
    with reading(folder):
        if trace is not None:
            _write_trace(folder, trace)
            return
        if gif or osworld:
            _export(folder, attempt, gif, osworld)
            return
        _show(folder, json_file)


def _refuse_missing(folder: Path) -> None:
    from dartsim.observe.rundir import CONFIG, refuse_evaluation

    refuse_evaluation(folder)
    if not (folder / CONFIG).is_file():
        raise ConfigError(f"{folder} is no run's folder: it has no {CONFIG}; name a folder that `dartsim run` made")


def _refuse_format(folder: Path) -> None:
    """Refuse what is no run, or of another format; a case of ``dartsim fuzz`` has no status."""
    from dartsim.observe.page.run_state import read_status
    from dartsim.observe.rundir import STATUS, read_run

    if (folder / STATUS).exists():
        read_status(folder)
    else:
        read_run(folder)


def _list(folders: Sequence[Path], root: Path, json_file: str | None) -> None:
    """List runs: these, or all below the root."""
    from dartsim.cli.live import site_of

    rows = site_of(folders, root).get(["runs"])
    console = result(rows, json_file)
    if not rows:
        console.print("no runs below this folder; `dartsim run` makes one")
        return
    cells = []
    for row in rows:
        length, rate = row.get("seconds"), row.get("success")
        cells.append(
            (
                row["id"],
                row["state"],
                "" if length is None else hours(length),
                "" if rate is None else f"{rate:.1%}",
            )
        )
    console.print(table(["run", "state", "#time", "#success"], cells))
    _say_unreadable(rows)


def _say_unreadable(rows: Sequence[Mapping[str, Any]]) -> None:
    """Say why runs of a list cannot be read."""
    from dartsim.observe.page.runs import UNREADABLE

    for row in rows:
        if row["state"] == UNREADABLE:
            errors.say(row["error"])


def _write_page(folders: Sequence[Path], root: Path, target: Path, pictures: bool) -> None:
    """Write the page of runs as one file."""
    from dartsim.cli.live import site_of
    from dartsim.observe.page.file import page_file, site_documents
    from dartsim.observe.rundir import reading, write_text

    for folder in folders:
        _refuse_missing(folder)
    with reading(folders[0] if len(folders) == 1 else root):
        documents = site_documents(site_of(folders, root), pictures=pictures)
    write_text(target, page_file(documents))
    _say_unreadable(documents["runs"])
    errors.say(f"page: {target.resolve().as_uri()}")


def _write_trace(folder: Path, target: Path) -> None:
    import gzip

    from dartsim.observe.perfetto import perfetto
    from dartsim.observe.rundir import write_bytes

    _refuse_format(folder)
    # No timestamp in the header, so that the same run writes the same bytes.
    write_bytes(target, gzip.compress(json.dumps(perfetto(folder), separators=(",", ":")).encode(), mtime=0))
    out.say(f"trace: {target.resolve()}; open it in https://ui.perfetto.dev")


def _show(folder: Path, json_file: str | None) -> None:
    from dartsim.observe.page.run_state import read_status
    from dartsim.observe.rundir import SUMMARY, is_locked, read_run

    run = read_run(folder) if (folder / SUMMARY).is_file() and not is_locked(folder) else None
    if run is None:
        status = read_status(folder)
        shown: dict[str, Any] = {"state": status["state"], "status": status, "figures": None, "idle": None}
        page = _status_page(status)
    else:
        state = "interrupted" if run.summary["interrupted"] else "failed" if run.summary["failure"] else "finished"
        idle = None if run.idle is None else idle_shares(run.idle)
        shown = {"state": state, "status": None, "figures": dict(run.summary), "idle": idle}
        page = _ended_page(run.name, shown)
    result(shown, json_file).print(page)


def _export(folder: Path, attempt: int | None, gif: Path | None, osworld: Path | None) -> None:
    """Write recorded attempts as a GIF, or in OSWorld's layout."""
    from dartsim.run.attempt_export import export_gif, export_osworld  # they need numpy

    _refuse_format(folder)
    if gif is not None:
        if attempt is None:
            raise ConfigError("--gif writes one attempt: name it with --attempt N")
        trajectory = export_gif(folder, attempt, gif)
        reward = "masked" if trajectory.reward is None else f"reward {trajectory.reward:g}"
        out.print(Text(printable(f"{trajectory.attempt.task.instruction} {reward}")))
        out.say(f"attempt: {gif.resolve().as_uri()}")
    if osworld is not None:
        count = export_osworld(folder, osworld, None if attempt is None else [attempt])
        out.say(f"{plural(count, 'attempt')}: {osworld.resolve().as_uri()}")


def idle_shares(idle: Mapping[str, Any]) -> dict[str, Any]:
    """Return the share of time that each population was working, and the causes of the rest, largest first."""
    from dartsim.observe.idle import ranking
    from dartsim.observe.states import AT_WORK

    length = idle["end_seconds"] - idle["start_seconds"]
    return {
        "from_hours": idle["start_seconds"] / 3600.0,
        "to_hours": idle["end_seconds"] / 3600.0,
        "at_work": {
            name: population["seconds"].get(AT_WORK, 0.0) / (length * population["size"])
            for name, population in idle["populations"].items()
        },
        "causes": ranking(idle),
    }


def _ended_page(name: str, shown: Mapping[str, Any]) -> RenderableType:
    figures = shown["figures"]
    length = hours(figures["simulated_hours"] * 3600.0) + (" of virtual time" if figures["virtual"] else "")
    parts: list[RenderableType] = [
        Text(printable(f"{name}, seed {figures['seed']}: {shown['state']} after {length}")),
        figure_table(name, figures),
        Text(FIGURES_NOTE),
    ]
    parts += [Text(printable(figures["verdict"]))] if figures.get("verdict") else []
    parts += [Text(printable(f"alarm: {alarm_text(alarm)}")) for alarm in figures["alarms"]]
    if shown["idle"] is None:
        parts.append(Text("no segments were recorded that would explain idle time (run.max_segments)"))
    else:
        parts += _idle_tables(shown["idle"])
    return Group(*parts)


def _idle_tables(idle: Mapping[str, Any]) -> list[RenderableType]:
    from dartsim.observe.states import CAUSES, POPULATIONS

    first, last = (hours(idle[end] * 3600.0) for end in ("from_hours", "to_hours"))
    parts: list[RenderableType] = [Text(f"\n{first} to {last} (the part that was recorded in full)")]
    for name, share in idle["at_work"].items():
        population = POPULATIONS[name]
        heading = f"{population.title}: {population.at_work.info.label} {share:.1%}"
        causes = table(
            [heading, "#idle", "because"],
            [
                (row["cause"], f"{row['share']:.1%}", CAUSES[row["cause"]].meaning)
                for row in idle["causes"]
                if row["population"] == name
            ],
        )
        causes.columns[0].min_width = 24
        parts += ["", causes]
    return parts


def _status_page(status: Mapping[str, Any]) -> RenderableType:
    now, whole = status["run_seconds"], status["of_seconds"]
    lines = [
        f"{status['name']}, seed {status['seed']}: {status['state']} at {hours(now)} of {hours(whole)} "
        f"({status['clock']} time); components as of {hours(status['as_of_seconds'])}"
    ]
    lines += [str(status[key]) for key in ("verdict", "error") if status.get(key)]
    if status.get("silent_since"):
        lines.append(
            f"silent: its process is alive, and has written nothing since {status['silent_since']}: a call does not "
            "return. Likely: the database (curation.store) or the disk of the run's folder does not answer, or the "
            "process or its machine was paused. It continues once that is over; otherwise kill it and `dartsim run` "
            "its folder"
        )
    lines += [f"alarm: {alarm_text(alarm)}" for alarm in status["alarms"]]
    counts = ", ".join(f"{name} {number:,}" for name, number in status["counts"].items())
    return Group(Text(printable("\n".join(lines))), Text(printable(counts), style="dim"), _table(status))


def _table(status: Mapping[str, Any]) -> Table:
    from dartsim.observe.page.documents import waiting

    rows = []
    for wait in waiting(status):
        who = wait["example"] if wait["count"] == 1 else f"{wait['count']}, such as {wait['example']}"
        detail = f" ({wait['detail']})" if wait["detail"] else ""
        words = f"{wait['waits_for']}{detail}; {wait['woken_by']}"
        rows.append((who, wait["label"], hours(wait["for_seconds"]), words))
    return table(["component", "state", "for", "waits for; woken by"], rows)
