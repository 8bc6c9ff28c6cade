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
    from dartsim.lab.collecting import Collected, Written

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
    results: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="DIR", help="Import other agents' successes from a result directory of OSWorld; repeatable."
        ),
    ] = None,
    min_score: Annotated[
        float | None,
        typer.Option(min=0.0, max=1.0, help="With --results: smallest score that is imported. Default: 1."),
    ] = None,
    attempts: Annotated[int, typer.Option(min=1, help="With --model: attempts at each task.")] = 4,
    preset: Annotated[str | None, typer.Option(help="What to build on; see `dartsim config`.")] = None,
    overrides: Overrides = None,
    out_folder: Out = None,
    json_file: Json = None,
) -> None:
    r"""Collect successes into a folder; a run with this folder as `curation.pool.file` starts with them.

    A model's successes keep the log-probabilities and the version of its weights. Those of an oracle and of other
    agents get their log-probabilities from the initial weights of the run that uses them. Importing into the same
    folder again replaces it.

    Examples:
        dartsim collect --oracle 2 --out runs/shown
        dartsim collect my.toml --oracle 1 --set tasks.count=64
        dartsim collect --model runs/tiny-seed0 --attempts 8 --out runs/tried
        dartsim collect --run runs/tiny-seed0 --json -
        dartsim collect --preset osworld-8gpu \
          --results results/pyautogui/screenshot/other-model
        dartsim run --set curation.pool.file=runs/shown
    """
    source = _single_source(oracle, model, run, results)
    folder = out_folder or new_folder(f"successes-{source}")
    configured = config is not None or preset is not None or bool(overrides)
    resolved = _config(config, preset, overrides or [], model or run)
    # Imported here: it brings torch, and names the extra that is missing.
    from dartsim.lab.collecting import IMPORTED, from_model, from_oracle, from_results, from_run
    from dartsim.real.pool_files import pool_source

    if folder.exists() and not (results and pool_source(folder).get("kind") == IMPORTED):
        raise ConfigError(f"{folder} already exists; name another folder with --out")
    with _bar(source) as on_step:
        if oracle is not None:
            collected = from_oracle(resolved, oracle, on_step)
        elif model is not None:
            collected = from_model(model, attempts, config=resolved if configured else None, on_step=on_step)
        elif results:
            collected = from_results(resolved, results, min_score=min_score, on_step=on_step)
        else:
            assert run is not None, "one of the four was given"
            collected = from_run(run, resolved)
        written = collected.write(folder)
    if json_file != "-":
        _show(collected, written, folder)
    if json_file is not None:
        write_json(_figures(collected, written, folder), json_file)


def _single_source(oracle: int | None, model: Path | None, run: Path | None, results: list[Path] | None) -> str:
    """Return the requested source.

    Raises:
        ConfigError: If there is not exactly one.
    """
    sources = {"oracle": oracle, "model": model, "run": run, "results": results or None}
    given = [name for name, value in sources.items() if value is not None]
    if len(given) != 1:
        found = " and ".join(f"--{name}" for name in given) or "none of them"
        raise ConfigError(
            f"wanted exactly one source, --oracle N, --model RUN, --run RUN or --results DIR; found {found}"
        )
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
    config = load(file, preset_name=preset, overrides=overrides)
    if config.policy.kind != "vlm":
        raise ConfigError(
            f"the configuration ({config.preset}) has a surrogate policy, which successes cannot teach; wanted "
            'policy.kind = "vlm", as in the preset tiny'
        )
    return config


@contextmanager
def _bar(source: str) -> Iterator[Callable[[int, int], None]]:
    """Show a bar on terminals, and yield the function that updates it."""
    columns = (TextColumn("{task.description}"), BarColumn(bar_width=30), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=errors, disable=not errors.is_terminal) as progress:
        unit = {"oracle": "tasks", "model": "attempts", "run": "reading", "results": "attempts"}[source]
        task = progress.add_task(unit, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


def _show(collected: Collected, written: Written, folder: Path) -> None:
    imported = collected.imported
    attempts = collected.attempts if imported is None else imported.found
    tried = "" if attempts is None else f" in {attempts} attempts"
    out.print(f"{written.successes} successes{tried}, at {written.tasks} of {collected.num_tasks} tasks")
    if imported is not None:
        for reason, count in imported.refused.most_common():
            example = imported.examples[reason]
            errors.print(f"left out, {reason}: {count}, such as {example}", highlight=False, markup=False)
    if collected.unknown:
        more = ", …" if len(collected.unknown) > NAMED else ""
        errors.print(
            f"skipped successes of {len(collected.unknown)} tasks that are not in the configuration: "
            f"{', '.join(collected.unknown[:NAMED])}{more}",
            highlight=False,
        )
    out.print(f'use them in a run with: curation.pool.file = "{folder}"', soft_wrap=True, highlight=False)


def _figures(collected: Collected, written: Written, folder: Path) -> dict[str, Any]:
    imported = collected.imported
    return {
        "source": collected.source,
        "successes": written.successes,
        "turns": written.turns,
        "attempts": collected.attempts if imported is None else imported.found,
        "tasks": collected.num_tasks,
        "tasks_solved": written.tasks,
        "unknown_tasks": list(collected.unknown if imported is None else imported.unknown),
        "out": str(folder),
    }
