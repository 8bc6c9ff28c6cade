"""``dartsim compare``: several schedulers on the same cluster, side by side."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
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
    Processes,
    UntilSteady,
    file_target,
    load_config,
    new_folder,
    settings,
)
from dartsim.cli.signals import report_interrupt
from dartsim.core.errors import ConfigError
from dartsim.observe.alarm import KINDS
from dartsim.observe.bias import BAND, JUDGED
from dartsim.observe.rundir import CONFIG, STUDY, STUDY_PAGE, SUMMARY

if TYPE_CHECKING:
    from dartsim.config import Config
    from dartsim.lab.compared_runs import ComparedRun, EndedRun
    from dartsim.lab.gate import Comparison, ConditionResult

PUBLISHED = {
    "coupled": {"trained_turns_per_minute": 22.6, "env_utilization": 0.122, "gpu_utilization": 0.296},
    "dart-measured": {"trained_turns_per_minute": 43.6, "env_utilization": 0.677, "gpu_utilization": 0.467},
}
"""The efficiency table of DART (arXiv 2509.23866, project page), by the presets with the settings of its runs."""

UNDECIDED = 3
"""Exit code if a condition is undecided."""

BESIDE = 4
"""Most schedulers side by side in one table."""

ROWS: dict[str, tuple[str, float]] = {
    "trained turns/min": ("trained_turns_per_minute", 1.0),
    "  bound": ("bound_trained_turns_per_minute", 1.0),
    "generated turns/min": ("generated_turns_per_minute", 1.0),
    "desktops busy, %": ("env_utilization", 100.0),
    "GPUs busy, %": ("gpu_utilization", 100.0),
    "trainer busy, %": ("trainer_utilization", 100.0),
    "prefix hits, %": ("prefix_hit_share", 100.0),
    "staleness, mean": ("staleness_mean", 1.0),
    "staleness, most": ("staleness_max", 1.0),
    "not trained, %": ("wasted_share", 100.0),
    "hours to update {}": ("hours_to_updates", 1.0),
    "desktop h/1000 turns": ("desktop_hours_per_1000_turns", 1.0),
    "GPU h/1000 turns": ("gpu_hours_per_1000_turns", 1.0),
}
"""Rows of the table: the figure (``dartsim.lab.comparison``) and its scale."""

NOTE = (
    "bound: the most that the trainer, or the engines with this share of usable turns, could reach; "
    "least by …: the class of tasks that is trained least, relative to the average of what the group filter keeps"
)


class SchedulerColumn(NamedTuple):
    """A scheduler in the table."""

    name: str
    figures: Mapping[str, Mapping[str, float | None]]
    classes: Mapping[str, Any]


def compare(
    schedulers: Annotated[
        list[str], typer.Argument(help="Presets (`dartsim config`), or TOML files.", metavar="SCHEDULER")
    ],
    on: OnOption = None,
    overrides: Overrides = None,
    hours: Hours = None,
    until_steady: UntilSteady = None,
    faults: FaultsOption = None,
    seeds: Annotated[int, typer.Option(min=1, help="Seeds of each scheduler, from 0; figures are means.")] = 1,
    updates: Annotated[
        int | None,
        typer.Option(min=1, help="Report time to this update; default: the last update that all runs finished."),
    ] = None,
    processes: Processes = None,
    fail_if: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CONDITION",
            help="Exit with 1 if this holds for the first scheduler: 'FIGURE < FACTOR * SCHEDULER', 'FIGURE > NUMBER'. "
            "Starts with two seeds and adds more until it is decided with at most 5 % probability of error; exits with "
            "3 if it stays undecided. Repeatable.",
        ),
    ] = None,
    until_ranked: Annotated[
        bool,
        typer.Option(
            help="Add seeds until the order of the schedulers by trained turns is decided with at most 5 % probability "
            "of any error; one whose place is decided gets no more. Exits with 3 if it stays undecided."
        ),
    ] = False,
    max_seeds: Annotated[
        int, typer.Option(min=3, help="Most seeds of each scheduler for --until-ranked and --fail-if.")
    ] = 20,
    junit: Annotated[
        Path | None, typer.Option(callback=file_target, help="JUnit file to write, with a test for each --fail-if.")
    ] = None,
    out_folder: Out = None,
    json_file: Json = None,
) -> None:
    r"""Run schedulers with the same seeds, and rank them by trained turns, with confidence intervals.

    It prints a table and writes a page. With --on, only the scheduler of each preset or file is used; cluster, tasks
    and latencies are those of --on. Each run's folder is inside the comparison's. A run that an earlier comparison
    beside it made with the same configuration, seed and code is copied. So the same command finishes an interrupted
    comparison, and after a change of one scheduler only its runs are made. "Differs" means that the 95 % interval of
    the paired difference to the best scheduler excludes 0.

    Examples:
        dartsim compare coupled dart-measured
        dartsim compare coupled dart --faults hostile --hours 48 --until-steady 3%
        dartsim compare dart areal-eta4 verl-async prime-rl --on osworld --hours 2 --until-ranked
        dartsim compare mine.toml areal-eta4 --on cluster.toml --seeds 5 \
          --fail-if "trained_turns_per_minute < 0.95 * areal-eta4" --junit gate.xml
    """
    from dartsim.cli.live import write_study
    from dartsim.lab.compared_runs import make_runs
    from dartsim.lab.gate import Comparison, write_junit
    from dartsim.lab.study_document import comparison_document
    from dartsim.lab.sweep import RESULTS, Results

    seeds = max(seeds, 3 if until_ranked else 2 if fail_if else 1)
    given = settings(overrides, hours, None, faults, until_steady=until_steady)
    possible = plan(schedulers, given, max(seeds, max_seeds if fail_if or until_ranked else 0), on)
    _check_conditions(fail_if or [], possible, junit)
    names = list(dict.fromkeys(run.scheduler for run in possible))
    short = names if len(names) <= 3 else [*names[:2], f"{len(names) - 2}-more"]
    folder = out_folder or new_folder("-".join(["compare", *short]))
    possible = runs_in(folder, possible)
    refuse_others(folder, possible)
    finished = Results(folder.parent / RESULTS)
    counts = dict.fromkeys(names, 0)
    ended: list[EndedRun] = []

    def with_seeds(count: int, names: Collection[str]) -> Comparison:
        nonlocal ended
        counts.update(dict.fromkeys(names, count))
        runs = [run for run in possible if run.config.run.seed < counts[run.scheduler]]
        with report_interrupt(lambda: _progress_so_far(runs, folder)):
            ended = make_runs(runs, errors, processes, finished)
        return Comparison.of(runs, ended, updates=updates or _common_updates(ended), with_seeds=with_seeds)

    compared, results = with_seeds(seeds, names).decide(fail_if or (), max_seeds)
    compared, undecided = compared.rank(max_seeds) if until_ranked else (compared, [])
    columns, last = _columns(compared), updates or _common_updates(ended)
    folders = {
        name: [run.path for run in possible if run.path and run.scheduler == name] for name in compared.schedulers
    }
    folders = {name: [path for path in own if (path / SUMMARY).is_file()] for name, own in folders.items()}
    notes = _notes(compared, columns, ended)
    if until_ranked:
        notes.append(_order(compared, undecided))
    # Published figures only apply to a preset on its own cluster.
    document = comparison_document(
        compared, folders, _tables(compared, columns, last, PUBLISHED if on is None else {}), notes
    )
    page = write_study(folder, document, [own[0] for own in folders.values() if own])
    if json_file != "-":
        _show(compared, columns, last, notes)
        for result in results:
            out.say(str(result))
        out.say(f"page: {page.resolve().as_uri()}")
    if json_file is not None:
        facts = {"preset": {run.scheduler: run.config.preset for run in possible}, "workload": on, "updates": last}
        write_json(_as_json(compared, facts), json_file)
    if junit is not None:
        write_junit(compared, results, junit)
    _end(compared, results, undecided)


def _common_updates(ended: Sequence[EndedRun]) -> int | None:
    """Return the last update that all runs finished; None if there is none."""
    return min((len(run.update_hours) for run in ended if not run.summary.get("failure")), default=0) or None


def _columns(compared: Comparison) -> list[SchedulerColumn]:
    from dartsim.lab.comparison import classes_over_seeds, over_seeds

    return [
        SchedulerColumn(name, over_seeds(rows), classes_over_seeds([] if name in compared.failures else rows))
        for name, rows in compared.figures.items()
    ]


def _order(compared: Comparison, undecided: Sequence[tuple[str, str]]) -> str:
    """Return the decided order of the schedulers, in words."""
    if undecided:
        pairs = "; ".join(f"{one} and {two}" for one, two in undecided)
        return f"undecided with {len(compared.seeds)} seeds (raise --max-seeds, or --hours): {pairs}"
    order = ", ".join(
        f"{rank.scheduler} ({len(compared.figures[rank.scheduler])})"
        for rank in compared.ranking()
        if rank.scheduler not in compared.failures
    )
    return f"the order is decided, with at most 5 % probability of an error (number of seeds): {order}"


def _show(compared: Comparison, columns: Sequence[SchedulerColumn], updates: int | None, notes: Sequence[str]) -> None:
    """Print figures, ranking, and warnings."""
    for table in scheduler_tables(columns, updates):
        out.print(table)
    if len(columns) > 1:
        out.print()
        out.print(ranking_table(compared))
    for line in notes:
        out.say(line)


def _notes(compared: Comparison, columns: Sequence[SchedulerColumn], ended: Sequence[EndedRun]) -> list[str]:
    """Return what a reader of the figures has to know."""
    lines = [NOTE]
    lines += [
        f"{column.name} starves {share['class']} tasks (by {share['by']}): of those that the group filter keeps, "
        f"{share['ratio']:.2f} times the average share is trained ({share['low']:.2f} to {share['high']:.2f} at 95 %; "
        f"below {BAND:g} is starved)"
        for column in columns
        for share in column.classes["starved_classes"] or ()
    ]
    if len(compared.seeds) > 1:
        numbers = sorted({len(rows) for rows in compared.figures.values()})
        lines.append(f"means over {' to '.join(map(str, numbers))} seeds, ± half the 95 % confidence interval")
    if any(made.summary.get("surrogate") for made in ended):
        lines.append("surrogate policy: outcomes are drawn, nothing was learned")
    return lines


def _tables(
    compared: Comparison,
    columns: Sequence[SchedulerColumn],
    updates: int | None,
    published: Mapping[str, Mapping[str, float]],
) -> list[dict[str, Any]]:
    """Return the tables of the page: figures, published ones below them."""
    rows = [*ranking_rows(compared), *scheduler_rows(columns, updates)]
    for label, (figure, scale) in ROWS.items():
        known = [published.get(column.name, {}).get(figure) for column in columns]
        if any(known):
            cells = ["–" if value is None else f"{scale * value:.1f}" for value in known]
            rows.append((f"{label.strip()}, published", cells))
    heads = ["", *(f"#{column.name}" for column in columns)]
    return [{"title": "Schedulers", "heads": heads, "rows": [[label, *cells] for label, cells in rows]}]


def _as_json(compared: Comparison, facts: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a row for each run: scheduler, seed, rank of the scheduler, and figures."""
    ranks = {rank.scheduler: (place, rank) for place, rank in enumerate(compared.ranking(), 1)}
    return [
        {
            "scheduler": name,
            "seed": seed,
            **facts,
            "preset": facts["preset"][name],
            "rank": None if name in compared.failures else ranks[name][0],
            "difference_to_best": {"share": ranks[name][1].change, "half_width": ranks[name][1].change_half_width},
            "verdict": ranks[name][1].verdict,
            **row,
        }
        for name in compared.schedulers
        for seed, row in zip(compared.seeds, compared.figures[name], strict=False)
    ]


