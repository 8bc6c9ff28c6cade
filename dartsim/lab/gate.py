"""``Comparison``: figures of schedulers with the same seeds, their ranking, and conditions for continuous integration.

A condition is a sentence such as ``trained_turns_per_minute < 0.95 * areal-eta4``: it holds of the first scheduler if
the 95 % interval of the paired difference, seed by seed, lies on that side of 0 as a whole. So chance rarely fails a
build, and a small loss needs more seeds to be seen.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from statistics import fmean
from typing import Any
from xml.etree import ElementTree

from dartsim.core.errors import ConfigError, no_such
from dartsim.core.words import plural, significant
from dartsim.lab.compared_runs import ComparedRun, EndedRun
from dartsim.lab.comparison import Change, comparable, compared, half_width, over_seeds, seeds_to_tell

CONDITION = re.compile(
    r"^\s*(?P<figure>\w+)\s*(?P<sign>[<>])\s*(?:(?P<factor>[\d.eE+-]+)\s*\*\s*)?(?P<base>[^\s*]+)\s*$"
)


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition on the first scheduler: ``figure < factor * base``, or ``>``.

    Attributes:
        text: As it was written.
        figure: The figure.
        less: Whether it holds if the figure is less, and not more.
        factor: Of the other scheduler's figure; or a number to compare with.
        base: The other scheduler; None: ``factor`` is the number.
    """

    text: str
    figure: str
    less: bool
    factor: float
    base: str | None


def read_condition(text: str, schedulers: Sequence[str]) -> Condition:
    """Parse a condition.

    Raises:
        ConfigError: If it is not one, or the figure or the scheduler is unknown.
    """
    found = CONDITION.match(text)
    if found is None:
        raise ConfigError(
            f"a condition is written FIGURE < FACTOR * SCHEDULER or FIGURE > NUMBER, got {text!r}; for example "
            f'"trained_turns_per_minute < 0.95 * {schedulers[-1]}"'
        )
    figure, base = found["figure"], found["base"]
    if figure not in comparable():
        raise no_such("figure", figure, comparable())
    factor = _number(found["factor"] or "1", text)
    if base not in schedulers:
        if found["factor"] is not None or not re.match(r"^[\d.+-]", base):
            raise ConfigError(f"{text!r}: {base!r} is not compared; there are: {', '.join(schedulers)}")
        return Condition(text, figure, found["sign"] == "<", _number(base, text), None)
    if base == schedulers[0]:
        raise ConfigError(f"{text!r} compares {base!r}, the first scheduler, with itself; name another one")
    return Condition(text, figure, found["sign"] == "<", factor, base)


