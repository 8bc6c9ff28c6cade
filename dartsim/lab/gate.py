"""``Comparison``: schedulers with the same seeds, their ranking, and conditions for continuous integration.

A condition is a sentence such as ``trained_turns_per_minute < 0.95 * areal-eta4``. It is about the mean of the paired
difference, seed by seed, and is decided by a sequential test: a two-sided t-test after each stage of seeds, until one
decides or ``max_seeds`` are simulated. The stages share ``ERROR`` in proportion to the seeds they add, so the
probability of a wrong decision is at most ``ERROR``, half of it on each side, however many stages there are
(Bonferroni's inequality, with the linear spending function of Lan and DeMets, Biometrika 70 (1983), 659; exact for
normal differences). An undecided condition is no pass, nor is one about a run that failed.

A ranking is decided in the same way: all pairs of schedulers share ``ERROR`` too, and a scheduler that is told apart
from all others gets no more seeds. A trial of a study is stopped in the same way, one-sided and with periods of a run
in place of seeds (``is_worse``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from math import ceil, inf
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple
from xml.etree import ElementTree

from dartsim.core.errors import ConfigError, NothingTrained, no_such
from dartsim.core.words import significant
from dartsim.lab.compared_runs import ComparedRun, EndedRun
from dartsim.lab.comparison import FIGURES, comparison_figures, half_width, over_seeds

ERROR = 0.05
"""Largest probability of a wrong decision about a condition."""
MAX_SEEDS = 20
"""Seeds after which a condition stays undecided, by default."""
GROWTH = 1.6
"""Factor between the seeds of a stage and of the next."""

CONDITION = re.compile(
    r"^\s*(?P<figure>\w+)\s*(?P<sign>[<>])\s*(?:(?P<factor>[\d.eE+-]+)\s*\*\s*)?(?P<base>[^\s*]+)\s*$"
)


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition on the first scheduler: ``figure < factor * base``, or ``>``.

    Attributes:
        text: The condition as written.
        figure: The figure's name.
        less: Whether the operator is ``<``; otherwise ``>``.
        factor: Factor of the other scheduler's figure, or a number to compare with.
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
        ConfigError: If it has another form, or the figure or the scheduler is unknown.
    """
    found = CONDITION.match(text)
    if found is None:
        raise ConfigError(
            f"a condition is written FIGURE < FACTOR * SCHEDULER or FIGURE > NUMBER, got {text!r}; for example "
            f'"trained_turns_per_minute < 0.95 * {schedulers[-1]}"'
        )
    figure, base, less = found["figure"], found["base"], found["sign"] == "<"
    if figure not in FIGURES:
        raise no_such("figure", figure, FIGURES)
    try:
        factor = float(found["factor"] or 1.0)
        if base in schedulers[1:]:
            return Condition(text, figure, less, factor, base)
        if found["factor"] is None and re.match(r"[\d.+-]", base):
            return Condition(text, figure, less, float(base), None)
    except ValueError as error:
        raise ConfigError(f"{text!r}: {error}") from None
    if base == schedulers[0]:
        raise ConfigError(f"{text!r} compares {base!r}, the first scheduler, with itself; name another one")
    raise ConfigError(f"{text!r}: {base!r} is not compared; there are: {', '.join(schedulers)}")


@dataclass(frozen=True, slots=True)
class ConditionResult:
    """Whether a condition holds.

    Attributes:
        condition: The condition.
        differences: The paired difference of each seed.
        mean: Mean of the differences.
        half_width: Half of the mean's confidence interval, with confidence 1 - ``level``.
        level: Probability of a wrong decision at this stage.
        failure: Why it cannot be judged: a run failed. None if none did.
    """

    condition: Condition
    differences: Mapping[int, float]
    mean: float = 0.0
    half_width: float = 0.0
    level: float = ERROR
    failure: str | None = None

    @property
    def holds(self) -> bool:
        """Whether the whole interval is on the condition's side of 0."""
        sign = 1.0 if self.condition.less else -1.0
        return self.failure is None and sign * self.mean + self.half_width < 0.0

    @property
    def decided(self) -> bool:
        """Whether no more seeds are needed."""
        return self.failure is not None or not 0.0 < self.half_width >= abs(self.mean)

    @property
    def passed(self) -> bool:
        """Whether it is decided that the condition does not hold."""
        return self.decided and not self.holds and self.failure is None

    def __str__(self) -> str:
        if self.failure is not None:
            return f"{self.condition.text} cannot be judged: {self.failure}"
        seeds = ", ".join(f"seed {seed}: {significant(x, 4, signed=True)}" for seed, x in self.differences.items())
        verdict = "holds" if self.holds else "does not hold"
        if not self.decided:
            number = len(self.differences)
            verdict = f"is not decided by {number} seeds (the interval includes 0; raise --max-seeds)"
        difference = f"{significant(self.mean, 4, signed=True)} ± {significant(self.half_width, 2)}"
        return (
            f"{self.condition.text} {verdict}: difference {difference} at {100.0 - 100.0 * self.level:.3g} % ({seeds})"
        )


