"""``dartsim tune``: better settings for a cluster, found by simulation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from dartsim.cli.console import errors, out, plain_table, write_json
from dartsim.cli.options import (
    Hours,
    Json,
    Overrides,
    ProfileOption,
    WorkloadOption,
    folder_target,
    new_folder,
    settings,
)

if TYPE_CHECKING:
    from dartsim.config import Config
    from dartsim.lab.study import Study, Trial
    from dartsim.lab.study_spec import StudySpec
    from dartsim.lab.validation import Held, Validation


EXAMPLES = (
    "Examples:\n\n"
    'dartsim tune --space "rollout.num_envs=20..80,rollout.sync.mode=drain|keep" \\\n  --hours 6\n\n'
    "dartsim tune my.toml --space space.toml --max-staleness 1 \\\n  --budget 400 --out studies/mine\n\n"
    'dartsim tune --space "rollout.num_envs=20..80,rollout.num_workers=2..8" \\\n  '
    "--objective trained_turns_per_minute --objective cost_per_hour \\\n  --sampler nsga2"
)

DATABASE, BEST, FRONT, PAGE = "study.db", "best.toml", "front-{}.toml", "study.html"
DEFAULT = "steady_turns_per_minute"
"""Counts whole updates: over a window, one update more or less at its ends is worth more than most settings."""


class SamplerKind(StrEnum):
    """How settings are proposed."""

    TPE = "tpe"
    RANDOM = "random"
    QMC = "qmc"
    NSGA2 = "nsga2"


GpuPrice = Annotated[float, typer.Option("--price-gpu-hour", min=0.0, help="Price of a GPU hour.")]
HostPrice = Annotated[float, typer.Option("--price-host-hour", min=0.0, help="Price of a desktop machine's hour.")]
Processes = Annotated[int | None, typer.Option(min=1, help="Runs at a time; default: one for each core.")]
RayAddress = Annotated[
    str | None, typer.Option("--ray", metavar="ADDRESS", help="Simulate on this Ray cluster (extra `ray`).")
]


def tune(
    config: Annotated[
        Path | None, typer.Argument(metavar="CONFIG", help="A TOML file; see `dartsim config schema`.")
    ] = None,
    space: Annotated[
        str, typer.Option(help="What may change: a TOML file, or key=low..high,key=one|other (see docs/lab.md).")
    ] = "",
    preset: Annotated[str | None, typer.Option(help="What to build on; default: dart-measured.")] = None,
    workload: WorkloadOption = None,
    profile: ProfileOption = None,
    objective: Annotated[
        list[str] | None,
        typer.Option(
            help="Figure to raise (or lower: FIGURE:min); repeatable. Default: steady_turns_per_minute.",
            metavar="FIGURE",
        ),
    ] = None,
    budget: Annotated[int, typer.Option(min=1, help="Total number of trials, including earlier ones.")] = 200,
    max_staleness: Annotated[float | None, typer.Option(min=0.0, help="Largest allowed staleness.")] = None,
    max_cost: Annotated[
        float | None, typer.Option(min=0.0, help="Largest allowed cost per hour, in the prices' currency.")
    ] = None,
    price_gpu_hour: GpuPrice = 1.0,
    price_host_hour: HostPrice = 0.0,
    sampler: Annotated[SamplerKind | None, typer.Option(help="Default: tpe.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the proposals.")] = 0,
    seeds: Annotated[int, typer.Option(min=1, help="Simulations of a trial, seeds from 0; figures are means.")] = 1,
    fresh_seeds: Annotated[
        int, typer.Option(min=1, help="Simulations of the best settings at the end, with seeds that no trial had.")
    ] = 5,
    prune: Annotated[bool, typer.Option(help="Stop trials that fall below the median.")] = True,
    batch: Annotated[int, typer.Option(min=1, help="Trials proposed at a time; at least one for each core.")] = 8,
    overrides: Overrides = None,
    hours: Hours = None,
    processes: Processes = None,
    ray: RayAddress = None,
    out_folder: Annotated[
        Path | None,
        typer.Option("--out", callback=folder_target, help="Folder of the study; an existing study is resumed."),
    ] = None,
    json_file: Json = None,
) -> None:
    """Find better settings by simulation; ends with a TOML file for the real run.

    The study is kept in FOLDER/study.db: the same command with --out FOLDER resumes it after Ctrl-C, or with a
    larger --budget. Trials do not depend on the number of cores. Needs the extra `lab`.
    """
    from dartsim.cli.options import load_with_profile
    from dartsim.core.errors import ConfigError
    from dartsim.lab.jobs import Prices
    from dartsim.lab.space import read_space
    from dartsim.lab.study import Study, require_optuna
    from dartsim.lab.study_spec import StudySpec
    from dartsim.lab.study_spec import objective as objective_of

    require_optuna()
    if not space:
        raise ConfigError('nothing to tune: give --space, a TOML file or "key=low..high,key=one|other"')
    asked = StudySpec(
        base=load_with_profile(
            config,
            preset_name=preset,
            default="dart-measured",
            workload_name=workload,
            profile=profile,
            overrides=settings(overrides, hours, None),
        ),
        space=read_space(space),
        objectives=tuple(objective_of(text) for text in objective or [DEFAULT]),
        seeds=tuple(range(seeds)),
        sampler=(sampler or SamplerKind.TPE).value,
        seed=seed,
        batch=batch,
        prune=prune,
        max_staleness=max_staleness,
        max_cost=max_cost,
        prices=Prices(price_gpu_hour, price_host_hour),
    )
    folder = out_folder or new_folder("tune")
    study = Study(asked, folder / DATABASE)
    errors.print(f"study: {folder} (resume with --out {folder})", soft_wrap=True, highlight=False)
    try:
        held = _search(study, asked, budget, fresh_seeds, processes, ray)
    except KeyboardInterrupt:
        done = len(study.trials())
        errors.print(f"interrupted after {done} trials; the same command with --out {folder} resumes", soft_wrap=True)
        raise typer.Exit(130) from None
    found = _write(study, asked, held, folder)
    if json_file != "-":
        show(study, held)
        if study.best() is not None:
            out.print(f"configuration: {folder / BEST}", soft_wrap=True, highlight=False)
            out.print(f"page: {(folder / PAGE).resolve().as_uri()}", soft_wrap=True)
            out.print("simulated: outcomes are drawn, nothing was learned")
    if json_file is not None:
        write_json(found, json_file)
    if study.best() is None:
        errors.print(f"no trial met the bounds: no settings were written{_why(study.trials())}", highlight=False)
        raise typer.Exit(1)


def _why(trials: Sequence[Trial]) -> str:
    """Return the most frequent reason why trials were refused, if any was."""
    reasons = Counter(trial.reason for trial in trials if trial.reason)
    return "".join(f"; {number} of {len(trials)}: {reason}" for reason, number in reasons.most_common(1))


def _search(
    study: Study, asked: StudySpec, budget: int, fresh_seeds: int, processes: int | None, ray: str | None
) -> Validation | None:
    """Run the study and, with seeds that it has not seen, its best settings and each knob moved from there."""
    from dartsim.cli.signals import undisturbed
    from dartsim.lab.sweep import WithProgress, executor_for, progress_bar
    from dartsim.lab.validation import validate

    done = {trial.number for trial in study.trials()}
    with executor_for(processes, ray) as executor, progress_bar(errors) as progress:
        bar = progress.add_task("trials", total=max(budget, len(done)), completed=len(done), live=_live(study))

        def ended(trial: Trial) -> None:
            progress.update(bar, advance=1, live=_live(study))

        study.run(budget, executor, on_trial=ended, undisturbed=undisturbed)
        best = study.best()
        if best is None:
            return None
        counted = WithProgress(executor, progress, "with fresh seeds", size=lambda job: len(job.seeds))
        return validate(asked, best.settings, fresh_seeds, counted)


def _live(study: Study) -> str:
    best = study.best()
    if best is None:
        return "nothing within the bounds yet"
    wanted = study.spec.objectives[0]
    return f"best {wanted.figure.replace('_', ' ')} {best.values[0]:.4g} (trial {best.number})"


def _write(study: Study, asked: StudySpec, held: Validation | None, folder: Path) -> dict[str, Any]:
    """Write the best configurations and the page; return all that was found, as plain values."""
    from dartsim.observe.report import render_study

    best, front, trials = study.best(), study.front(), study.trials()
    files: list[str] = []
    if best is not None:
        files.append(str(_toml(folder / BEST, asked, best, held)))
    for old in folder.glob(FRONT.format("*")):
        old.unlink()  # of an earlier part of the study, whose front may have been longer
    if len(asked.objectives) > 1:
        files += [str(_toml(folder / FRONT.format(place), asked, trial)) for place, trial in enumerate(front)]
    found = {
        "objectives": [{"figure": wanted.figure, "direction": wanted.direction} for wanted in asked.objectives],
        "space": {dimension.key: dimension.text() for dimension in asked.space},
        "num_trials": len(trials),
        "states": {
            state: sum(trial.state == state for trial in trials) for state in ("finished", "given up", "refused")
        },
        "base": None if not trials else asdict(trials[0]),
        "as_it_is": as_it_is(asked),
        "best": None if best is None else asdict(best),
        "front": [asdict(trial) for trial in front],
        "importances": study.importances(),
        "validation": None if held is None else {**asdict(held), "knobs": len(held.knobs)},
        "sensitivity": [] if held is None else [{**asdict(knob), "worth": knob.worth} for knob in held.knobs],
        "trials": [{key: value for key, value in asdict(trial).items() if key != "figures"} for trial in trials],
        "database": str(folder / DATABASE),
        "files": files,
    }
    found["page"] = str(render_study(found, folder / PAGE))
    return found


def _toml(path: Path, asked: StudySpec, trial: Trial, held: Validation | None = None) -> Path:
    """Write the tuned configuration, whole, with where it comes from and what is left of it with fresh seeds."""
    from dartsim.config import to_toml
    from dartsim.lab.virtual import changed
    from dartsim.observe.rundir import write_text

    tuned: Config = changed(asked.base, trial.settings)
    values = ", ".join(
        f"{wanted.figure} = {value:.4g}" for wanted, value in zip(asked.objectives, trial.values, strict=True)
    )
    lines = [
        f"# Found by `dartsim tune`, trial {trial.number}: simulated {values}.",
        *(f"# With fresh seeds: {line}." for line in ([] if held is None else in_words(held))),
        *(f"# {key} = {value}" for key, value in trial.settings.items()),
    ]
    write_text(path, "\n".join(lines) + "\n\n" + to_toml(tuned))
    return path


def show(study: Study, held: Validation | None) -> None:
    """Print what a study found, and what is left of it with seeds that it has not seen."""
    best, trials, asked = study.best(), study.trials(), study.spec
    states = ", ".join(
        f"{sum(trial.state == state for trial in trials)} {state}" for state in ("finished", "given up", "refused")
    )
    out.print(f"{len(trials)} trial{'' if len(trials) == 1 else 's'}: {states}")
    if best is None or held is None:
        return
    out.print(_best_table(best, trials[0], asked, held, study.importances()))
    for line in in_words(held):
        out.print(f"with fresh seeds {line}", soft_wrap=True, highlight=False)
    for broken in held.broken:
        out.print(f"[bold red]bound broken[/bold red] with fresh seeds: {broken}; search with more --seeds")
    if len(asked.objectives) > 1:
        out.print()
        out.print(_front_table(study.front(), asked))


def as_it_is(asked: StudySpec) -> dict[str, Any]:
    """Return the unmodified configuration's values for the space's settings."""
    from dartsim.lab.space import setting_of

    return {dimension.key: setting_of(asked.base, dimension.key) for dimension in asked.space}


def in_words(held: Validation) -> Iterator[str]:
    """Yield the effect on each objective with fresh seeds."""
    seeds = f"{held.seeds[0]} to {held.seeds[-1]}" if len(held.seeds) > 1 else f"{held.seeds[0]}"
    for row in held.held:
        name = row.figure.replace("_", " ")
        yield (
            f"({seeds}), {name}: {_mean(row.best, row.best_half_width)} the best, "
            f"{_mean(row.first, row.first_half_width)} as it is: {_judged(row)}"
        )


def _judged(row: Held) -> str:
    """Describe the change from the unmodified configuration to the best settings."""
    if row.change is None:
        return "not comparable"
    if row.half_width is None:
        return f"{row.change:+.1%} (one seed: no confidence interval)"
    said = f"{100.0 * row.change:+.1f} ± {100.0 * row.half_width:.1f} %"
    if row.better:
        return said
    return f"{said}, " + ("within the confidence interval" if abs(row.change) <= row.half_width else "which is worse")


def _mean(value: float | None, width: float | None) -> str:
    return "–" if value is None else f"{value:.4g}" + ("" if width is None else f" ± {width:.2g}")


def _best_table(best: Trial, first: Trial, asked: StudySpec, held: Validation, importances: dict[str, float]) -> Table:
    """Return the best settings with what each is worth; the knob that matters most comes first."""
    table = plain_table()
    for column, right in (("", False), ("as it is", True), ("best", True), ("importance", True)):
        table.add_column(column, justify="right" if right else "left", overflow="fold")
    table.add_column("moved alone, from the best", overflow="fold")
    own = as_it_is(asked)
    same = all(first.settings.get(key) == value for key, value in own.items())
    for place, wanted in enumerate(asked.objectives):
        searched = f"{first.values[place]:.4g}" if first.values and same else "–"
        name = wanted.figure.replace("_", " ")
        table.add_row(f"{name}, in the search", searched, f"{best.values[place]:.4g}", "", "", style="bold")
        row = held.held[place]
        table.add_row("  with fresh seeds", *(_number(value) for value in (row.first, row.best)), "", "", style="bold")
    for knob in held.knobs:
        importance = f"{importances[knob.key]:.0%}" if knob.key in importances else "–"
        moves = ", ".join(f"{_text(moved.value)}: {_moved(moved.change, moved.half_width)}" for moved in knob.moved)
        table.add_row(knob.key, _text(own[knob.key]), _text(knob.best), importance, moves)
    return table


def _moved(change: float | None, width: float | None) -> str:
    if change is None:
        return "–"
    return f"{change:+.1%}" if width is None else f"{100.0 * change:+.1f} ± {100.0 * width:.1f} %"


def _front_table(front: Sequence[Trial], asked: StudySpec) -> Table:
    table = plain_table(title="Pareto front")
    for wanted in asked.objectives:
        table.add_column(wanted.figure.replace("_", " "), justify="right")
    for dimension in asked.space:
        table.add_column(dimension.key, justify="right", overflow="fold")
    for trial in front:
        table.add_row(
            *(f"{value:.4g}" for value in trial.values),
            *(_text(trial.settings.get(dimension.key)) for dimension in asked.space),
        )
    return table


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"


def _text(value: Any) -> str:
    return "–" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
