"""``dartsim collect``: collect successes for the pool of a later run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from dartsim.cli.console import errors, out, write_json
from dartsim.cli.options import Json, Out, Overrides, new_folder
from dartsim.core.errors import ConfigError

if TYPE_CHECKING:
    from dartsim.config import Config
    from dartsim.lab.collecting import Collected

EXAMPLES = (
    "Examples:\n\n"
    "dartsim collect --oracle 2 --out runs/shown\n\n"
    "dartsim collect my.toml --oracle 1 --set tasks.count=64\n\n"
    "dartsim collect --model runs/tiny-seed0 --attempts 8 --out runs/tried\n\n"
    "dartsim collect --run runs/tiny-seed0 --json -\n\n"
    "dartsim run --set curation.pool.file=runs/shown"
)

NAMED = 5
"""Largest number of unknown tasks in the message."""


def collect(
    config: Annotated[
        Path | None,
        typer.Argument(
            metavar="CONFIG", help="A TOML file; its tasks are collected for. Default: RUN's, or preset tiny."
        ),
    ] = None,
    oracle: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="The scripted oracle solves each task N times.")
    ] = None,
    model: Annotated[
        Path | None, typer.Option(metavar="RUN", help="A finished run's model attempts the tasks; keep its successes.")
    ] = None,
    run: Annotated[
        Path | None, typer.Option(metavar="RUN", help="Take the successes from the pool of a finished run.")
    ] = None,
    attempts: Annotated[int, typer.Option(min=1, help="With --model: attempts at each task.")] = 4,
    best: Annotated[bool, typer.Option("--best", help="With --model: its promoted weights, not its last.")] = False,
    preset: Annotated[str | None, typer.Option(help="What to build on; see `dartsim presets`.")] = None,
    overrides: Overrides = None,
    out_folder: Out = None,
    json_file: Json = None,
) -> None:
    """Collect successes into a folder; a run with this folder as `curation.pool.file` starts with them.

    A model's successes keep the log-probabilities and the version of its weights. An oracle's successes get their
    log-probabilities from the initial weights of the run that uses them.
    """
    source = _single_source(oracle, model, run)
    folder = out_folder or new_folder(f"successes-{source}")
    if folder.exists():
        raise ConfigError(f"{folder} already exists; name another folder with --out")
    asked = config is not None or preset is not None or bool(overrides)
    resolved = _config(config, preset, overrides or [], model or run)
    # Imported here: it brings torch, and names the extra that is missing.
    from dartsim.lab.collecting import from_model, from_oracle, from_run

    with _bar(source) as on_step:
        if oracle is not None:
            collected = from_oracle(resolved, oracle, on_step)
        elif model is not None:
            collected = from_model(model, attempts, config=resolved if asked else None, best=best, on_step=on_step)
        else:
            assert run is not None, "one of the three was given"
            collected = from_run(run, resolved)
    collected.write(folder)
    if json_file != "-":
        _show(collected, folder)
    if json_file is not None:
        write_json(_figures(collected, folder), json_file)


def _single_source(oracle: int | None, model: Path | None, run: Path | None) -> str:
    """Return the requested source.

    Raises:
        ConfigError: If there is not exactly one.
    """
    given = [name for name, value in (("oracle", oracle), ("model", model), ("run", run)) if value is not None]
    if len(given) != 1:
        found = " and ".join(f"--{name}" for name in given) or "none of them"
        raise ConfigError(f"wanted exactly one source, --oracle N, --model RUN or --run RUN; found {found}")
    return given[0]


def _config(file: Path | None, preset: str | None, overrides: Sequence[str], run: Path | None) -> Config:
    """Return the configuration whose tasks are collected for.

    Raises:
        ConfigError: If it is invalid, or has no model to train on successes.
    """
    from dartsim.config import load
    from dartsim.observe.rundir import CONFIG, read_run

    if file is None and preset is None:
        if run is None:
            preset = "tiny"
        else:
            read_run(run)
            file = run / CONFIG
    found = load(file, preset_name=preset, overrides=overrides)
    if found.policy.kind != "vlm":
        raise ConfigError(
            f"the configuration ({found.preset}) has a surrogate policy, which successes cannot teach; wanted "
            'policy.kind = "vlm", as in the preset tiny'
        )
    return found


@contextmanager
def _bar(source: str) -> Iterator[Callable[[int, int], None]]:
    """Show a bar on terminals, and yield the function that updates it."""
    columns = (TextColumn("{task.description}"), BarColumn(bar_width=30), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=errors, disable=not errors.is_terminal) as progress:
        unit = {"oracle": "tasks", "model": "attempts", "run": "reading"}[source]
        task = progress.add_task(unit, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


def _show(collected: Collected, folder: Path) -> None:
    tried = "" if collected.attempts is None else f" in {collected.attempts} attempts"
    out.print(f"{len(collected.successes)} successes{tried}, at {collected.solved} of {collected.num_tasks} tasks")
    if collected.unknown:
        more = ", …" if len(collected.unknown) > NAMED else ""
        errors.print(
            f"skipped successes of {len(collected.unknown)} tasks that are not in the configuration: "
            f"{', '.join(collected.unknown[:NAMED])}{more}",
            highlight=False,
        )
    out.print(f'use them in a run with: curation.pool.file = "{folder}"', soft_wrap=True, highlight=False)


def _figures(collected: Collected, folder: Path) -> dict[str, Any]:
    return {
        "source": collected.source,
        "successes": len(collected.successes),
        "turns": sum(len(success.turns) for success in collected.successes),
        "attempts": collected.attempts,
        "tasks": collected.num_tasks,
        "tasks_solved": collected.solved,
        "unknown_tasks": list(collected.unknown),
        "out": str(folder),
    }
