"""``dartsim tune``: better settings for a cluster, found by simulation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dartsim.cli.console import errors, out, write_json
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
    from dartsim.lab.validation import Validation

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
    from dartsim.cli.load_config import load_with_profile
    from dartsim.cli.tune_tables import show
    from dartsim.core.errors import ConfigError
    from dartsim.lab.costs import Prices
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
    from dartsim.cli.tune_tables import as_it_is
    from dartsim.observe.studies import render_study

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
    from dartsim.cli.tune_tables import in_words
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
