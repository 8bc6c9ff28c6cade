"""``dartsim compare``: several schedulers on the same cluster, side by side."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from rich.table import Table

from dartsim.cli.command_group import plugin_words
from dartsim.cli.console import errors, out, plain_table, ratio, write_json
from dartsim.cli.options import (
    FaultsOption,
    Hours,
    Json,
    OnOption,
    Out,
    Overrides,
    Precision,
    ProfileOption,
    UntilSteady,
    file_target,
    load_config,
    new_folder,
    settings,
)
from dartsim.cli.signals import report_interrupt
from dartsim.cli.tune import Processes, RayAddress
from dartsim.config import Config
from dartsim.core.errors import ConfigError
from dartsim.core.registry import names as registered
from dartsim.lab.compared_runs import ComparedRun, EndedRun, make_runs, named, new_run
from dartsim.observe.bias import BAND, JUDGED, pooled
from dartsim.observe.figures import FIGURES

if TYPE_CHECKING:
    from dartsim.lab.gate import SchedulerRank

PUBLISHED = {
    "coupled": {"trained_turns_per_minute": 22.6, "env_utilization": 0.122, "gpu_utilization": 0.296},
    "dart-measured": {"trained_turns_per_minute": 43.6, "env_utilization": 0.677, "gpu_utilization": 0.467},
}
"""The efficiency table of DART (arXiv 2509.23866, project page), by the presets that have its run's settings."""

UNDECIDED = 3
"""Exit code where a condition is not decided."""

BESIDE = 4
"""Largest number of presets in one table."""

PAGE = "comparison.html"

UPDATES = "hours to update {}"
"""The row of the time to an update, whose number is filled in."""

ROWS: dict[str, tuple[str, float]] = {
    "trained turns/min": ("trained_turns_per_minute", 1.0),
    "  with a signal": ("signal_turns_per_minute", 1.0),
    "  closed-form bound": ("bound_trained_turns_per_minute", 1.0),
    "admitted turns/min": ("admitted_turns_per_minute", 1.0),
    "generated turns/min": ("generated_turns_per_minute", 1.0),
    "desktops busy, %": ("env_utilization", 100.0),
    "GPUs busy, %": ("gpu_utilization", 100.0),
    "trainer busy, %": ("trainer_utilization", 100.0),
    "prefix hits, %": ("prefix_hit_share", 100.0),
    "staleness, mean": ("staleness_mean", 1.0),
    "staleness, most": ("staleness_max", 1.0),
    "not trained, %": ("wasted_share", 100.0),
    UPDATES: ("hours_to_updates", 1.0),
    "desktop h/1000 turns": ("desktop_hours_per_1000_turns", 1.0),
    "GPU h/1000 turns": ("gpu_hours_per_1000_turns", 1.0),
}
"""Rows of the table: the figure (``dartsim.lab.comparison``) and its scale."""


def figure_rows() -> dict[str, tuple[str, float]]:
    """Return ``ROWS``, and those of plug-ins' figures."""
    styles = {name: FIGURES[name] for name in registered("figure")}
    return ROWS | {f"{style.label}, {style.unit}".strip(", "): (name, style.scale) for name, style in styles.items()}


class SchedulerColumn(NamedTuple):
    """A scheduler in the table."""

    name: str
    figures: Mapping[str, Mapping[str, float | None]]
    classes: Mapping[str, Any]