def _end(compared: Comparison, results: Sequence[ConditionResult], undecided: Sequence[tuple[str, str]]) -> None:
    """Report failures, and end the command with its exit code."""
    lines = [f"failed: {failure}" for failure in compared.failures.values()]
    unmet = [result for result in results if not result.passed]
    lines += [f"{'failed' if one.decided else 'undecided'}: {compared.explain(one)}" for one in unmet]
    for line in lines:
        errors.say(line)
    if any(result.decided for result in unmet):
        raise typer.Exit(1)
    if compared.failures:
        raise typer.Exit(KINDS["nothing_trained"].code)
    if unmet or undecided:
        raise typer.Exit(UNDECIDED)


def plan(schedulers: Sequence[str], overrides: Sequence[str], seeds: int, on: str | None = None) -> list[ComparedRun]:
    """Return the runs of a comparison, all checked before the first one starts; none has a directory yet.

    Raises:
        ConfigError: If a preset, a file or a setting is wrong.
    """
    from dartsim.lab.compared_runs import ComparedRun, by_name, new_run
    from dartsim.run.prepare import prepare
    from dartsim.run.verdict import too_few_attempts

    runs: list[ComparedRun] = []
    for name, scheduler in by_name(list(dict.fromkeys(schedulers))).items():
        first = load_config(str(scheduler), on=on, overrides=[*overrides, "run.seed=0"])
        prepare(first)
        _refuse_without_engine(first)
        if few := too_few_attempts(first):
            errors.say(f"{name}: {few}")
        for seed in range(seeds):
            config = first.model_copy(update={"run": first.run.model_copy(update={"seed": seed})})
            words = [
                *plugin_words(),
                *(["--on", on] if on else []),
                *(word for text in overrides for word in ("--set", text)),
            ]
            command = ["dartsim", "run", new_run(str(scheduler)), *words, "--seed", str(seed)]
            runs.append(ComparedRun(name, config, shlex.join(command)))
    return runs


