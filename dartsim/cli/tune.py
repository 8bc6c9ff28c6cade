"""``dartsim tune``: better settings for a cluster, found by simulation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
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
    OnOption,
    Overrides,
    ProfileOption,
    SchedulerArgument,
    UntilSteady,
    folder_target,
    new_folder,
    settings,
)
from dartsim.cli.signals import report_interrupt, undisturbed
from dartsim.core.words import significant

if TYPE_CHECKING:
    from dartsim.lab.study import Study, Trial
    from dartsim.lab.study_spec import StudyObjective, StudySpec
    from dartsim.lab.validation import ObjectiveEffect, Validation


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
    scheduler: SchedulerArgument = None,
    space: Annotated[str, typer.Option(help="What may change: a TOML file, or key=low..high,key=one|other.")] = "",
    preset: Annotated[str | None, typer.Option(help="What to build on; default: dart-measured.")] = None,
    on: OnOption = None,
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
    sampler: Annotated[
        SamplerKind | None, typer.Option(metavar="KIND", help="tpe, random, qmc or nsga2; default: tpe.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the proposals.")] = 0,
    seeds: Annotated[int, typer.Option(min=1, help="Simulations of a trial, seeds from 0; figures are means.")] = 1,
    fresh_seeds: Annotated[
        int, typer.Option(min=1, help="Simulations of the best settings at the end, with seeds that no trial had.")
    ] = 5,
    prune: Annotated[bool, typer.Option(help="Stop trials that fall below the median.")] = True,
    batch: Annotated[int, typer.Option(min=1, help="Trials proposed at a time; at least one for each core.")] = 8,
    overrides: Overrides = None,
    hours: Hours = None,
    until_steady: UntilSteady = None,
    processes: Processes = None,
    ray: RayAddress = None,
    out_folder: Annotated[
        Path | None,
        typer.Option("--out", callback=folder_target, help="Folder of the study; an existing study is resumed."),
    ] = None,
    json_file: Json = None,
) -> None:
    r"""Find better settings by simulation; ends with a TOML file for the real run.

    The study is kept in FOLDER/study.db: the same command with --out FOLDER resumes it after Ctrl-C, or with a
    larger --budget. Trials do not depend on the number of cores. Needs the extra `lab`.

    Examples:
        dartsim tune --space "rollout.num_envs=20..80,rollout.sync.mode=drain|keep" \
          --hours 6
        dartsim tune my.toml --space space.toml --max-staleness 1 \
          --budget 400 --out studies/mine
        dartsim tune --space "rollout.num_envs=20..80,rollout.num_workers=2..8" \
          --objective trained_turns_per_minute --objective cost_per_hour \
          --sampler nsga2
    """
    from dartsim.cli.options import load_config
    from dartsim.core.errors import ConfigError
    from dartsim.lab.jobs import Prices
    from dartsim.lab.space import read_space
    from dartsim.lab.study import Study, require_optuna
    from dartsim.lab.study_spec import StudySpec, read_objective

    require_optuna()
    if not space:
        raise ConfigError('nothing to tune: give --space, a TOML file or "key=low..high,key=one|other"')
    spec = StudySpec(
        base=load_config(
            scheduler,
            preset_name=preset,
            default="dart-measured",
            on=on,
            profile=profile,
            overrides=settings(overrides, hours, None, until_steady=until_steady),
        ),
        space=read_space(space),
        objectives=tuple(map(read_objective, objective or [DEFAULT])),
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
    study = Study(spec, folder / DATABASE)
    errors.print(f"study: {folder} (resume with --out {folder})", soft_wrap=True, highlight=False)
    resumable = f"the same command with --out {folder} resumes"
    with report_interrupt(lambda: f"interrupted after {len(study.trials())} trials; {resumable}"):
        validation = _search(study, budget, fresh_seeds, processes, ray)
    results = _write(study, validation, folder)
    if json_file != "-":
        _show(study, validation)
        if study.best() is not None:
            out.print(f"configuration: {folder / BEST}", soft_wrap=True, highlight=False)
            out.print(f"page: {(folder / PAGE).resolve().as_uri()}", soft_wrap=True)
            out.print("simulated: outcomes are drawn, nothing was learned")
    if json_file is not None:
        write_json(results, json_file)
    if study.best() is None:
        reasons = Counter(trial.reason for trial in study.trials() if trial.reason).most_common(1)
        why = "".join(f"; {number} of {len(study.trials())}: {reason}" for reason, number in reasons)
        errors.print(f"no trial met the bounds: no settings were written{why}", highlight=False)
        raise typer.Exit(1)


def _search(study: Study, budget: int, fresh_seeds: int, processes: int | None, ray: str | None) -> Validation | None:
    """Run the study; then simulate its best settings, and each knob moved from there, with fresh seeds."""
    from dartsim.lab.progress import ExpectedCost
    from dartsim.lab.sweep import WithProgress, executor_for, progress_bar
    from dartsim.lab.validation import validate

    done = len(study.trials())
    with executor_for(processes, ray) as executor, progress_bar(errors) as progress:
        bar = progress.add_task("trials", total=max(budget, done), completed=done, live=_live(study))
        cost = ExpectedCost(progress)

        def ended(trial: Trial) -> None:
            progress.update(bar, advance=1, live=_live(study))
            if budget > done:
                cost.progressed((len(study.trials()) - done) / (budget - done))

        study.run(budget, executor, on_trial=ended, undisturbed=undisturbed)
        best = study.best()
        if best is None:
            return None
        counted = WithProgress(executor, progress, "with fresh seeds")
        return validate(study.spec, best.settings, fresh_seeds, counted)


def _live(study: Study) -> str:
    best = study.best()
    if best is None:
        return "nothing within the bounds yet"
    return f"best {_label(study.spec.objectives[0])} {best.values[0]:.4g} (trial {best.number})"


def _write(study: Study, validation: Validation | None, folder: Path) -> dict[str, Any]:
    """Write the best configurations and the page; return all results as plain values."""
    from dartsim.observe.report import render_study

    spec, best, front, trials = study.spec, study.best(), study.front(), study.trials()
    files: list[str] = []
    if best is not None:
        files.append(str(_toml(folder / BEST, spec, best, validation)))
    for old in folder.glob(FRONT.format("*")):
        old.unlink()  # an earlier front may have been longer
    if len(spec.objectives) > 1:
        files += [str(_toml(folder / FRONT.format(place), spec, trial)) for place, trial in enumerate(front)]
    results = {
        "objectives": [{"figure": objective.figure, "direction": objective.direction} for objective in spec.objectives],
        "space": {dimension.key: dimension.text() for dimension in spec.space},
        "num_trials": len(trials),
        "states": _count_states(trials),
        "base": None if not trials else asdict(trials[0]),
        "as_it_is": _base_settings(spec),
        "best": None if best is None else asdict(best),
        "front": [asdict(trial) for trial in front],
        "importances": study.importances(),
        "validation": None if validation is None else {**asdict(validation), "knobs": len(validation.knobs)},
        "sensitivity": [{**asdict(knob), "worth": knob.worth} for knob in (validation.knobs if validation else ())],
        "trials": [{key: value for key, value in asdict(trial).items() if key != "figures"} for trial in trials],
        "database": str(folder / DATABASE),
        "files": files,
    }
    results["page"] = str(render_study(results, folder / PAGE))
    return results


def _toml(path: Path, spec: StudySpec, trial: Trial, validation: Validation | None = None) -> Path:
    """Write the complete tuned configuration, with its origin and its effect with fresh seeds as comments."""
    from dartsim.config import to_toml
    from dartsim.lab.virtual import changed
    from dartsim.observe.rundir import write_text

    values = ", ".join(
        f"{objective.figure} = {value:.4g}" for objective, value in zip(spec.objectives, trial.values, strict=True)
    )
    lines = [
        f"# Found by `dartsim tune`, trial {trial.number}: simulated {values}.",
        *(f"# With fresh seeds: {line}." for line in (_effects(validation) if validation else ())),
        *(f"# {key} = {value}" for key, value in trial.settings.items()),
    ]
    write_text(
        path, "\n".join(lines) + "\n\n" + to_toml(changed(spec.base, {**trial.settings, "run.until_steady": None}))
    )
    return path


def _show(study: Study, validation: Validation | None) -> None:
    """Print the best settings, and their effect with fresh seeds."""
    best, trials, spec = study.best(), study.trials(), study.spec
    states = ", ".join(f"{number} {state}" for state, number in _count_states(trials).items())
    out.print(f"{len(trials)} trial{'' if len(trials) == 1 else 's'}: {states}")
    if best is None or validation is None:
        return
    out.print(_best_table(best, trials[0], spec, validation, study.importances()))
    for line in _effects(validation):
        out.print(f"with fresh seeds {line}", soft_wrap=True, highlight=False)
    for broken in validation.broken:
        out.print(f"broken with fresh seeds: {broken}; search with more --seeds", style="bold red", soft_wrap=True)
    if len(spec.objectives) > 1:
        out.print()
        out.print(_front_table(study.front(), spec))


def _count_states(trials: Sequence[Trial]) -> dict[str, int]:
    counts = {
        state: sum(trial.state == state for trial in trials) for state in ("finished", "failed", "given up", "refused")
    }
    return {state: number for state, number in counts.items() if number or state != "failed"}


def _base_settings(spec: StudySpec) -> dict[str, Any]:
    """Return the unmodified configuration's values for the settings of the space."""
    from dartsim.lab.space import setting_of

    return {dimension.key: setting_of(spec.base, dimension.key) for dimension in spec.space}