def stages(first: int, most: int) -> list[int]:
    """Return the number of seeds at each stage of the sequential test; the last is ``most``, at least ``first``."""
    sizes = [first]
    while sizes[-1] < most:
        sizes.append(min(ceil(GROWTH * sizes[-1]), most))
    return sizes


FIRST_PERIODS = 5
"""Differences at the first stage of ``is_worse``."""


def is_worse(differences: Sequence[float], most: int, error: float) -> bool:
    """Return whether the mean of paired differences is below 0; to be asked after each of them.

    Args:
        differences: The differences so far, roughly normal and independent.
        most: Number of differences at the last stage.
        error: Largest probability that any of the answers is wrong.
    """
    sizes, size = stages(FIRST_PERIODS, most), len(differences)
    if size not in sizes:
        return False
    added = size - max((other for other in sizes if other < size), default=0)
    width = half_width(differences, 2.0 * error * added / sizes[-1])
    return width is not None and fmean(differences) + width < 0.0


class SchedulerRank(NamedTuple):
    """A scheduler in a ranking."""

    scheduler: str
    mean: float | None
    """Its figure, over seeds; None if a run has none."""
    half_width: float | None
    """Half of the mean's 95 % interval; None with one seed."""
    change: float | None
    """Relative difference to the best one; None if unknown."""
    change_half_width: float | None
    """Half of the 95 % interval of the paired differences, relative."""
    verdict: str
    """"best", "failed" with the cause, "differs", "identical to" another, or "could be chance"."""

    @property
    def mean_text(self) -> str:
        return cell_text({"mean": self.mean, "half_width": self.half_width})

    @property
    def to_best(self) -> str:
        """The difference to the best one, formatted."""
        if self.change is None or self.verdict == "best":
            return "–"
        width = self.change_half_width
        return f"{100.0 * self.change:+.1f}" + ("" if width is None else f" ± {100.0 * width:.1f}") + " %"


WithSeeds = Callable[[int, Collection[str]], "Comparison"]