def _number(text: str, condition: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ConfigError(f"{condition!r}: {text!r} is not a number") from None


@dataclass(frozen=True, slots=True)
class ConditionResult:
    """Whether a condition holds."""

    condition: Condition
    differences: Mapping[int, float]
    mean: float
    half_width: float

    @property
    def holds(self) -> bool:
        """Whether the whole interval is on the condition's side of 0."""
        sign = 1.0 if self.condition.less else -1.0
        return sign * self.mean + self.half_width < 0.0

    def __str__(self) -> str:
        seeds = ", ".join(
            f"seed {seed}: {significant(value, 4, signed=True)}" for seed, value in self.differences.items()
        )
        verdict = "does not hold"
        if self.holds:
            verdict = "holds"
        elif 0.0 < self.half_width >= abs(self.mean):
            verdict = "is not decided (the interval includes 0; more seeds would tell)"
        difference = f"{significant(self.mean, 4, signed=True)} ± {significant(self.half_width, 2)}"
        return f"{self.condition.text} {verdict}: difference {difference} at 95 % ({seeds})"


@dataclass(frozen=True, slots=True)
class SchedulerRank:
    """A scheduler in a ranking.

    Attributes:
        scheduler: Its name.
        mean: Its figure, over seeds; None if a run has none.
        half_width: Half of the mean's 95 % interval; None with one seed.
        to_best: Difference to the best one, relative to that; ``half_width`` is of the differences, seed by seed.
        verdict: "best", "differs", "identical in every run", or "could be chance" with the least number of seeds that
            would tell.
    """

    scheduler: str
    mean: float | None
    half_width: float | None
    to_best: Change
    verdict: str


@dataclass(frozen=True)
class Comparison:
    """Figures of schedulers on one cluster, with the same seeds.

    Attributes:
        schedulers: Their names, in the order given.
        seeds: The seeds.
        figures: By scheduler, the figures of each seed (``dartsim.lab.comparison.compared``).
        replay: What repeats the run of a scheduler and a seed.
    """

    schedulers: tuple[str, ...]
    seeds: tuple[int, ...]
    figures: Mapping[str, Sequence[Mapping[str, Any]]]
    replay: Mapping[tuple[str, int], str]

    @classmethod
    def of(cls, runs: Sequence[ComparedRun], ended: Sequence[EndedRun], *, updates: int | None = None) -> Comparison:
        """Return the comparison of finished runs; arguments as ``dartsim.lab.comparison.compared``."""
        names = tuple(dict.fromkeys(run.scheduler for run in runs))
        figures: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
        for run, made in zip(runs, ended, strict=True):
            figures[run.scheduler].append(compared(made.summary, made.update_hours, updates=updates))
        replay = {(run.scheduler, run.config.run.seed): run.replay for run in runs}
        return cls(names, tuple(dict.fromkeys(run.config.run.seed for run in runs)), figures, replay)

    def mean(self, scheduler: str, figure: str) -> float | None:
        """Return the mean of a figure over seeds; None if a run has none."""
        found = over_seeds(self.figures[scheduler], [figure])
        return found[figure]["mean"] if found else None

    def ranking(self, figure: str = "trained_turns_per_minute", *, lowest: bool = False) -> list[SchedulerRank]:
        """Return the schedulers, the best first, each compared with the best, seed by seed.

        Args:
            figure: One of ``dartsim.lab.comparison.comparable()``.
            lowest: Whether the lowest figure is the best.
        """
        sign = 1.0 if lowest else -1.0
        means = {name: self.mean(name, figure) for name in self.schedulers}
        order = sorted(self.schedulers, key=lambda name: inf if (mean := means[name]) is None else sign * mean)
        best, ranks = order[0], []
        for name in order:
            width = None if means[name] is None else half_width(self._values(name, figure))
            change, verdict = self._to_best(name, best, figure)
            ranks.append(SchedulerRank(name, means[name], width, change, verdict))
        return ranks

    def _to_best(self, name: str, best: str, figure: str) -> tuple[Change, str]:
        """Return the difference of a scheduler to the best one, and what it says."""
        reference = self.mean(best, figure)
        if self.mean(name, figure) is None or not reference:
            return Change(None, None), "unknown: no update finished; simulate more hours"
        if name == best:
            return Change(0.0, None), "best"
        pairs = zip(self._values(name, figure), self._values(best, figure), strict=True)
        differences = [(own - other) / reference for own, other in pairs]
        change = Change(fmean(differences), half_width(differences))
        if not any(differences):
            alone = all(row.get("num_engines") == 1 for other in (name, best) for row in self.figures[other])
            why = ": with one engine, every router sends all requests to it" if alone else ""
            return change, f"identical in every run{why}"
        if change.half_width is None:
            return change, "unknown: one seed; take --seeds 3 or more"
        if change.certain:
            return change, "differs"
        wanted = seeds_to_tell(differences)
        if wanted is None:
            return change, "could be chance: the difference is too small to tell"
        more = max(1, wanted - len(self.seeds))
        return change, f"could be chance: at least {plural(more, 'more seed')} would tell"

    def result(self, condition: str) -> ConditionResult:
        """Return whether a condition holds.

        Raises:
            ConfigError: If it cannot be decided: it is wrong, there is one seed, or a run has no such figure.
        """
        known = read_condition(condition, self.schedulers)
        if len(self.seeds) < 2:
            raise ConfigError(f"{condition!r} needs two seeds or more: with one, chance cannot be told from a loss")
        first, *_ = self.schedulers
        others = [known.factor] * len(self.seeds) if known.base is None else self._values(known.base, known.figure)
        factor = 1.0 if known.base is None else known.factor
        values = [own - factor * other for own, other in zip(self._values(first, known.figure), others, strict=True)]
        width = half_width(values)
        assert width is not None, "there are two seeds"
        return ConditionResult(known, dict(zip(self.seeds, values, strict=True)), fmean(values), width)

    def _values(self, scheduler: str, figure: str) -> list[float]:
        values = [row[figure] for row in self.figures[scheduler]]
        if None in values:
            seed = self.seeds[values.index(None)]
            raise ConfigError(f"{scheduler}, seed {seed}, has no {figure}: no update finished; simulate more hours")
        return values

    def fail_if(self, *conditions: str) -> None:
        """Fail a test if a condition holds of the first scheduler.

        Raises:
            AssertionError: Naming each, with its difference by seed and the commands that repeat the runs.
            ConfigError: As ``result``.
        """
        held = [result for result in map(self.result, conditions) if result.holds]
        if held:
            raise AssertionError("\n".join(self.explained(result) for result in held))

    def explained(self, result: ConditionResult) -> str:
        """Return a result with the commands that repeat its runs."""
        names = [self.schedulers[0], *([result.condition.base] if result.condition.base else [])]
        return "\n".join([str(result), *(f"  {self.replay[name, seed]}" for seed in self.seeds for name in names)])

    def to_frame(self) -> Any:
        """Return a pandas DataFrame with a row for each scheduler and seed; errors as ``data_frame``."""
        return data_frame(
            [
                {"scheduler": name, "seed": seed, **{figure: row[figure] for figure in comparable()}}
                for name in self.schedulers
                for seed, row in zip(self.seeds, self.figures[name], strict=True)
            ]
        )

    def _repr_html_(self) -> str:
        """Return a table of means over seeds with half their 95 % interval, for notebooks."""
        columns = [over_seeds(self.figures[name]) for name in self.schedulers]
        head = "".join(f"<th>{name}</th>" for name in self.schedulers)
        rows = ""
        for figure in comparable():
            cells = "".join(f"<td>{_cell(column.get(figure))}</td>" for column in columns)
            rows += f"<tr><td>{figure.replace('_', ' ')}</td>{cells}</tr>"
        return f"<table><tr><th></th>{head}</tr>{rows}</table>"


def data_frame(data: Any) -> Any:
    """Return a pandas DataFrame of rows or columns.

    Raises:
        ConfigError: If pandas is not installed.
    """
    try:
        from pandas import DataFrame
    except ImportError:
        raise ConfigError("to_frame() needs pandas, which is not installed: pip install pandas") from None
    return DataFrame(data)


def _cell(figure: Mapping[str, float | None] | None) -> str:
    if figure is None or figure["mean"] is None:
        return "–"
    width = figure["half_width"]
    return significant(figure["mean"], 4) + ("" if width is None else f" ± {significant(width, 2)}")


def write_junit(comparison: Comparison, results: Sequence[ConditionResult], path: Path) -> None:
    """Write a JUnit file with a test for each condition, which fails if that holds."""
    failed = sum(result.holds for result in results)
    suite = ElementTree.Element("testsuite", name="dartsim compare", tests=str(len(results)), failures=str(failed))
    for result in results:
        test = ElementTree.SubElement(suite, "testcase", classname=comparison.schedulers[0], name=result.condition.text)
        if result.holds:
            ElementTree.SubElement(test, "failure", message=str(result)).text = comparison.explained(result)
        else:
            ElementTree.SubElement(test, "system-out").text = str(result)
    ElementTree.ElementTree(suite).write(path, encoding="utf-8", xml_declaration=True)
