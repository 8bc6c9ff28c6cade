"""Which tasks can be set up and scored here, and what stands in the way of the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from dartsim.core.errors import ConfigError, TaskFileError
from dartsim.core.types import Task
from dartsim.envs.base import is_infeasible
from dartsim.real.osworld import known
from dartsim.real.osworld.evaluator import EvaluatorFacts
from dartsim.real.osworld.getters import NATIVE as GETTERS
from dartsim.real.osworld.getters import check_getter
from dartsim.real.osworld.metrics import KNOWN as KNOWN_METRICS
from dartsim.real.osworld.metrics import NATIVE as METRICS
from dartsim.real.osworld.scorer import HOW
from dartsim.real.osworld.steps import check_steps


class By(StrEnum):
    """Who can score a task."""

    BUILTIN = "builtin"
    DESKTOP_ENV = "desktop-env"
    NOBODY = "unsupported"


@dataclass(frozen=True, slots=True)
class EvaluatorPart:
    """A getter or a metric of a task that is not built in."""

    kind: str
    name: str
    options: frozenset[str] = frozenset()

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


@dataclass(frozen=True, slots=True)
class CoverageVerdict:
    """What is known of one task.

    Attributes:
        task: The task.
        by: Who can score it.
        why: What of it is not built in, or not supported: words of the task file, or a message.
    """

    task: Task
    by: By
    why: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Coverage:
    """The verdicts of many tasks."""

    verdicts: tuple[CoverageVerdict, ...]

    def counts(self, domain: str | None = None) -> dict[By, int]:
        """Return how many tasks each can score, of one domain or of all."""
        found = Counter(each.by for each in self.verdicts if domain in (None, each.task.domain))
        return {by: found[by] for by in By}

    def domains(self) -> list[str]:
        """Return the domains, sorted."""
        return sorted({each.task.domain for each in self.verdicts})

    def reasons(self, by: By) -> dict[str, int]:
        """Return what stands in the way, the most frequent first, with the number of tasks."""
        return dict(Counter(why for each in self.verdicts if each.by is by for why in each.why).most_common())


def coverage(tasks: Iterable[Task], facts: EvaluatorFacts | None = None) -> Coverage:
    """Return who can score which task.

    Args:
        tasks: From task files.
        facts: What the evaluator process can do; by default all of ``desktop-env`` 1.0.2 is taken to be there.
    """
    return Coverage(tuple(_verdict(task, facts) for task in tasks))


def check_task(task: Task, *, evaluator: bool = False, facts: EvaluatorFacts | None = None) -> None:
    """Refuse a task that cannot be set up or scored, before any work starts.

    Args:
        task: From a task file.
        evaluator: Whether the ``desktop-env`` evaluator is configured.
        facts: What it can do; by default all of ``desktop-env`` 1.0.2.

    Raises:
        TaskFileError: If the task names what nobody knows or we do not support, or a file outside its folder.
        ConfigError: If it needs the evaluator, and none is configured.
    """
    verdict = _verdict(task, facts)
    if verdict.by is By.NOBODY:
        raise TaskFileError(f"task {task.id} ({task.domain}): {'; '.join(verdict.why)}")
    if verdict.by is By.DESKTOP_ENV and not evaluator:
        raise ConfigError(f"task {task.id} ({task.domain}) needs {', '.join(verdict.why)} of desktop-env; {HOW}")


def _verdict(task: Task, facts: EvaluatorFacts | None) -> CoverageVerdict:
    try:
        outside = _check(task)
    except TaskFileError as exc:
        return CoverageVerdict(task, By.NOBODY, (str(exc),))
    lacking = tuple(f"{part}: {lacks}" for part in outside if (lacks := _lacks(part, facts)))
    if lacking:
        return CoverageVerdict(task, By.NOBODY, lacking)
    return CoverageVerdict(task, By.DESKTOP_ENV if outside else By.BUILTIN, tuple(map(str, outside)))


def _check(task: Task) -> list[EvaluatorPart]:
    """Return what of a task is not built in; raise if something is unknown or unsupported."""
    if "evaluator" not in task.spec:
        raise TaskFileError("it has no evaluator")
    evaluator: Mapping[str, Any] = task.spec["evaluator"]
    check_steps(task.spec.get("config") or ())
    check_steps(evaluator.get("postconfig") or ())
    if is_infeasible(task):
        return []
    outside: list[EvaluatorPart] = []
    for getter in [*_many(evaluator.get("result")), *_many(evaluator.get("expected"))]:
        if getter:
            check_getter(getter)
            if getter["type"] not in GETTERS:
                outside.append(EvaluatorPart("getter", getter["type"]))
    for name, options in _metrics(evaluator):
        if name not in KNOWN_METRICS or name == "infeasible":
            raise TaskFileError(f"the metric {name!r} is unknown, or is not one of several")
        metric = METRICS.get(name)
        if metric is None or not metric.takes(options):
            outside.append(EvaluatorPart("metric", name, frozenset(options)))
    return list(dict.fromkeys(outside))


def _metrics(evaluator: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    names = _many(evaluator["func"])
    options = evaluator.get("options")
    each = options if isinstance(options, list) else [options] * len(names)
    for name, option in zip(names, each, strict=True):
        yield name, option or {}


def _lacks(part: EvaluatorPart, facts: EvaluatorFacts | None) -> str:
    """Say why ``desktop-env`` cannot do it; nothing if it can."""
    if facts is not None:
        return facts.no_getter(part.name) if part.kind == "getter" else facts.no_metric(part.name, part.options)
    if part.name not in (known.METRICS if part.kind == "metric" else known.GETTERS):
        return "desktop-env 1.0.2 does not have it"
    later = sorted(part.options & known.LATER_OPTIONS.get(part.name, frozenset()))
    return f"desktop-env 1.0.2 does not know its option {', '.join(later)}" if later else ""


def _many(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