@dataclass(frozen=True, repr=False)
class Comparison:
    """Figures of schedulers on one cluster, with the same seeds.

    Attributes:
        schedulers: Their names, in the order given.
        seeds: The seeds.
        figures: By scheduler, the figures of each seed (``dartsim.lab.comparison.comparison_figures``).
        replay: The command or call that repeats the run of a scheduler and a seed.
        with_seeds: Returns the comparison with a total number of seeds of these schedulers; None if no more can be
            added. The seeds of a scheduler are the first ones.
    """

    schedulers: tuple[str, ...]
    seeds: tuple[int, ...]
    figures: Mapping[str, Sequence[Mapping[str, Any]]]
    replay: Mapping[tuple[str, int], str]
    with_seeds: WithSeeds | None = field(default=None, compare=False)

    @classmethod
    def of(
        cls,
        runs: Sequence[ComparedRun],
        ended: Sequence[EndedRun],
        *,
        updates: int | None = None,
        with_seeds: WithSeeds | None = None,
    ) -> Comparison:
        """Return the comparison of finished runs; ``updates`` as in ``compared``."""
        names = tuple(dict.fromkeys(run.scheduler for run in runs))
        figures: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
        for run, made in zip(runs, ended, strict=True):
            figures[run.scheduler].append(comparison_figures(made.summary, made.update_hours, updates=updates))
        replay = {(run.scheduler, run.config.run.seed): run.replay for run in runs}
        return cls(names, tuple(dict.fromkeys(run.config.run.seed for run in runs)), figures, replay, with_seeds)

    def __repr__(self) -> str:
        return f"Comparison({', '.join(self.schedulers)}; seeds {', '.join(map(str, self.seeds))})"

    @property
    def failures(self) -> Mapping[str, str]:
        """The failed schedulers, which have no figures, each with the seed whose run trained nothing and the cause."""
        found: dict[str, str] = {}
        for name in self.schedulers:
            for seed, row in zip(self.seeds, self.figures[name], strict=False):
                if row.get("failure"):
                    found.setdefault(name, f"{name}, seed {seed}: {row['failure']}")
        return found

    def mean(self, scheduler: str, figure: str) -> float | None:
        """Return the mean of a figure over seeds; None if a run has none.

        Raises:
            ConfigError: If the scheduler or figure is unknown; names the nearest one.
            NothingTrained: If a run of the scheduler failed.
        """
        for kind, name, known in (("scheduler", scheduler, self.schedulers), ("figure", figure, FIGURES)):
            if name not in known:
                raise no_such(kind, name, known)
        if scheduler in self.failures:
            raise NothingTrained(self.failures[scheduler])
        return self._mean(scheduler, figure)

    def _mean(self, scheduler: str, figure: str) -> float | None:
        found = over_seeds(self.figures[scheduler], [figure])
        return found[figure]["mean"] if found else None

    def ranking(self, figure: str = "trained_turns_per_minute", *, lowest: bool = False) -> list[SchedulerRank]:
        """Return the schedulers, best first, each compared with the best one seed by seed.

        Args:
            figure: One of ``dartsim.lab.comparison.FIGURES``.
            lowest: Whether the lowest figure is the best.
        """
        sign = 1.0 if lowest else -1.0
        means = {name: self._mean(name, figure) for name in self.schedulers}
        rated = [name for name in self.schedulers if means[name] is not None]
        losses = {  # means may be over different seeds
            name: sum(sign * fmean(self._differences(name, other, figure)) > 0.0 for other in rated) for name in rated
        }
        order = sorted(self.schedulers, key=lambda name: losses.get(name, inf))
        ranks = []
        for place, name in enumerate(order):
            width = None if means[name] is None else half_width(self._values(name, figure))
            ranks.append(SchedulerRank(name, means[name], width, *self._to_best(name, order[:place], figure)))
        return ranks

    def _to_best(self, name: str, better: Sequence[str], figure: str) -> tuple[float | None, float | None, str]:
        """Return the relative difference of a scheduler to the best one, its half-width, and the verdict."""
        if name in self.failures:
            return None, None, f"failed: {self.failures[name]}"
        if not better:
            return 0.0, None, "best"
        best = better[0]
        reference = self._mean(best, figure)
        if self._mean(name, figure) is None or not reference:
            return None, None, "unknown: no update finished; simulate more hours"
        differences = [difference / reference for difference in self._differences(name, best, figure)]
        change, width = fmean(differences), half_width(differences)
        if same := next((other for other in better if self._identical(other, name)), None):
            alone = all(row.get("num_engines") == 1 for row in self.figures[name])
            why = " (with one engine, every router sends all requests to it)" if alone else ""
            return change, width, f"identical to {same} in every event{why}"
        if not any(differences):
            return change, width, "the same in every run"
        if width is None:
            return change, None, "unknown: one seed; take --seeds 3 or more"
        if abs(change) > width:
            return change, width, "differs"
        return change, width, "could be chance"

    def _identical(self, name: str, other: str) -> bool:
        """Whether all runs of two schedulers have the same events; real runs have no hashes of them."""
        pairs = zip(self.figures[name], self.figures[other], strict=False)
        return all(one.get("event_hash") == two.get("event_hash") is not None for one, two in pairs)

    def _differences(self, name: str, other: str, figure: str, factor: float = 1.0) -> list[float]:
        """Return the differences of a figure, by seed that both schedulers have."""
        pairs = zip(self._values(name, figure), self._values(other, figure), strict=False)
        return [one - factor * two for one, two in pairs]

    def _grown(self, max_seeds: int, schedulers: Callable[[], Collection[str]]) -> Iterator[tuple[Comparison, float]]:
        """Yield the comparison at each stage with more seeds of some schedulers, and the error that it may spend."""
        now, before = self, 0
        sizes = stages(len(self.seeds), max_seeds if self.with_seeds is not None else 0)
        for size in sizes:
            if self.with_seeds is not None and size > len(now.seeds):
                now = self.with_seeds(size, schedulers())
            yield now, ERROR * (size - before) / sizes[-1]
            before = size

    def rank(self, max_seeds: int = MAX_SEEDS) -> tuple[Comparison, list[tuple[str, str]]]:
        """Simulate more seeds, at most ``max_seeds`` in total, until the order by trained turns is decided.

        Returns:
            The comparison with all seeds, and the pairs that stayed undecided. The order of all other pairs is wrong
            with a probability of at most ``ERROR``.
        """
        now, figure = self, "trained_turns_per_minute"
        names = [name for name in self.schedulers if name not in self.failures]
        num_pairs, left = len(names) * (len(names) - 1) / 2.0, list(combinations(names, 2))
        for now, level in self._grown(max_seeds, lambda: dict.fromkeys(name for pair in left for name in pair)):
            left[:] = [pair for pair in left if not {*pair} & now.failures.keys()]
            for pair in list(left):
                differences = now._differences(*pair, figure)
                width = half_width(differences, level / num_pairs)
                if now._identical(*pair) or (width is not None and abs(fmean(differences)) > width):
                    left.remove(pair)
            if not left:
                break
        return now, left

    def decide(self, conditions: Iterable[str], max_seeds: int = MAX_SEEDS) -> tuple[Comparison, list[ConditionResult]]:
        """Simulate more seeds until every condition is decided, at most ``max_seeds`` in total.

        Returns:
            The comparison with all seeds, and the result of each condition at the stage that decided it.

        Raises:
            ConfigError: As ``result``.
        """
        texts, found, now = tuple(dict.fromkeys(conditions)), dict[str, ConditionResult](), self
        for now, level in self._grown(max_seeds, lambda: self.schedulers):
            for text in texts:
                if text not in found or not found[text].decided:
                    found[text] = now.result(text, level)
            if all(result.decided for result in found.values()):
                break
        return now, list(found.values())

    def result(self, condition: str, level: float = ERROR) -> ConditionResult:
        """Return whether a condition holds with the seeds so far; ``decide`` simulates more.

        Args:
            condition: The condition.
            level: Probability of a wrong decision in a single test.

        Raises:
            ConfigError: If the condition is malformed, there is only one seed, or a run lacks the figure.
        """
        known = read_condition(condition, self.schedulers)
        if len(self.seeds) < 2:
            raise ConfigError(f"{condition!r} needs two seeds or more: with one, chance cannot be told from a loss")
        first, *_ = self.schedulers
        for name, failure in self.failures.items():
            if name in (first, known.base):
                return ConditionResult(known, {}, failure=failure)
        if known.base is None:
            values = [own - known.factor for own in self._values(first, known.figure)]
        else:
            values = self._differences(first, known.base, known.figure, known.factor)
        width = half_width(values, level)
        assert width is not None, "there are two seeds"
        return ConditionResult(known, dict(zip(self.seeds, values, strict=False)), fmean(values), width, level)

    def _values(self, scheduler: str, figure: str) -> list[float]:
        values = [row[figure] for row in self.figures[scheduler]]
        if None in values:
            seed = self.seeds[values.index(None)]
            raise ConfigError(f"{scheduler}, seed {seed}, has no {figure}: no update finished; simulate more hours")
        return values

    def fail_if(self, *conditions: str, max_seeds: int = MAX_SEEDS) -> None:
        """Fail a test unless it is decided that no condition holds for the first scheduler.

        Simulates more seeds until that is decided, at most ``max_seeds`` in total.

        Raises:
            AssertionError: Names each condition that holds or is undecided, with its difference by seed and the
                commands that repeat the runs.
            ConfigError: As ``result``.
        """
        comparison, results = self.decide(conditions, max_seeds)
        if failed := [result for result in results if not result.passed]:
            raise AssertionError("\n".join(comparison.explain(result) for result in failed))

    def explain(self, result: ConditionResult) -> str:
        """Return a result with the commands that repeat its runs."""
        names = [self.schedulers[0], *([result.condition.base] if result.condition.base else [])]
        runs = [(name, seed) for seed in self.seeds for name in names if (name, seed) in self.replay]
        return "\n".join([str(result), *(f"  {self.replay[run]}" for run in runs)])

    def to_frame(self) -> Any:
        """Return a pandas DataFrame with a row for each scheduler and seed; errors as for ``data_frame``."""
        return data_frame(
            [
                {"scheduler": name, "seed": seed, **{figure: row[figure] for figure in FIGURES}}
                for name in self.schedulers
                for seed, row in zip(self.seeds, self.figures[name], strict=False)
            ]
        )


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


