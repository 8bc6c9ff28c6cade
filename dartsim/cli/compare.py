"""``dartsim compare``: several schedulers on the same cluster, side by side."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dartsim.cli.command_group import plugin_words
from dartsim.cli.console import errors, result, table
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
    refuse_unwritable,
    settings,
)
from dartsim.cli.signals import report_interrupt
from dartsim.core.errors import ConfigError
from dartsim.observe.alarm import KINDS
from dartsim.observe.bias import BAND, JUDGED
from dartsim.observe.rundir import CONFIG, STUDY, STUDY_PAGE, SUMMARY

if TYPE_CHECKING:
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
        int, typer.Option(min=2, help="Most seeds of each scheduler for --until-ranked and --fail-if.")
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
    from dartsim.lab.comparison import classes_over_seeds
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
    refuse_unwritable("--out", folder.parent, folder=True)
    finished = Results(folder.parent / RESULTS)
    counts = dict.fromkeys(names, 0)
    ended: list[EndedRun] = []

    def with_seeds(count: int, names: Collection[str]) -> Comparison:
        nonlocal ended
        counts.update(dict.fromkeys(names, count))
        runs = [run for run in possible if run.config.run.seed < counts[run.scheduler]]
        with report_interrupt(lambda: _progress_so_far(runs, folder)):
            ended = make_runs(runs, errors, processes, finished)
        return Comparison.of(runs, ended, updates=_common_updates(ended), with_seeds=with_seeds)

    compared, results = with_seeds(seeds, names).decide(fail_if or (), max_seeds)
    compared, undecided = compared.rank(max_seeds) if until_ranked else (compared, [])
    last = _common_updates(ended)
    folders = {
        name: [run.path for run in possible if run.path and run.scheduler == name] for name in compared.schedulers
    }
    folders = {name: [path for path in own if (path / SUMMARY).is_file()] for name, own in folders.items()}
    classes = {
        name: classes_over_seeds([] if name in compared.failures else rows) for name, rows in compared.figures.items()
    }
    # Published figures only apply to a preset on its own cluster.
    rows = scheduler_rows(compared, classes, last, PUBLISHED if on is None else {})
    heads, notes = [f"#{name}" for name in compared.schedulers], _notes(compared, classes, ended)
    if until_ranked:
        notes.append(_order(compared, undecided))
    tables = [{"title": "Schedulers", "heads": ["", *heads], "rows": rows}]
    document = comparison_document(compared, folders, tables, notes)
    page = write_study(folder, document, [own[0] for own in folders.values() if own])
    facts = {"preset": {run.scheduler: run.config.preset for run in possible}, "workload": on, "updates": last}
    console = result(_as_json(compared, facts), json_file)
    for start in range(0, len(heads), BESIDE):
        part = slice(start, start + BESIDE)
        console.print(table(["", *heads[part]], [(label, *cells[part]) for label, *cells in rows]))
    if len(heads) > 1:
        console.print()
        console.print(table(*_ranking(compared)))
    for line in (*notes, *results, f"page: {page.resolve().as_uri()}"):
        console.say(str(line))
    if junit is not None:
        write_junit(compared, results, junit)
    _end(compared, results, undecided)


def _common_updates(ended: Sequence[EndedRun]) -> int | None:
    """Return the last update that all runs finished; None if there is none."""
    return min((len(run.update_hours) for run in ended if not run.summary.get("failure")), default=0) or None


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


def _notes(compared: Comparison, classes: Mapping[str, Mapping[str, Any]], ended: Sequence[EndedRun]) -> list[str]:
    """Return what a reader of the figures has to know; ``classes``: the classes of tasks by scheduler."""
    lines = [NOTE]
    lines += [
        f"{name} starves {share['class']} tasks (by {share['by']}): of those that the group filter keeps, "
        f"{share['ratio']:.2f} times the average share is trained ({share['low']:.2f} to {share['high']:.2f} at 95 %; "
        f"below {BAND:g} is starved)"
        for name, own in classes.items()
        for share in own["starved_classes"] or ()
    ]
    if len(compared.seeds) > 1:
        numbers = sorted({len(rows) for rows in compared.figures.values()})
        lines.append(f"means over {' to '.join(map(str, numbers))} seeds, ± half the 95 % confidence interval")
    if any(made.summary.get("surrogate") for made in ended):
        lines.append("surrogate policy: outcomes are drawn, nothing was learned")
    return lines


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
        if not first.backend.virtual:
            raise ConfigError(f"{name} has real components, and `compare` simulates; `dartsim run` runs it")
        prepare(first)
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
    """Refuse a folder with anything but a comparison of these schedulers with the same settings.

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


def scheduler_rows(
    compared: Comparison,
    classes: Mapping[str, Mapping[str, Any]],
    updates: int | None,
    published: Mapping[str, Mapping[str, float]],
) -> list[list[str]]:
    """Return a label and a cell for each scheduler: means over seeds, least trained classes, published figures."""
    from dartsim.lab.comparison import over_seeds
    from dartsim.lab.gate import cell_text

    figures = {name: over_seeds(rows) for name, rows in compared.figures.items()}
    rows = [
        [label.format(updates or "–"), *(cell_text(own.get(figure), scale) for own in figures.values())]
        for label, (figure, scale) in ROWS.items()
    ]
    for by in JUDGED:
        least = [own["least_classes"].get(by) for own in classes.values()]
        if any(least):
            rows.append([f"least by {by}", *("–" if s is None else f"{s['class']} {s['ratio']:.2f}" for s in least)])
    for label, (figure, scale) in ROWS.items():
        known = [published.get(name, {}).get(figure) for name in figures]
        if any(known):
            cells = ("–" if value is None else f"{scale * value:.1f}" for value in known)
            rows.append([f"{label.strip()}, published", *cells])
    return rows


def _ranking(compared: Comparison) -> tuple[list[str], list[list[str]]]:
    """Return the heads and rows of the ranking by trained turns."""
    seeds = len(compared.seeds)
    title = f"ranking, {seeds} paired seeds" if seeds > 1 else "ranking, one seed"
    rows = []
    for place, rank in enumerate(compared.ranking(), 1):
        number = "–" if rank.scheduler in compared.failures else f"{place}."
        rows.append([f"{number} {rank.scheduler}", rank.mean_text, rank.to_best, rank.verdict])
    return [title, "#trained turns/min", "#to the best", "verdict"], rows