def compare(
    schedulers: Annotated[
        list[str], typer.Argument(help="Presets (`dartsim presets`), or TOML files.", metavar="SCHEDULER")
    ],
    on: OnOption = None,
    profile: ProfileOption = None,
    overrides: Overrides = None,
    hours: Hours = None,
    until_steady: UntilSteady = False,
    precision: Precision = None,
    faults: FaultsOption = None,
    seeds: Annotated[int, typer.Option(min=1, help="Seeds of each scheduler, from 0; figures are means.")] = 1,
    updates: Annotated[
        int | None,
        typer.Option(min=1, help="Report time to this update; default: the last update that all runs finished."),
    ] = None,
    processes: Processes = None,
    ray: RayAddress = None,
    fail_if: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CONDITION",
            help="Exit with 1 if this holds of the first scheduler: 'FIGURE < FACTOR * SCHEDULER', 'FIGURE > NUMBER'. "
            "Adds seeds until it is decided, wrongly with a chance of 5 % at most; exit with 3 if it stays undecided. "
            "Repeatable.",
        ),
    ] = None,
    max_seeds: Annotated[
        int, typer.Option(min=2, help="Seeds of each scheduler, at most, that --fail-if may take.")
    ] = 20,
    junit: Annotated[
        Path | None, typer.Option(callback=file_target, help="JUnit file to write, with a test for each --fail-if.")
    ] = None,
    out_folder: Out = None,
    json_file: Json = None,
) -> None:
    r"""Run schedulers with the same seeds, and rank them by trained turns: one table, one page, and what is chance.

    With --on, a preset or a file is its scheduler alone: cluster, tasks and latencies are those of --on. The folder
    of each run is inside the comparison's. The same command finishes an interrupted comparison, and with more --seeds
    adds only the new runs. "Differs": the 95 % interval of the difference to the best, seed by seed, excludes 0.

    Examples:
        dartsim compare coupled dart-measured
        dartsim compare coupled dart-measured --seeds 3 --hours 8 --json figures.json
        dartsim compare coupled dart --faults hostile
        dartsim compare coupled dart --hours 48 --precision 3%
        dartsim compare mine.toml areal-eta4 --on cluster.toml --seeds 5 \
          --fail-if "trained_turns_per_minute < 0.95 * areal-eta4" --junit gate.xml
        dartsim compare dart-measured areal-eta4 dartsim --on osworld --seeds 5
        dartsim compare dart dart-released \
          --set cluster.hosts.count=8 --set rollout.num_envs=80
    """
    from dartsim.lab.comparison import classes_over_seeds, over_seeds
    from dartsim.lab.gate import Comparison, write_junit
    from dartsim.observe.alarm import KINDS
    from dartsim.observe.report import render_comparison, surrogates
    from dartsim.observe.rundir import RunDir

    given = settings(overrides, hours, None, faults, until_steady=until_steady, precision=precision)
    possible = plan(schedulers, given, max(seeds, max_seeds if fail_if else 0), on, profile)
    _check_conditions(fail_if or [], possible, seeds, junit)
    folder = out_folder or new_or_interrupted(possible, seeds)
    possible = runs_in(folder, possible)
    if not _is_part(folder, possible, seeds):
        raise ConfigError(f"{folder} already exists; name another folder with --out")
    runs: list[ComparedRun] = []
    ended: list[EndedRun] = []

    def with_seeds(count: int) -> Comparison:
        nonlocal runs, ended
        runs = [run for run in possible if run.config.run.seed < count]
        with report_interrupt(lambda: _progress_so_far(runs, folder)):
            ended = make_runs(runs, errors, ray, processes)
        finished = (len(run.update_hours) for run in ended if not run.summary.get("failure"))
        shown = updates or min(finished, default=0) or None
        return Comparison.of(runs, ended, updates=shown, with_seeds=with_seeds)

    compared, results = with_seeds(seeds).decided(fail_if or (), max_seeds)
    seeds = len(compared.seeds)
    updates = updates or min((len(run.update_hours) for run in ended if not run.summary.get("failure")), default=0)
    names, by_name, failures = compared.schedulers, compared.figures, compared.failures
    ranking = compared.ranking()
    columns = [
        SchedulerColumn(name, over_seeds(rows), classes_over_seeds([] if name in failures else rows))
        for name, rows in by_name.items()
    ]
    page = render_comparison(
        [RunDir(run.path) for run in runs if run.path is not None and run.config.run.seed == 0],
        folder / PAGE,
        names=names,
        # On another cluster a preset is not the run whose figures were published.
        published=PUBLISHED if on is None else None,
        means=[column.figures for column in columns],
        table=[*ranking_rows(ranking, names), *scheduler_rows(columns, updates)],
        bias=[pooled([row["bias"] for row in rows]) for rows in by_name.values()],
        num_seeds=seeds,
    )
    if json_file != "-":
        for table in scheduler_tables(columns, updates):
            out.print(table)
        if len(ranking) > 1:
            out.print()
            out.print(ranking_table(ranking, seeds))
        if any(column.classes["least_classes"] for column in columns):
            out.print(
                "least by …: the class of tasks that is trained least, and how much of what the group filter keeps of "
                "it is trained, relative to the average (1: like the others)",
                highlight=False,
            )
        for line in [*starved_lines(columns), *_steady_lines(by_name)]:
            out.print(line, highlight=False, soft_wrap=True)
        if seeds > 1:
            out.print(
                f"means over {seeds} seeds, ± half the 95 % confidence interval; the page's timelines show seed 0"
            )
        if note := surrogates([(run.scheduler, made.summary) for run, made in zip(runs, ended, strict=True)]):
            out.print(note, highlight=False)
        for result in results:
            out.print(str(result), soft_wrap=True, highlight=False, markup=False)
        out.print(f"report: {page.resolve().as_uri()}", soft_wrap=True)
    if json_file is not None:
        rows = (row for name in names for row in by_name[name])
        ranks = {
            rank.scheduler: (None if rank.scheduler in failures else place, rank)
            for place, rank in enumerate(ranking, 1)
        }
        facts = [
            {
                "scheduler": run.scheduler,
                "preset": run.config.preset,
                "seed": run.config.run.seed,
                "workload": on,
                "updates": updates,
                "rank": ranks[run.scheduler][0],
                "difference_to_best": ranks[run.scheduler][1].to_best._asdict(),
                "verdict": ranks[run.scheduler][1].verdict,
            }
            for run in runs
        ]
        write_json([{**fact, **row} for fact, row in zip(facts, rows, strict=True)], json_file)
    if junit is not None:
        write_junit(compared, results, junit)
    for failure in failures.values():
        errors.print(f"failed: {failure}", soft_wrap=True, highlight=False, markup=False)
    open_results = [result for result in results if not result.passed]
    for result in open_results:
        verdict = "failed" if result.decided else "undecided"
        errors.print(f"{verdict}: {compared.explained(result)}", soft_wrap=True, highlight=False, markup=False)
    if any(result.decided for result in open_results):
        raise typer.Exit(1)
    if failures:
        raise typer.Exit(KINDS["nothing_trained"].code)
    if open_results:
        raise typer.Exit(UNDECIDED)


