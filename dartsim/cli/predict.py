"""``dartsim predict``: fit some rows of a table of published or own runs by simulation, and predict the others."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dartsim.cli.console import errors, result, table
from dartsim.cli.options import Json, Processes, file_target


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
    console, document = result(found, json_file), prediction_document(found)
    for line in filter(None, (document["title"], document["verdict"])):
        console.say(line)
    for each in document["tables"]:
        if each["rows"]:
            console.print(table(each["heads"], each["rows"]))
    for note in document["notes"]:
        console.say(note)
    if html is not None:
        write_text(html, page_file({"study": document}))
        errors.say(f"page: {html.resolve().as_uri()}")