def _check_conditions(conditions: Sequence[str], runs: Sequence[ComparedRun], junit: Path | None) -> None:
    """Refuse conditions that cannot be decided, before anything runs."""
    from dartsim.lab.gate import read_condition

    for condition in conditions:
        read_condition(condition, list(dict.fromkeys(run.scheduler for run in runs)))
    if junit is not None and not conditions:
        raise ConfigError("--junit writes a test for each --fail-if, and there is none")


def runs_in(folder: Path, runs: Sequence[ComparedRun]) -> list[ComparedRun]:
    """Return the runs of a comparison, each with its directory inside the comparison's."""
    return [replace(run, path=folder / f"{run.scheduler}-seed{run.config.run.seed}") for run in runs]


def refuse_others(folder: Path, runs: Sequence[ComparedRun]) -> None:
    """Refuse a folder with anything else than a comparison of these schedulers with the same settings.

    Raises:
        ConfigError: If it has.
    """
    known = {folder / name for name in (STUDY_PAGE, STUDY)} | {run.path for run in runs}
    others = sorted(set(folder.iterdir()) - known) if folder.exists() else []
    others += [run.path for run in runs if run.path and (run.path / CONFIG).is_file() and not run.same_config]
    if others:
        raise ConfigError(
            f"{folder} holds {others[0].name}, which is no part of this comparison; name another folder with --out"
        )