def _effects(validation: Validation) -> Iterator[str]:
    """Yield the effect on each objective with fresh seeds."""
    first, *_, last = validation.seeds[:1] + validation.seeds
    for row in validation.effects:
        yield (
            f"({first if first == last else f'{first} to {last}'}), {_label(row)}: "
            f"{_number(row.best, row.best_half_width)} the best, {_number(row.first, row.first_half_width)} as it is: "
            f"{_effect(row)}"
        )


def _effect(row: ObjectiveEffect) -> str:
    """Describe the change from the unmodified configuration to the best settings."""
    if row.change is None:
        return "not comparable"
    change = _change(row.change, row.half_width)
    if row.half_width is None:
        return f"{change} (one seed: no confidence interval)"
    if row.better:
        return change
    return f"{change}, " + ("within the confidence interval" if abs(row.change) <= row.half_width else "which is worse")


def _best_table(
    best: Trial, first: Trial, spec: StudySpec, validation: Validation, importances: Mapping[str, float]
) -> Table:
    """Return the best settings and the effect of each; the knob that matters most comes first."""
    table = plain_table("", numbers=("as it is", "best", "importance"), after=("moved alone, from the best",))
    base = _base_settings(spec)
    base_was_tried = all(first.settings.get(key) == value for key, value in base.items())
    for number, (objective, row) in enumerate(zip(spec.objectives, validation.effects, strict=True)):
        searched = _number(first.values[number] if first.values and base_was_tried else None)
        table.add_row(
            f"{_label(objective)}, in the search", searched, _number(best.values[number]), "", "", style="bold"
        )
        table.add_row("  with fresh seeds", _number(row.first), _number(row.best), "", "", style="bold")
    for knob in validation.knobs:
        importance = f"{importances[knob.key]:.0%}" if knob.key in importances else "–"
        moves = ", ".join(f"{_text(moved.value)}: {_change(moved.change, moved.half_width)}" for moved in knob.moved)
        table.add_row(knob.key, _text(base[knob.key]), _text(knob.best), importance, moves)
    return table


def _front_table(front: Sequence[Trial], spec: StudySpec) -> Table:
    names = [*map(_label, spec.objectives), *(dimension.key for dimension in spec.space)]
    table = plain_table(numbers=names, title="Pareto front")
    for trial in front:
        settings = (trial.settings.get(dimension.key) for dimension in spec.space)
        table.add_row(*map(_text, (*trial.values, *settings)))
    return table


def _label(objective: StudyObjective | ObjectiveEffect) -> str:
    return objective.figure.replace("_", " ")


def _change(change: float | None, width: float | None) -> str:
    if change is None:
        return "–"
    return f"{change:+.1%}" if width is None else f"{100.0 * change:+.1f} ± {100.0 * width:.1f} %"


def _number(value: float | None, width: float | None = None) -> str:
    return _text(value) + ("" if width is None else f" ± {significant(width, 2)}")


def _text(value: Any) -> str:
    return "–" if value is None else significant(value, 4) if isinstance(value, float) else str(value)
