"""``dartsim tune`` and ``plan``: find better settings, or the best use of given machines, by simulation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dartsim.cli.console import errors, result, table
from dartsim.cli.options import (
    Hours,
    Json,
    OnOption,
    Overrides,
    Processes,
    SchedulerArgument,
    UntilSteady,
    folder_target,
    load_config,
    new_folder,
    refuse_unwritable,
    settings,
)
from dartsim.cli.signals import report_interrupt
from dartsim.core.words import significant
from dartsim.observe.rundir import STUDY_PAGE

if TYPE_CHECKING:
    from dartsim.lab.gate import Comparison
    from dartsim.lab.study import Study, StudySpec, Trial
    from dartsim.lab.sweep import Results

JOURNAL, BEST, FRONT = "study.log", "best.toml", "front-{}.toml"
DEFAULT = "steady_turns_per_minute"
"""The default objective. It counts whole updates, because one update more or less at the ends of a window matters more
than most settings.
"""
GpuPrice = Annotated[float, typer.Option("--price-gpu-hour", min=0.0, help="Price of a GPU hour.")]
HostPrice = Annotated[float, typer.Option("--price-host-hour", min=0.0, help="Price of a desktop machine's hour.")]
FreshSeeds = Annotated[
    int, typer.Option(min=2, help="Simulations of the best at the end, with seeds that no trial had.")
]
StudyFolder = Annotated[
    Path | None,
    typer.Option("--out", callback=folder_target, help="Folder of the study; an existing study is resumed."),
]


def tune(
    scheduler: SchedulerArgument = None,
    space: Annotated[str, typer.Option(help="Settings that may change: key=low..high,key=one|other.")] = "",
    on: OnOption = None,
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
    prune: Annotated[
        bool,
        typer.Option(
            help="Stop a trial once it is worse than the best one so far, seed by seed and period by period. The best "
            "settings are stopped with a probability of at most 5 % in a whole study."
        ),
    ] = True,
    overrides: Overrides = None,
    hours: Hours = None,
    until_steady: UntilSteady = None,
    processes: Processes = None,
    out_folder: StudyFolder = None,
    json_file: Json = None,
) -> None:
    r"""Find better settings by simulation, and write them as a TOML file for the real run.

    Trials that a study beside it simulated with the same code are not repeated. The study is stored in
    FOLDER/study.log: the same command with --out FOLDER resumes it, after Ctrl-C or with a larger --budget.

    Examples:
        dartsim tune --space "rollout.num_envs=20..80,rollout.sync.mode=drain|keep" \
          --hours 6
        dartsim tune my.toml --space curation.admission.ahead_batches=1..4/0.5 \
          --max-staleness 1 --budget 400 --out studies/mine
        dartsim tune --space "rollout.num_envs=20..80,rollout.num_workers=2..8" \
          --objective trained_turns_per_minute --objective cost_per_hour
    """
    from dartsim.core.errors import ConfigError
    from dartsim.lab.jobs import Prices, read_objective
    from dartsim.lab.space import read_space
    from dartsim.lab.study import StudySpec

    if not space:
        raise ConfigError('nothing to tune: give --space "key=low..high,key=one|other"')
    spec = StudySpec(
        base=load_config(
            scheduler,
            default="dart-measured",
            on=on,
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
    search(spec, out_folder or new_folder("tune"), budget, fresh_seeds, processes, json_file)


def plan(
    scheduler: SchedulerArgument = None,
    on: OnOption = None,
    gpus: Annotated[
        int | None,
        typer.Option(help="GPUs, for engines and trainer together, 2 or more; default: those of the configuration."),
    ] = None,
    hosts: Annotated[
        str | None,
        typer.Option(help="Machines for desktops: 4x64GiB, or 4x64GiBx32cores; default: those of the configuration."),
    ] = None,
    budget: Annotated[int, typer.Option(min=1, help="Splits to simulate.")] = 40,
    price_gpu_hour: GpuPrice = 1.0,
    price_host_hour: HostPrice = 0.0,
    hours: Hours = None,
    fresh_seeds: FreshSeeds = 3,
    overrides: Overrides = None,
    processes: Processes = None,
    out_folder: StudyFolder = None,
    json_file: Json = None,
) -> None:
    r"""Find the best number of desktops, split of GPUs and weight sync for given machines.

    It is `dartsim tune` for splits of the machines, and stops bad ones as early: the best one is compared with the
    configuration's own.

    Examples:
        dartsim plan --on cluster.toml
        dartsim plan --gpus 8 --hosts 4x64GiB --set cluster.env.profile=osworld
        dartsim plan --gpus 16 --hosts 8x128GiBx32cores --on runs/real \
          --price-gpu-hour 2.5 --price-host-hour 0.8
    """
    from dartsim.lab.jobs import Prices
    from dartsim.lab.new_cluster import host_settings
    from dartsim.lab.planning import plan_spec

    base = load_config(scheduler, default="dartsim", on=on, overrides=settings(overrides, hours, None))
    gpus = base.rollout.num_workers + base.cluster.learner.gpus if gpus is None else gpus
    machines = {} if hosts is None else host_settings(hosts)
    spec = plan_spec(base, gpus, machines, Prices(price_gpu_hour, price_host_hour))
    search(spec, out_folder or new_folder("plan"), budget, fresh_seeds, processes, json_file)


def search(
    spec: StudySpec, folder: Path, budget: int, fresh_seeds: int, processes: int | None, json_file: str | None
) -> None:
    """Run or resume a study, compare its best settings with the configuration's own, and show and write the results.

    Raises:
        typer.Exit: If it was interrupted, or no trial met the bounds.
    """
    from dartsim.lab.study import Study
    from dartsim.lab.study_document import TRIALS
    from dartsim.lab.sweep import RESULTS, Results

    refuse_unwritable("--out", folder.parent, folder=True)
    study = Study(spec, folder / JOURNAL)
    errors.say(f"study: {folder} (resume with --out {folder})")
    resumable = f"the same command with --out {folder} resumes"
    with report_interrupt(lambda: f"interrupted after {len(study.trials())} trials; {resumable}"):
        fresh = _run(study, budget, fresh_seeds, processes, Results(folder.parent / RESULTS))
    results, document = _write(study, fresh, folder)
    console = result(results, json_file)
    for each in document["tables"]:
        if each["title"] != TRIALS:  # hundreds; they are on the page
            console.print(table(each["heads"], each["rows"], each["title"]))
    for line in _lines(study, results, folder):
        console.say(line)
    if fresh is None:
        errors.print("no trial met the bounds: no settings were written")
        raise typer.Exit(1)


def _run(study: Study, budget: int, fresh_seeds: int, processes: int | None, results: Results) -> Comparison | None:
    """Run a study with a progress bar; then compare the best settings, if any, with fresh seeds."""
    from dartsim.lab.jobs import RememberedJobs
    from dartsim.lab.progress import progress_bar
    from dartsim.lab.study import fresh_comparison
    from dartsim.lab.sweep import WithProgress, executor_for
    from dartsim.real.machine import usable_cores

    done = len(study.trials())
    with executor_for(processes) as chosen, progress_bar(errors) as progress:
        executor = RememberedJobs(chosen, results)
        bar = progress.add_task("trials", total=max(budget, done), completed=done, live=_live(study))
        study.run(
            budget,
            executor,
            batch=max(8, processes or usable_cores()),
            on_trial=lambda trial: progress.update(bar, advance=1, live=_live(study)),
        )
        best = study.best()
        if best is None:
            return None
        finalists: Mapping[str, Mapping[str, Any]] = {"best": best.settings, "as it is": {}}
        return fresh_comparison(study.spec, finalists, fresh_seeds, WithProgress(executor, progress, "fresh seeds"))


def _live(study: Study) -> str:
    best = study.best()
    if best is None:
        return "nothing within the bounds yet"
    return f"best {study.spec.objectives[0].label} {best.values[0]:.4g} (trial {best.number})"


def _write(study: Study, fresh: Comparison | None, folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Write the best configurations and the page; return all results, JSON-serializable, and the page's document."""
    from dartsim.cli.live import write_study
    from dartsim.lab.space import setting_of
    from dartsim.lab.study_document import search_document

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
        "as_it_is": {**{key: setting_of(spec.base, key) for key in spec.space}, **spec.own_point()},
        "best": None if best is None else {**asdict(best), "changed": spec.settings(best.settings)},
        "front": [asdict(trial) for trial in front],
        "importances": study.importances(),
        "fresh": None if fresh is None else {"seeds": list(fresh.seeds), "effects": list(_effects(spec, fresh))},
        "trials": [{key: value for key, value in asdict(trial).items() if key != "figures"} for trial in trials],
        "journal": str(folder / JOURNAL),
        "files": files,
    }
    document = search_document(results, fresh)
    results["page"] = str(write_study(folder, document, []))
    return results, document