def _progress_so_far(runs: Sequence[ComparedRun], folder: Path) -> str:
    done = sum(run.path is not None and (run.path / SUMMARY).is_file() for run in runs)
    return f"interrupted: {done} of {len(runs)} runs were finished, in {folder}; the same command makes the others"


def _refuse_without_engine(config: Config) -> None:
    """Refuse a preset on real desktops if no container engine answers on this machine."""
    local = all(host.url is None for host in config.desktop.hosts.values())
    if not config.backend.boots or not local:
        return
    from dartsim.cli.machine_checks import OK, ask_engine

    engine = ask_engine().check
    if engine.state is not OK:
        raise ConfigError(f"preset {config.preset!r} needs real desktops, and {engine.found}; {engine.fix}")


def scheduler_rows(columns: Sequence[SchedulerColumn], updates: int | None) -> list[tuple[str, list[str]]]:
    """Return rows with a cell for each scheduler: means over seeds, then the least trained classes of tasks."""
    from dartsim.lab.gate import cell_text

    rows = [
        (label.format(updates or "–"), [cell_text(column.figures.get(figure), scale) for column in columns])
        for label, (figure, scale) in ROWS.items()
    ]
    for by in JUDGED:
        least = [column.classes["least_classes"].get(by) for column in columns]
        if any(least):
            rows.append((f"least by {by}", ["–" if s is None else f"{s['class']} {s['ratio']:.2f}" for s in least]))
    return rows


def scheduler_tables(columns: Sequence[SchedulerColumn], updates: int | None) -> Iterator[Table]:
    """Yield ``scheduler_rows`` as tables of a few schedulers each; a table of two has their ratio."""
    rows, two = scheduler_rows(columns, updates), len(columns) == 2
    figures = [figure for figure, _ in ROWS.values()]
    ratios = [ratio(*(column.figures.get(name, {}).get("mean") for column in columns)) for name in figures if two]
    ratios += [""] * (len(rows) - len(ratios))
    for start in range(0, len(columns), BESIDE):
        part = slice(start, start + BESIDE)
        table = plain_table("", numbers=[*(column.name for column in columns[part]), *["ratio"] * two])
        for (label, cells), times in zip(rows, ratios, strict=True):
            table.add_row(label, *cells[part], *[times] * two)
        yield table


def ranking_table(compared: Comparison) -> Table:
    """Return the ranking by trained turns: each scheduler, its difference to the best one, and the verdict."""
    seeds = len(compared.seeds)
    title = f"ranking, {seeds} paired seeds" if seeds > 1 else "ranking, one seed"
    table = plain_table(title, numbers=("trained turns/min", "to the best"), after=("verdict",))
    table.columns[0].no_wrap = True
    for place, rank in enumerate(compared.ranking(), 1):
        number = "–" if rank.scheduler in compared.failures else f"{place}."
        table.add_row(f"{number} {rank.scheduler}", rank.mean_text, rank.to_best, rank.verdict)
    return table


def ranking_rows(compared: Comparison) -> list[tuple[str, list[str]]]:
    """Return the ranking as rows with a cell for each scheduler, in the order given."""
    ranks = sorted(compared.ranking(), key=lambda rank: compared.schedulers.index(rank.scheduler))
    return [("difference to the best", [rank.to_best for rank in ranks]), ("verdict", [rank.verdict for rank in ranks])]
