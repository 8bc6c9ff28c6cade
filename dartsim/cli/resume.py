"""``dartsim resume``: resume an interrupted run."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dartsim.cli.console import errors
from dartsim.cli.options import Json
from dartsim.cli.progress import RunBar, bars

if TYPE_CHECKING:
    from dartsim.config import Config
    from dartsim.run.resume_point import ResumePoint

EXAMPLES = (
    "Examples:\n\n"
    "dartsim resume runs/tiny-seed0\n\n"
    "dartsim resume runs/dart-seed0 --hours 48\n\n"
    "dartsim resume runs/tiny-seed0 --updates 1000 --json -"
)


def resume(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="The run's folder, as `dartsim run` printed it.")],
    hours: Annotated[
        float | None, typer.Option(help="Hours of the run's time in all; default: the configuration's.")
    ] = None,
    updates: Annotated[int | None, typer.Option(min=1, help="Updates in all; default: the configuration's.")] = None,
    json_file: Json = None,
) -> None:
    """Resume a run after a crash, a kill or Ctrl-C, from its last transaction; or extend a finished run.

    The run's own configuration is used. Interrupted attempts restart; no trajectory is trained twice, and no stored
    trajectory is lost. The report covers the run from its first start.
    """
    from dartsim.cli.run import resumable_after_ctrl_c, tell
    from dartsim.lab.bounds import bounds
    from dartsim.run.resume import resumable
    from dartsim.run.resume import resume as go_on

    config = resumable(folder, hours=hours, updates=updates)
    cpu, wall = time.process_time(), time.perf_counter()
    with resumable_after_ctrl_c(folder), bars() as progress:
        live = RunBar(progress, config.preset, config.run.hours, simulated=config.backend.virtual)
        run_dir, result = go_on(
            folder,
            hours=hours,
            updates=updates,
            on_origin=_tell,
            instruments=[live],
            more_figures=bounds,
        )
        if not result.interrupted:
            live.done()
    seconds = (time.process_time() - cpu, time.perf_counter() - wall)
    tell(run_dir, result, seconds, json_file)


def _tell(config: Config, origin: ResumePoint | None) -> None:
    """Print where the run resumes."""
    if origin is None:
        errors.print("the run had not begun: starting it")
        return
    told = origin.told()
    text = (
        f"life {origin.life}: from hour {told['from_hours']:.2f} of {config.run.hours:g} and update "
        f"{told['from_update']}"
    )
    if told["interrupted_attempts"]:
        text += f"; {told['interrupted_attempts']} interrupted attempts restart"
    if told["returned"]:
        text += f"; {told['returned']} leased trajectories are returned"
    if told["undone_updates"]:
        text += f"; {told['undone_updates']} updates that no checkpoint contains are repeated"
    errors.print(text, highlight=False)
    for why in told["torn_checkpoints"]:
        errors.print(f"[yellow]a checkpoint is incomplete, using the previous one:[/yellow] {why}", highlight=False)
