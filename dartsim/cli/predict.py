"""``dartsim predict``: fit some rows of a table of published or own runs by simulation, and predict the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from dartsim.cli.console import errors, out, plain_table, printable, write_json
from dartsim.cli.options import Json, Processes, file_target
from dartsim.core.words import significant


def predict(
    file: Annotated[
        Path, typer.Argument(metavar="FILE.toml", help="A table: machines, model, workload, scheduler, rows.")
    ],
    fit: Annotated[
        list[str] | None,
        typer.Option(metavar="ROW", help="Row to fit, in place of those that the file names; repeatable."),
    ] = None,
    no_fit: Annotated[bool, typer.Option("--no-fit", help="Fit no row: predict from data sheets alone.")] = False,
    processes: Processes = None,
    html: Annotated[
        Path | None,
        typer.Option("--html", metavar="FILE", callback=file_target, help="Also write a page of the prediction."),
    ] = None,
    json_file: Json = None,
) -> None:
    """Predict runs that nobody has measured from a few that somebody has, or from data sheets alone.

    It fits the unknown parameters to the fitted rows by simulation, says which of them these rows determine, and
    predicts the others with 90 % intervals. A row that the model cannot express is unsupported, with the reason. The
    JSON file has everything. docs/how-far-to-trust-it.md describes the file and how good such predictions have been.

    Examples:
        dartsim predict experiments/published/verl-fa-scale.toml
        dartsim predict mine.toml --fit "8:8" --fit "16:16" --json mine.json
        dartsim predict mine.toml --no-fit --html mine.html
    """
    from dartsim.core.errors import ConfigError
    from dartsim.lab.prediction import Predictor
    from dartsim.lab.progress import progress_bar
    from dartsim.lab.study_document import prediction_document
    from dartsim.lab.sweep import WithProgress, executor_for
    from dartsim.observe.page.file import page_file
    from dartsim.observe.rundir import write_text

    if no_fit and fit:
        raise ConfigError("--no-fit fits nothing, and --fit names a row; give one of them")
    rows = [] if no_fit else fit or None
    with executor_for(processes) as inner, progress_bar(errors) as progress:
        executor = WithProgress(inner, progress, "simulations")
        found = Predictor(file, fit=rows, executor=executor).run()
    console = errors if json_file == "-" else out
    _print(found, console)
    if html is not None:
        write_text(html, page_file({"study": prediction_document(found)}))
        errors.say(f"page: {html.resolve().as_uri()}")
    if json_file is not None:
        write_json(found, json_file)


def _print(found: Mapping[str, Any], console: Any) -> None:
    console.print(printable(found["title"]))
    if found["unsupported"]:
        console.print(f"unsupported, because {printable(found['unsupported'])}")
        return
    table = plain_table("row", "figure", numbers=("published", "predicted", "90 % interval", "error"), after=("",))
    for row in found["rows"]:
        table.add_row(*map(printable, _cells(row)))
    console.print(table)
    known = plain_table("parameter", numbers=("median", "90 % interval"), after=("determined", "meaning"))
    for each in found["parameters"]:
        interval = f"{significant(each['low'], 3)} to {significant(each['high'], 3)}"
        known.add_row(each["name"], significant(each["median"], 3), interval, each["determined"], each["meaning"])
    console.print(known)
    if not found["identified"]:
        console.print("The fitted rows do not identify all parameters: intervals contain what the priors allow.")
    for assumption in found["assumptions"]:
        console.print(f"assumed: {printable(assumption)}")


def _cells(row: Mapping[str, Any]) -> Sequence[str]:
    published = "–" if row["published"] is None else significant(row["published"], 3)
    if not row["supported"]:
        return row["row"], row["figure"], published, "", "", "", f"unsupported, because {row['reason']}"
    error = "–" if row["error"] is None else f"{row['error']:+.0%}"
    interval = f"{significant(row['low'], 3)} to {significant(row['high'], 3)}"
    note = "fitted" if row["fitted"] else ""
    return row["row"], row["figure"], published, significant(row["predicted"], 3), interval, error, note