def _toml(path: Path, spec: StudySpec, trial: Trial, effects: Sequence[str] = ()) -> Path:
    """Write the complete configuration of a trial, with its origin and its effect with fresh seeds as comments."""
    from dartsim.config import to_toml
    from dartsim.lab.virtual import with_settings
    from dartsim.observe.rundir import write_text

    values = ", ".join(f"{one.figure} = {x:.4g}" for one, x in zip(spec.objectives, trial.values, strict=True))
    lines = [
        f"# Found by dartsim, trial {trial.number}: simulated {values}.",
        *(f"# With fresh seeds: {effect}." for effect in effects),
        *(f"# {key} = {value}" for key, value in trial.settings.items()),
    ]
    config = with_settings(spec.base, {**spec.settings(trial.settings), "run.until_steady": None})
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


def _lines(study: Study, results: Mapping[str, Any], folder: Path) -> Iterator[str]:
    """Yield what became of the trials, and the effect of the best settings with fresh seeds."""
    trials, best, fresh = study.trials(), study.best(), results["fresh"]
    yield f"{len(trials)} trials: {', '.join(f'{number} {state}' for state, number in results['states'].items())}"
    reasons = Counter((trial.state, trial.reason) for trial in trials if trial.reason)
    for (state, reason), number in reasons.most_common():
        yield f"{number} {state}: {reason}"
    if best is not None and fresh is not None:
        yield from (f"with fresh seeds: {effect}" for effect in fresh["effects"])
        cost, each = (best.figures[name] for name in ("cost_per_hour", "cost_per_1000_turns"))
        yield f"the best: {best.figures['verdict']}"
        yield f"it costs {significant(cost, 4)} an hour, {significant(each, 4)} per 1,000 trained turns"
        yield f"configuration: {folder / BEST}"
        yield f"page: {(folder / STUDY_PAGE).resolve().as_uri()}"
        yield "surrogate policy: outcomes are drawn, nothing was learned"
