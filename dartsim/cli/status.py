"""``dartsim status``: what each component of a run waits for, since when, and what ends the wait."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from dartsim.cli.console import out, plain_table, printable, write_json
from dartsim.cli.options import JsonInstead
from dartsim.observe.alarm import alarm_text, hours

BETWEEN_SECONDS = 1.0
SILENT_SECONDS = 60.0
"""Time after which a run in real time, which writes its status every few seconds, is reported as silent."""
SLOTS_SHOWN = 6
ENDED = ("finished", "interrupted", "failed", "crashed")


def status(
    folder: Annotated[Path, typer.Argument(help="A run's folder, running, finished or crashed.", metavar="RUN")],
    json_file: JsonInstead = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Keep updating until the run ends.")] = False,
    each: Annotated[bool, typer.Option("--each", help="One line for each slot, not one for each state.")] = False,
) -> None:
    r"""Show what every component of a run waits for, since when, and what ends the wait; and the run's alarms.

    It reads the status file that the run writes, and does not disturb the run.

    Examples:
        dartsim status runs/dart-seed0
        dartsim status runs/dart-seed0 --follow
        dartsim status runs/dart-seed0 --json - \
          | jq '.components[] | select(.component == "trainer")'
    """
    from dartsim.observe.rundir import reading

    with reading(folder):
        _status(folder, json_file, follow=follow, each=each)


def _status(folder: Path, json_file: str | None, *, follow: bool, each: bool) -> None:
    if not follow:
        current = read_status(folder)
        if json_file is not None:
            write_json(current, json_file)
        else:
            out.print(_page(current, each=each))
        return
    if json_file is not None:
        _stream(folder, json_file)
        return
    with Live(console=out, auto_refresh=False, transient=True) as live:
        while (current := read_status(folder))["state"] not in ENDED:
            live.update(_page(current, each=each), refresh=True)
            time.sleep(BETWEEN_SECONDS)
    out.print(_page(current, each=each))


def read_status(folder: Path) -> dict[str, Any]:
    """Return a run's ``status.json``, with the state ``crashed`` if its process is gone.

    Raises:
        ConfigError: If there is none, or it cannot be read.
    """
    from dartsim.core.errors import ConfigError
    from dartsim.core.files import below
    from dartsim.observe.rundir import CONFIG, SUMMARY, is_held
    from dartsim.run.watch import STATUS

    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder} is not a folder; a run's folder is wanted, as `dartsim run` prints it")
    running = is_held(folder)  # before reading the file, which a run that ends meanwhile has updated
    path = below(folder, STATUS)
    try:
        if path.exists() and not path.is_file():
            raise ConfigError(f"{path} is not a file")
        status = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        if (folder / CONFIG).is_file() and not (folder / SUMMARY).is_file():
            return _begun(folder)
        raise ConfigError(f"{folder} has no {STATUS}; a run's folder is wanted, as `dartsim run` prints it") from None
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path} cannot be read ({error}); the file is the run's own, whole or not there") from None
    if not isinstance(status, dict) or not isinstance(status.get("components"), list):
        raise ConfigError(f"{path} is no status of a run; the file is the run's own")
    if status["state"] not in ENDED and not running:
        status["state"] = "crashed"
        status["error"] = "its process is gone and has not written its end"
    elif status["state"] == "running" and status.get("clock") == "real":
        status["silent_since"] = _silent_since(path)
    return status


def _silent_since(path: Path) -> str | None:
    """Return when an overdue status was last written, by the machine's clock; None if it is not overdue."""
    written = path.stat().st_mtime
    if time.time() - written < SILENT_SECONDS:
        return None
    return datetime.fromtimestamp(written).astimezone().isoformat(timespec="seconds")


def _begun(folder: Path) -> dict[str, Any]:
    """Return the status of a run that has started and has no status file yet."""
    from dartsim.config.load import read_tree
    from dartsim.core.files import below
    from dartsim.core.section import NONE
    from dartsim.observe.rundir import CONFIG, is_held

    # As text: its plug-ins are not imported.
    config, held = read_tree(below(folder, CONFIG)), is_held(folder)
    run, backend = config["run"], config["backend"]
    simulated = not backend["real_time"] and {backend[part] for part in ("desktops", "workers", "learner")} == {"sim"}
    return {
        "state": "starting" if held else "crashed",
        "name": config["preset"] if run["name"] == NONE else run["name"],
        "preset": config["preset"],
        "seed": run["seed"],
        "clock": "virtual" if simulated else "real",
        "run_seconds": 0.0,
        "of_seconds": run["hours"] * 3600.0,
        "error": None if held else f"it ended before anything had happened; `dartsim resume {folder}` begins it",
        "alarms": [],
        "counts": {},
        "as_of_seconds": 0.0,
        "components": [],
    }


def _stream(folder: Path, target: str) -> None:
    """Print a line of JSON whenever the status changes, until the run ends; a file contains only the newest."""
    last: dict[str, Any] = {}
    while last.get("state") not in ENDED:
        if last:
            time.sleep(BETWEEN_SECONDS)
        newest = read_status(folder)
        if newest != last:
            if target == "-":
                typer.echo(json.dumps(newest))
            else:
                write_json(newest, target)
        last = newest


def _page(status: Mapping[str, Any], *, each: bool) -> RenderableType:
    now, whole = status["run_seconds"], status["of_seconds"]
    lines = [
        f"{status['name']}, seed {status['seed']}: {status['state']} at {hours(now)} of {hours(whole)} "
        f"({status['clock']} time); components as of {hours(status['as_of_seconds'])}"
    ]
    if status.get("error"):
        lines.append(str(status["error"]))
    if status.get("silent_since"):
        lines.append(
            f"silent: its process is alive, and has written nothing since {status['silent_since']}: a call does not "
            "return. Likely: the database (curation.store) or the disk of the run's folder does not answer, or the "
            "process or its machine was paused. It continues once that is over; otherwise kill it and `dartsim resume` "
            "the run"
        )
    lines += [f"alarm: {alarm_text(alarm)}" for alarm in status["alarms"]]
    counts = ", ".join(f"{name} {number:,}" for name, number in status["counts"].items())
    return Group(Text(printable("\n".join(lines))), Text(printable(counts), style="dim"), _table(status, each=each))


def _table(status: Mapping[str, Any], *, each: bool) -> Table:
    table = plain_table("component", "state", "for", "waits for; woken by")
    for same in _grouped(status["components"], each=each):
        oldest = min(same, key=lambda part: float(part["since_seconds"]))
        lasted = hours(max(0.0, status["as_of_seconds"] - oldest["since_seconds"]))
        detail = f" ({oldest['detail']})" if oldest["detail"] else ""
        words = f"{oldest['waits_for']}{detail}; {oldest['woken_by']}"
        table.add_row(*(Text(printable(word)) for word in (_names(same), oldest["state"], lasted, words)))
    return table


def _grouped(components: Sequence[Mapping[str, Any]], *, each: bool) -> list[list[Mapping[str, Any]]]:
    """Return the components, with slots of the same state in one group unless ``each`` is set."""
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for part in components:
        alone = each or not part["component"].startswith("slot ")
        groups.setdefault((part["component"] if alone else "slots", part["state"]), []).append(part)
    return list(groups.values())


def _names(components: Sequence[Mapping[str, Any]]) -> str:
    if len(components) == 1:
        return str(components[0]["component"])
    numbers = [part["component"].removeprefix("slot ") for part in components]
    shown = ", ".join(numbers[:SLOTS_SHOWN]) + (", …" if len(numbers) > SLOTS_SHOWN else "")
    return f"{len(numbers)} slots: {shown}"