def cell_text(figure: Mapping[str, float | None] | None, scale: float = 1.0) -> str:
    """Format a mean over seeds and half its interval; a dash for an unknown one."""
    if figure is None or (mean := figure["mean"]) is None:
        return "–"
    if isinstance(mean, int):  # a maximum is a count, not a mean
        return str(mean)
    digits, width = 2 if scale * abs(mean) < 10 else 1, figure["half_width"]
    return f"{scale * mean:.{digits}f}" + ("" if width is None else f" ±{scale * width:.{digits}f}")


def write_junit(comparison: Comparison, results: Sequence[ConditionResult], path: Path) -> None:
    """Write a JUnit file with a test for each condition, which passes if the condition is decided and does not hold.

    Each scheduler that failed adds a failing test.
    """
    failures = comparison.failures
    failed = sum(not result.passed for result in results) + len(failures)
    number = str(len(results) + len(failures))
    suite = ElementTree.Element("testsuite", name="dartsim compare", tests=number, failures=str(failed))
    for name, why in failures.items():
        test = ElementTree.SubElement(suite, "testcase", classname=name, name="trains")
        ElementTree.SubElement(test, "failure", message=why).text = why
    for result in results:
        test = ElementTree.SubElement(suite, "testcase", classname=comparison.schedulers[0], name=result.condition.text)
        if not result.passed:
            ElementTree.SubElement(test, "failure", message=str(result)).text = comparison.explain(result)
        else:
            ElementTree.SubElement(test, "system-out").text = str(result)
    ElementTree.ElementTree(suite).write(path, encoding="utf-8", xml_declaration=True)
