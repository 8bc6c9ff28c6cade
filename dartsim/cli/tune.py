"""``dartsim tune``: find better settings for a cluster by simulation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
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
    from dartsim.lab.gate import Comparison
    from dartsim.lab.study import Study, StudySpec, Trial

DATABASE, BEST, FRONT, PAGE = "study.db", "best.toml", "front-{}.toml", "study.html"
DEFAULT = "steady_turns_per_minute"
"""The default objective. It counts whole updates, because one update more or less at the ends of a window matters more
than most settings.
"""
SHOWN = 10
"""Trials in the printed table; all are on the page."""

GpuPrice = Annotated[float, typer.Option("--price-gpu-hour", min=0.0, help="Price of a GPU hour.")]
HostPrice = Annotated[float, typer.Option("--price-host-hour", min=0.0, help="Price of a desktop machine's hour.")]
FreshSeeds = Annotated[
    int, typer.Option(min=2, help="Simulations of the best at the end, with seeds that no trial had.")
]
Processes = Annotated[int | None, typer.Option(min=1, help="Runs at a time; default: one for each core.")]
RayAddress = Annotated[
    str | None, typer.Option("--ray", metavar="ADDRESS", help="Simulate on this Ray cluster (extra `ray`).")
]


def tune(
    scheduler: SchedulerArgument = None,
    space: Annotated[
        str, typer.Option(help="Settings that may change: a TOML file, or key=low..high,key=one|other.")
    ] = "",
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
    seed: Annotated[int, typer.Option(min=0, help="Seed of the proposals.")] = 0,
    seeds: Annotated[int, typer.Option(min=1, help="Simulations per trial, with seeds from 0; figures are means.")] = 1,
    fresh_seeds: FreshSeeds = 5,
    prune: Annotated[bool, typer.Option(help="Stop trials that fall below the median.")] = True,
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
    r"""Find better settings by simulation, and write them as a TOML file for the real run.

    The study is stored in FOLDER/study.db: the same command with --out FOLDER resumes it, after Ctrl-C or with a larger
    --budget.

    Examples:
        dartsim tune --space "rollout.num_envs=20..80,rollout.sync.mode=drain|keep" \
          --hours 6
        dartsim tune my.toml --space space.toml --max-staleness 1 \
          --budget 400 --out studies/mine
        dartsim tune --space "rollout.num_envs=20..80,rollout.num_workers=2..8" \
          --objective trained_turns_per_minute --objective cost_per_hour
    """
    from dartsim.cli.options import load_config
    from dartsim.core.errors import ConfigError
    from dartsim.lab.jobs import Prices, read_objective
    from dartsim.lab.space import read_space
    from dartsim.lab.study import Study, StudySpec

    if not space:
        raise ConfigError('nothing to tune: give --space, a TOML file or "key=low..high,key=one|other"')
    spec = StudySpec(
        base=load_config(
            scheduler,
            default="dart-measured",
            on=on,
            profile=profile,
            overrides=settings(overrides, hours, None, until_steady=until_steady),
        ),
        space=read_space(space),
        objectives=tuple(map(read_objective, objective or [DEFAULT])),
        seeds=seeds,
        seed=seed,
        prune=prune,
        max_staleness=max_staleness,
        max_cost=max_cost,
        prices=Prices(price_gpu_hour, price_host_hour),
    )
    folder = out_folder or new_folder("tune")
    study = Study(spec, folder / DATABASE)
    errors.print(f"study: {folder} (resume with --out {folder})", soft_wrap=True, highlight=False)
    resumable = f"the same command with --out {folder} resumes"

    def finalists() -> dict[str, Mapping[str, Any]]:
        best = study.best()
        return {"as it is": {}} if best is None else {"best": best.settings, "as it is": {}}

    with report_interrupt(lambda: f"interrupted after {len(study.trials())} trials; {resumable}"):
        fresh = run_study(study, budget, finalists, fresh_seeds, processes, ray)
    results = _write(study, fresh, folder)
    if json_file != "-":
        _show(study, fresh)
        if fresh is not None:
            out.print(f"configuration: {folder / BEST}", soft_wrap=True, highlight=False)
            out.print(f"page: {(folder / PAGE).resolve().as_uri()}", soft_wrap=True)
            out.print("surrogate policy: outcomes are drawn, nothing was learned")
    if json_file is not None:
        write_json(results, json_file)
    if fresh is None:
        no_result(study)


def run_study(
    study: Study,
    budget: int,
    finalists: Callable[[], Mapping[str, Mapping[str, Any]]],
    fresh_seeds: int,
    processes: int | None,
    ray: str | None,
) -> Comparison | None:
    """Run a study with a progress bar; then compare its named finalists, if any, with fresh seeds."""
    from dartsim.lab.progress import progress_bar
    from dartsim.lab.study import fresh_comparison
    from dartsim.lab.sweep import WithProgress, executor_for
    from dartsim.real.machine import usable_cores

    done = len(study.trials())
    with executor_for(processes, ray) as executor, progress_bar(errors) as progress:
        bar = progress.add_task("trials", total=max(budget, done), completed=done, live=_live(study))
        study.run(
            budget,
            executor,
            batch=max(8, processes or usable_cores()),
            on_trial=lambda trial: progress.update(bar, advance=1, live=_live(study)),
            undisturbed=undisturbed,
        )
        if study.best() is None:
            return None
        counted = WithProgress(executor, progress, "with fresh seeds")
        return fresh_comparison(study.spec, finalists(), fresh_seeds, counted)


def no_result(study: Study) -> None:
    """Say why no trial can be recommended, and end the command."""
    reasons = Counter(trial.reason for trial in study.trials() if trial.reason).most_common(1)
    why = "".join(f"; {number} of {len(study.trials())}: {reason}" for reason, number in reasons)
    errors.print(f"no trial met the bounds: no settings were written{why}", highlight=False)
    raise typer.Exit(1)


def _live(study: Study) -> str:
    best = study.best()
    if best is None:
        return "nothing within the bounds yet"
    return f"best {study.spec.objectives[0].label} {best.values[0]:.4g} (trial {best.number})"


def _write(study: Study, fresh: Comparison | None, folder: Path) -> dict[str, Any]:
    """Write the best configurations and the page; return all results, JSON-serializable."""
    from dartsim.lab.space import setting_of
    from dartsim.observe.report import render_study

    spec, best, front, trials = study.spec, study.best(), study.front(), study.trials()
    files: list[str] = []
    if best is not None:
        files.append(str(_toml(folder / BEST, spec, best, list(_effects(spec, fresh)))))
    for old in folder.glob(FRONT.format("*")):
        old.unlink()  # an earlier front may have been longer
    if len(spec.objectives) > 1:
        files += [str(_toml(folder / FRONT.format(place), spec, trial)) for place, trial in enumerate(front)]
    results = {
        "objectives": [{"figure": objective.figure, "direction": objective.direction} for objective in spec.objectives],
        "space": {key: str(dimension) for key, dimension in spec.space.items()},
        "num_trials": len(trials),
        "states": Counter(trial.state for trial in trials),
        "as_it_is": {key: setting_of(spec.base, key) for key in spec.space},
        "best": None if best is None else asdict(best),
        "front": [asdict(trial) for trial in front],
        "importances": study.importances(),
        "fresh": None if fresh is None else {"seeds": list(fresh.seeds), "effects": list(_effects(spec, fresh))},
        "trials": [{key: value for key, value in asdict(trial).items() if key != "figures"} for trial in trials],
        "database": str(folder / DATABASE),
        "files": files,
    }
    results["page"] = str(render_study(results, folder / PAGE))
    return results


def _toml(path: Path, spec: StudySpec, trial: Trial, effects: Sequence[str] = ()) -> Path:
    """Write the complete tuned configuration, with its origin and its effect with fresh seeds as comments."""
    from dartsim.config import to_toml
    from dartsim.lab.virtual import with_settings
    from dartsim.observe.rundir import write_text

    values = ", ".join(f"{one.figure} = {x:.4g}" for one, x in zip(spec.objectives, trial.values, strict=True))
    lines = [
        f"# Found by `dartsim tune`, trial {trial.number}: simulated {values}.",
        *(f"# With fresh seeds: {effect}." for effect in effects),
        *(f"# {key} = {value}" for key, value in trial.settings.items()),
    ]
    config = with_settings(spec.base, {**trial.settings, "run.until_steady": None})
    write_text(path, "\n".join(lines) + "\n\n" + to_toml(config))
    return path


def _effects(spec: StudySpec, fresh: Comparison | None) -> Iterator[str]:
    """Yield the effect of the best settings with fresh seeds on each objective, and the bounds that they break."""
    from dartsim.lab.comparison import over_seeds
    from dartsim.lab.gate import cell_text

    if fresh is None:
        return
    if why := fresh.failures.get("best"):
        yield why
        return
    for objective in spec.objectives:
        ranks = {rank.scheduler: rank for rank in fresh.ranking(objective.figure, lowest=objective.sign < 0)}
        means = {name: over_seeds(rows, [objective.figure]) for name, rows in fresh.figures.items()}
        best, base = (cell_text(means[name].get(objective.figure)) for name in ("best", "as it is"))
        other = next(rank for rank in ranks.values() if rank.verdict != "best")
        change = "" if other.change is None else f" ({other.scheduler}: {100.0 * other.change:+.1f} %)"
        yield f"{objective.label} {best} the best, {base} as it is{change}: {other.verdict}"
    stale = max(row["staleness_max"] for row in fresh.figures["best"])
    if spec.max_staleness is not None and stale > spec.max_staleness:
        yield f"the largest staleness is {stale:g}, above the bound of {spec.max_staleness:g}; search with more --seeds"


def _show(study: Study, fresh: Comparison | None) -> None:
    """Print trials, the best settings, and their effect with fresh seeds."""
    trials, spec = study.trials(), study.spec
    states = Counter(trial.state for trial in trials)
    out.print(f"{len(trials)} trials: {', '.join(f'{number} {state}' for state, number in states.items())}")
    sign = spec.objectives[0].sign
    ranked = sorted(trials, key=lambda trial: -sign * trial.values[0] if trial.values else float("inf"))
    out.print(trial_table(spec, ranked[:SHOWN]))
    for reason, number in Counter(trial.reason for trial in ranked[SHOWN:] if trial.reason).most_common():
        out.print(f"{number} more: {reason}", soft_wrap=True, highlight=False, markup=False)
    if importances := study.importances():
        out.print("importance: " + ", ".join(f"{key} {share:.0%}" for key, share in importances.items()))
    for effect in _effects(spec, fresh):
        out.print(f"with fresh seeds: {effect}", soft_wrap=True, highlight=False)


def trial_table(spec: StudySpec, trials: Sequence[Trial], more: Mapping[str, str] = {}) -> Table:
    """Return a table of trials: settings, objectives, additional figures by their titles, state and reason."""
    table = plain_table(
        "trial", *spec.space, numbers=[*(one.label for one in spec.objectives), *more], after=("state",)
    )
    for trial in trials:
        values = map(_text, trial.values) if trial.values else ["–"] * len(spec.objectives)
        figures = [_text(trial.figures.get(name)) for name in more.values()]
        state = f"{trial.state}: {trial.reason}" if trial.reason else trial.state
        chosen = (_text(trial.settings.get(key)) for key in spec.space)
        table.add_row(str(trial.number), *chosen, *values, *figures, state)
    return table


def _text(value: Any) -> str:
    return "–" if value is None else significant(value, 4) if isinstance(value, float) else str(value)
