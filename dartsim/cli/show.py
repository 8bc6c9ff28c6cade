"""``dartsim show``: a run's state and figures, and why its desktops, engines and trainer were idle."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from dartsim.cli.console import FIGURES_NOTE, errors, figure_table, out, printable, result, table
from dartsim.cli.options import Json, file_target, folder_target
from dartsim.core.errors import ConfigError
from dartsim.core.words import plural
from dartsim.observe.alarm import alarm_text, hours

if TYPE_CHECKING:
    from dartsim.observe.page.runs import Site


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
    from dartsim.cli.live import serve, site_of
    from dartsim.observe.page.run_state import read_status
    from dartsim.observe.rundir import STUDY, reading, refuse_other

    folders, root = runs or [], Path.cwd()
    if len(folders) == 1 and (folders[0] / STUDY).is_file():
        folders, root = [], folders[0]
    if live:
        for folder in folders:
            refuse_other(folder)
        serve(folders, root=root, host=host, port=port)
        return
    if len(folders) == 1:
        read_status(folders[0])  # refuses what is no run, or of another format; in a list, that is a row
    site = site_of(folders, root)
    with reading(folders[0] if len(folders) == 1 else root):
        if html is not None:
            _write_page(site, html, pictures)
        if len(folders) == 1 and trace is not None:
            _write_trace(folders[0], trace)
        elif len(folders) == 1 and (gif or osworld):
            _export(folders[0], attempt, gif, osworld)
        elif len(folders) == 1:
            now = site.run(folders[0].resolve().name).get("now")
            result(now, json_file).print(_state(now))
        elif html is None or json_file is not None:
            _list(site.get(["runs"]), json_file)


def _list(rows: Sequence[Mapping[str, Any]], json_file: str | None) -> None:
    """List runs."""
    console = result(rows, json_file)
    if not rows:
        console.print("no runs below this folder; `dartsim run` makes one")
        return
    cells = []
    for row in rows:
        length, rate = row.get("seconds"), row.get("success")
        shown = ("" if length is None else hours(length), "" if rate is None else f"{rate:.1%}")
        cells.append((row["id"], row["state"], *shown))
    console.print(table(["run", "state", "#time", "#success"], cells))
    _say_unreadable(rows)


def _say_unreadable(rows: Sequence[Mapping[str, Any]]) -> None:
    """Say why runs of a list cannot be read."""
    for row in rows:
        if "error" in row:
            errors.say(row["error"])


def _write_page(site: Site, target: Path, pictures: bool) -> None:
    """Write the page of runs as one file."""
    from dartsim.observe.page.file import page_file, site_documents
    from dartsim.observe.rundir import write_text

    documents = site_documents(site, pictures=pictures)
    write_text(target, page_file(documents))
    _say_unreadable(documents["runs"])
    errors.say(f"page: {target.resolve().as_uri()}")


def _write_trace(folder: Path, target: Path) -> None:
    import gzip

    from dartsim.observe.perfetto import perfetto
    from dartsim.observe.rundir import write_bytes

    # No timestamp in the header, so that the same run writes the same bytes.
    write_bytes(target, gzip.compress(json.dumps(perfetto(folder), separators=(",", ":")).encode(), mtime=0))
    out.say(f"trace: {target.resolve()}; open it in https://ui.perfetto.dev")


def _export(folder: Path, attempt: int | None, gif: Path | None, osworld: Path | None) -> None:
    """Write recorded attempts as a GIF, or in OSWorld's layout."""
    from dartsim.run.attempt_export import export_gif, export_osworld  # they need numpy

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


def _state(now: Mapping[str, Any]) -> RenderableType:
    """Return the document ``now`` of a run as text."""
    from dartsim.observe.status import waiting_text

    ended = bool(now["figures"])  # a run that has crashed has none
    until = "" if ended else f" of {hours(now['of_seconds'])}"
    lines = [
        f"{now['name']}, seed {now['seed']}: {now['state']} after {hours(now['run_seconds'])}{until} of "
        f"{now['clock']} time"
    ]
    lines += dict.fromkeys(now[key] for key in ("error", "verdict") if now[key])  # of a failure they are the same
    lines += [f"alarm: {alarm_text(alarm)}" for alarm in now["alarms"]]
    parts: list[RenderableType] = [Text(printable("\n".join(lines)))]
    if ended:
        parts += [figure_table(now["name"], now["figures"]), Text(FIGURES_NOTE)]
    else:
        parts.append(Text(printable(", ".join(f"{name} {number:,}" for name, number in now["counts"].items()))))
    if now["idle"] is not None:
        parts += _idle_tables(now["idle"])
    if not ended:
        parts.append(Text(printable(f"\n{waiting_text(now['waiting'])}")))
    return Group(*parts)


def _idle_tables(idle: Mapping[str, Any]) -> list[RenderableType]:
    from dartsim.observe.states import AT_WORK, CAUSES, POPULATIONS

    first, last = idle["start_seconds"], idle["end_seconds"]
    parts: list[RenderableType] = [Text(f"\n{hours(first)} to {hours(last)} (the part that was recorded in full)")]
    for name, found in idle["populations"].items():
        population, whole = POPULATIONS[name], found["size"] * (last - first)
        spent = {cause: seconds / whole for cause, seconds in found["seconds"].items()}
        heading = f"{population.title}: {population.at_work.info.label} {spent.pop(AT_WORK, 0.0):.1%}"
        causes = sorted(spent.items(), key=lambda item: -item[1])
        rows = [(cause, f"{share:.1%}", CAUSES[cause].meaning) for cause, share in causes if share >= 0.0005]
        shown = table([heading, "#idle", "because"], rows)
        shown.columns[0].min_width = 24
        parts += ["", shown]
    return parts
