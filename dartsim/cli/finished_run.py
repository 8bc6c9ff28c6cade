"""``dartsim report`` and ``rescore``: commands on a finished run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dartsim.cli.console import errors, out, write_json
from dartsim.cli.options import Json, file_target
from dartsim.core.errors import ConfigError

Folder = Annotated[Path, typer.Argument(help="A run's folder, as `dartsim run` printed it.", metavar="RUN")]


def report(
    folder: Folder,
    episode: Annotated[
        int | None,
        typer.Option(
            "--episode",
            min=0,
            metavar="TASK",
            help="Instead, let the run's last weights try this held-out task, and write the episode as a GIF.",
        ),
    ] = None,
    out_file: Annotated[
        Path | None, typer.Option("--out", callback=file_target, help="GIF to write; default: in the run's folder.")
    ] = None,
    json_file: Json = None,
) -> None:
    """Draw report.html of a finished run again, and print its figures; or write one episode of its model as a GIF.

    Examples:
        dartsim report runs/dart-seed0
        dartsim report runs/tiny-seed0 --episode 3 --out episode.gif
    """
    if episode is not None:
        _film(folder, episode, out_file or folder / f"episode-{episode}.gif", json_file)
        return
    if out_file is not None:
        raise ConfigError("--out is about a GIF; name its task with --episode")
    from dartsim.cli.console import figure_table
    from dartsim.observe.report import render_report
    from dartsim.observe.rundir import read_run, reading

    run = read_run(folder)
    with reading(folder):
        table = figure_table([(run.name, run.summary)])
        try:
            page = render_report(run)
        except OSError as error:  # of a run that may only be read
            page = None
            errors.print(f"{run.report} cannot be written: {error.strerror}", markup=False, soft_wrap=True)
    if json_file is not None:
        write_json(dict(run.summary), json_file)
    if json_file != "-":
        out.print(table)
        if page is not None:
            out.print(f"report: {page.resolve().as_uri()}", soft_wrap=True)


def _film(folder: Path, episode: int, target: Path, json_file: str | None) -> None:
    from dartsim.observe.rundir import read_run
    from dartsim.run.resume import resumed

    if read_run(folder).summary.get("surrogate", True):
        raise ConfigError(f"{folder} was run with a surrogate policy: it has no model to film")
    prepared, learning = resumed(folder, [f"tasks.held_out={episode + 1}"])
    trajectory = learning.film(prepared.held_out[episode], target)
    actions = [turn.reply.action for turn in trajectory.turns]
    instruction = trajectory.attempt.task.instruction
    if json_file is not None:
        figures = {"task": instruction, "actions": actions, "reward": trajectory.reward, "gif": str(target)}
        write_json(figures, json_file)
    if json_file != "-":
        out.print(f"{instruction} {', '.join(actions)}: reward {trajectory.reward:g}", markup=False)
        out.print(f"episode: {target.resolve().as_uri()}", soft_wrap=True)


def rescore(folder: Folder, json_file: Json = None) -> None:
    """Score a run's stored attempts again, and exit with 1 if a score differs from the stored one.

    Examples:
        dartsim rescore runs/desktop-seed0
        dartsim rescore runs/desktop-seed0 --json -
    """
    from dataclasses import asdict

    from rich.text import Text

    from dartsim.cli.console import out, plain_table, printable
    from dartsim.observe.rundir import reading
    from dartsim.run.rescore import rescore as score_again

    with reading(folder):
        scores = score_again(folder)
    compared = [score for score in scores if score.score is not None]
    differing = [score for score in compared if not score.same]
    if json_file is not None:
        write_json({"compared": len(compared), "of": len(scores), "differing": list(map(asdict, differing))}, json_file)
    if json_file != "-":
        table = plain_table("attempt", "task", "metric", numbers=["stored", "now"])
        for score in differing:
            names = (Text(printable(name)) for name in (score.task, score.metric))
            table.add_row(str(score.attempt), *names, f"{score.stored:g}", f"{score.score:g}")
        if differing:
            out.print(table)
        out.print(f"{len(compared)} of {len(scores)} metrics scored again, {len(differing)} differ")
    if differing:
        raise typer.Exit(1)
