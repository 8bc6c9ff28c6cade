"""What ``dartsim tune`` prints at its end: the best settings, what is left of them with fresh seeds, the front."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rich.table import Table

from dartsim.cli.console import out
from dartsim.cli.tables import plain_table

if TYPE_CHECKING:
    from dartsim.lab.study import Study, Trial
    from dartsim.lab.study_spec import StudySpec
    from dartsim.lab.validation import Held, Validation


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