def plan(
    schedulers: Sequence[str], overrides: Sequence[str], seeds: int, on: str | None = None, profile: str | None = None
) -> list[ComparedRun]:
    """Return the runs of a comparison, all checked before the first one starts; none has a directory yet.

    Raises:
        ConfigError: If a preset, a file or a setting is wrong.
    """
    from dartsim.run.prepare import prepare

    runs: list[ComparedRun] = []
    for name, scheduler in named(list(dict.fromkeys(schedulers))).items():
        first = load_config(str(scheduler), on=on, profile=profile, overrides=[*overrides, "run.seed=0"])
        prepare(first)
        _refuse_without_engine(first)
        for seed in range(seeds):
            config = first.model_copy(update={"run": first.run.model_copy(update={"seed": seed})})
            places = [word for name, at in (("--on", on), ("--profile", profile)) if at for word in (name, at)]
            words = [*plugin_words(), *places, *(word for text in overrides for word in ("--set", text))]
            command = ["dartsim", "run", new_run(str(scheduler)), *words, "--seed", str(seed)]
            runs.append(ComparedRun(name, config, shlex.join(command)))
    return runs


def _check_conditions(conditions: Sequence[str], runs: Sequence[ComparedRun], seeds: int, junit: Path | None) -> None:
    """Refuse conditions that cannot be decided, before anything runs."""
    from dartsim.lab.gate import read_condition

    for condition in conditions:
        read_condition(condition, list(dict.fromkeys(run.scheduler for run in runs)))
        if seeds < 2:
            raise ConfigError("--fail-if needs --seeds of 2 or more: with one, chance cannot be told from a loss")
    if junit is not None and not conditions:
        raise ConfigError("--junit writes a test for each --fail-if, and there is none")


def runs_in(folder: Path, runs: Sequence[ComparedRun]) -> list[ComparedRun]:
    """Return the runs of a comparison, each with its directory inside the comparison's."""
    return [replace(run, path=folder / f"{run.scheduler}-seed{run.config.run.seed}") for run in runs]


NAMED = 3
"""Largest number of presets in the name of a folder."""


def new_or_interrupted(runs: Sequence[ComparedRun], seeds: int) -> Path:
    """Return a new folder in runs/, or that of the same comparison, if that was interrupted."""
    names = list(dict.fromkeys(run.scheduler for run in runs))
    more = [] if len(names) <= NAMED else [f"{len(names) - NAMED + 1}-more"]
    name = "-".join(["compare", *names[: NAMED - len(more)], *more])
    return new_folder(name, unless=lambda folder: _is_part(folder, runs_in(folder, runs), seeds))


def _is_part(folder: Path, runs: Sequence[ComparedRun], seeds: int) -> bool:
    """Return whether a folder is new, or contains nothing but a part of this very comparison, such as fewer seeds.

    Args:
        folder: The folder.
        runs: All runs that the comparison may need.
        seeds: The seeds that it needs in any case.
    """
    from dartsim.observe.rundir import CONFIG

    if not folder.exists():
        return True
    paths = [run.path for run in runs if run.path is not None]
    started = [run for run in runs if run.path is not None and (run.path / CONFIG).is_file()]
    ended = (folder / PAGE).exists() and all(run.finished for run in runs if run.config.run.seed < seeds)
    return not ended and all(run.same_config for run in started) and set(folder.iterdir()) <= {*paths, folder / PAGE}


def _progress_so_far(runs: Sequence[ComparedRun], folder: Path) -> str:
    from dartsim.observe.rundir import SUMMARY

    done = sum(run.path is not None and (run.path / SUMMARY).is_file() for run in runs)
    return f"interrupted: {done} of {len(runs)} runs were finished, in {folder}; the same command makes the others"


def _refuse_without_engine(config: Config) -> None:
    """Refuse a preset on real desktops where no engine of this machine answers."""
    local = all(host.url is None for host in config.desktop.hosts.values())
    if not config.backend.boots or not local:
        return
    from dartsim.cli.doctor import check_engine
    from dartsim.cli.service_checks import OK

    engine = check_engine()
    if engine.state is not OK:
        raise ConfigError(f"preset {config.preset!r} needs real desktops, and {engine.found}; {engine.fix}")


def scheduler_rows(columns: Sequence[SchedulerColumn], updates: int | None) -> list[tuple[str, list[str]]]:
    """Return rows of one cell a preset: means over seeds, then the classes of tasks that are trained least."""
    rows = [
        (label.format(updates or "–"), [_cell(column.figures.get(figure), scale) for column in columns])
        for label, (figure, scale) in figure_rows().items()
    ]
    for by in JUDGED:
        least = [column.classes["least_classes"].get(by) for column in columns]
        if any(least):
            rows.append((f"least by {by}", ["–" if s is None else f"{s['class']} {s['ratio']:.2f}" for s in least]))
    return rows


def scheduler_tables(columns: Sequence[SchedulerColumn], updates: int | None) -> Iterator[Table]:
    """Yield ``scheduler_rows`` as tables of a few schedulers each; of two, with their ratio."""
    rows, two = scheduler_rows(columns, updates), len(columns) == 2
    figures = [figure for figure, _ in figure_rows().values()]
    ratios = [ratio(*(column.figures.get(name, {}).get("mean") for column in columns)) for name in figures if two]
    ratios += [""] * (len(rows) - len(ratios))
    for start in range(0, len(columns), BESIDE):
        part = slice(start, start + BESIDE)
        table = plain_table("", numbers=[*(column.name for column in columns[part]), *["ratio"] * two])
        for (label, cells), times in zip(rows, ratios, strict=True):
            table.add_row(label, *cells[part], *[times] * two)
        yield table


def ranking_table(ranking: Sequence[SchedulerRank], seeds: int) -> Table:
    """Return the ranking by trained turns: each scheduler, its difference to the best one, and the verdict."""
    title = f"ranking, {seeds} paired seeds" if seeds > 1 else "ranking, one seed"
    table = plain_table(title, numbers=("trained turns/min", "to the best"), after=("verdict",))
    table.columns[0].no_wrap = True
    for place, rank in enumerate(ranking, 1):
        trained = _cell({"mean": rank.mean, "half_width": rank.half_width}, 1.0)
        number = "–" if rank.verdict.startswith("failed") else f"{place}."
        table.add_row(f"{number} {rank.scheduler}", trained, _to_best(rank), rank.verdict)
    return table


def ranking_rows(ranking: Sequence[SchedulerRank], names: Sequence[str]) -> list[tuple[str, list[str]]]:
    """Return the ranking as rows with a cell for each scheduler, in the order of their names."""
    by_name = {rank.scheduler: rank for rank in ranking}
    ranks = [by_name[name] for name in names]
    return [("difference to the best", list(map(_to_best, ranks))), ("verdict", [rank.verdict for rank in ranks])]


def _to_best(rank: SchedulerRank) -> str:
    share, width = rank.to_best
    if share is None or rank.verdict == "best":
        return "–"
    return f"{100.0 * share:+.1f}" + ("" if width is None else f" ± {100.0 * width:.1f}") + " %"


def starved_lines(columns: Sequence[SchedulerColumn]) -> list[str]:
    """Return a line for each class of tasks that a preset starves."""
    return [
        f"{column.name} starves {share['class']} tasks (by {share['by']}): of those that the group filter keeps, "
        f"{share['ratio']:.2f} times the average share is trained ({share['low']:.2f} to {share['high']:.2f} at 95 %; "
        f"below {BAND:g} is starved)"
        for column in columns
        for share in column.classes["starved_classes"] or ()
    ]


def _steady_lines(by_name: Mapping[str, Sequence[Mapping[str, Any]]]) -> Iterator[str]:
    """Yield which share of each scheduler's runs became steady, of those that were to end then."""
    from dartsim.observe.steady import steady_runs_text

    for name, rows in by_name.items():
        if steady := [row["steady"] for row in rows if "steady" in row]:
            yield f"{name}: {steady_runs_text(steady)}"


def _cell(figure: Mapping[str, float | None] | None, scale: float) -> str:
    if figure is None or figure["mean"] is None:
        return "–"
    if isinstance(figure["mean"], int):  # a maximum is a count, not a mean
        return str(figure["mean"])
    width = figure["half_width"]
    digits = 2 if scale * abs(figure["mean"]) < 10 else 1
    text = f"{scale * figure['mean']:.{digits}f}"
    return text if width is None else f"{text} ±{scale * width:.{digits}f}"
