"""Which tasks can be set up, run and scored here, and why the others cannot."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from dartsim.core.errors import ConfigError, TaskFileError
from dartsim.core.types import Task
from dartsim.envs.base import is_infeasible, task_getters
from dartsim.real.osworld.errors import FetchFailed
from dartsim.real.osworld.fetch import local_file, local_files
from dartsim.real.osworld.getters import GETTERS, check_getter
from dartsim.real.osworld.needs import DesktopOffer, Need, internet_needs, missing_needs
from dartsim.real.osworld.steps import check_steps
from dartsim.real.scoring.sandbox import ScorerFacts
from dartsim.real.scoring.sandboxed.own_functions import METRICS, OPTIONS

IGNORED_OPTIONS: Mapping[str, frozenset[str]] = {
    "compare_pptx_files": frozenset({"examine_shape_lenient_height"}),
    "compare_references": frozenset({"content_only"}),
}
"""Options in OSWorld's task files that no version of OSWorld reads."""

OWN = ScorerFacts("our own metrics", metrics=dict.fromkeys(METRICS, ()), options=OPTIONS)


class ScoredBy(StrEnum):
    """Who can score a task."""

    BUILTIN = "builtin"
    DESKTOP_ENV = "desktop-env"
    UNSUPPORTED = "unsupported"


class TaskState(StrEnum):
    """Whether a task can run on the desktops in use."""

    RUNS = "runs"
    INTERNET = "internet"
    MISSING = "missing"
    UNSUPPORTED = "unsupported"


@dataclass(frozen=True, slots=True)
class EvaluatorPart:
    """A getter or a metric of a task that needs ``desktop-env``."""

    kind: str
    name: str
    options: frozenset[str] = frozenset()

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


@dataclass(frozen=True, slots=True)
class CoverageVerdict:
    """Whether one task can run, and by what it is scored."""

    task: Task
    by: ScoredBy
    why: tuple[str, ...] = ()
    missing: tuple[Need, ...] = ()
    internet: tuple[Need, ...] = ()

    @property
    def name(self) -> str:
        """The task as ``domain/id``."""
        return f"{self.task.domain}/{self.task.id}"

    @property
    def state(self) -> TaskState:
        if self.missing:
            return TaskState.MISSING
        if self.by is ScoredBy.UNSUPPORTED:
            return TaskState.UNSUPPORTED
        return TaskState.INTERNET if self.internet else TaskState.RUNS

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why the task does not simply run."""
        unsupported = self.why if self.by is ScoredBy.UNSUPPORTED and not self.missing else ()
        return (*map(str, self.missing), *unsupported, *map(str, self.internet))


@dataclass(frozen=True, slots=True)
class Coverage:
    """The verdicts of many tasks on desktops that have the internet, or have not."""

    verdicts: tuple[CoverageVerdict, ...]
    internet: bool = True

    def counts(self, domain: str | None = None) -> dict[ScoredBy, int]:
        """Return how many tasks each can score, of one domain or of all."""
        counted = Counter(verdict.by for verdict in self.verdicts if domain in (None, verdict.task.domain))
        return {by: counted[by] for by in ScoredBy}

    def states(self, domain: str | None = None) -> dict[TaskState, int]:
        """Return how many tasks are in which state, of one domain or of all."""
        counted = Counter(verdict.state for verdict in self.verdicts if domain in (None, verdict.task.domain))
        return {state: counted[state] for state in TaskState}

    def domains(self) -> list[str]:
        return sorted({verdict.task.domain for verdict in self.verdicts})

    def problems(self) -> dict[str, str]:
        """Return why tasks cannot run here, by ``domain/id``."""
        fine = {TaskState.RUNS, TaskState.INTERNET} if self.internet else {TaskState.RUNS}
        return {verdict.name: "; ".join(verdict.reasons) for verdict in self.verdicts if verdict.state not in fine}

    def reasons(self, by: ScoredBy) -> dict[str, int]:
        """Return the obstacles to scoring, the most frequent first, with the number of tasks."""
        reasons = (why for verdict in self.verdicts if verdict.by is by for why in verdict.why)
        return dict(Counter(reasons).most_common())

    def needs(self) -> dict[str, int]:
        """Return what tasks need and may lack, the most frequent first, with the number of tasks."""
        needs: Counter[str] = Counter()
        for verdict in self.verdicts:
            needs.update({str(need) for need in verdict.missing} | {need.what for need in verdict.internet})
        return dict(needs.most_common())


def coverage(
    tasks: Iterable[Task],
    facts: ScorerFacts | None = None,
    *,
    folder: Path | None = None,
    offer: DesktopOffer = DesktopOffer(),  # noqa: B008 - frozen
) -> Coverage:
    """Return which tasks run on desktops that offer this, and who can score them.

    ``folder`` contains the files that tasks upload.
    """
    verdicts = (
        replace(_verdict(task, facts, folder), missing=missing_needs(task, offer), internet=internet_needs(task, offer))
        for task in tasks
    )
    return Coverage(tuple(verdicts), offer.internet)


def check_task(task: Task, facts: ScorerFacts | None = None) -> None:
    """Refuse a task that cannot be set up or scored, before any work starts.

    Raises:
        TaskFileError: If the task names something unknown or unsupported, or a file outside its folder.
        ConfigError: If it needs ``desktop-env``, but only our own metrics are available.
    """
    verdict = _verdict(task, facts)
    if verdict.by is ScoredBy.UNSUPPORTED:
        raise TaskFileError(f"task {task.id} ({task.domain}): {'; '.join(verdict.why)}")
    if verdict.by is ScoredBy.DESKTOP_ENV and facts is None:
        raise ConfigError(
            f"task {task.id} ({task.domain}) needs {', '.join(verdict.why)} of desktop-env; install it with "
            "`dartsim desktop evaluator`"
        )


def needs_desktop_env(task: Task) -> bool:
    """Whether our own metrics and the driver's getters are not enough for a task."""
    return _verdict(task, None).by is ScoredBy.DESKTOP_ENV


def _verdict(task: Task, facts: ScorerFacts | None, folder: Path | None = None) -> CoverageVerdict:
    try:
        outside = _check(task)
        if folder is not None:
            for name in local_files(task):
                local_file(name, [folder])
    except (FetchFailed, TaskFileError) as exc:
        return CoverageVerdict(task, ScoredBy.UNSUPPORTED, (str(exc),))
    lacking = () if facts is None else tuple(f"{part}: {lacks}" for part in outside if (lacks := _lacks(part, facts)))
    if lacking:
        return CoverageVerdict(task, ScoredBy.UNSUPPORTED, lacking)
    return CoverageVerdict(task, ScoredBy.DESKTOP_ENV if outside else ScoredBy.BUILTIN, tuple(map(str, outside)))


def _check(task: Task) -> list[EvaluatorPart]:
    """Return the parts of a task that need ``desktop-env``; raise if something is unsupported."""
    if "evaluator" not in task.spec:
        raise TaskFileError("it has no evaluator")
    evaluator: Mapping[str, Any] = task.spec["evaluator"]
    check_steps(task.spec.get("config") or ())
    check_steps(evaluator.get("postconfig") or ())
    if is_infeasible(task):
        return []
    outside: list[EvaluatorPart] = []
    for getter in task_getters(task):
        check_getter(getter)
        if getter["type"] not in GETTERS:
            outside.append(EvaluatorPart("getter", getter["type"]))
    for name, options in _metrics(evaluator):
        if name == "infeasible":
            raise TaskFileError("the metric 'infeasible' is not one of several")
        if OWN.why_no_metric(name, options):
            outside.append(EvaluatorPart("metric", name, frozenset(options)))
    return list(dict.fromkeys(outside))


def _metrics(evaluator: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    names = _many(evaluator["func"])
    options = evaluator.get("options")
    each = options if isinstance(options, list) else [options] * len(names)
    for name, option in zip(names, each, strict=True):
        yield name, option or {}


def _lacks(part: EvaluatorPart, facts: ScorerFacts) -> str:
    """Return why ``desktop-env`` cannot do it; empty if it can."""
    if part.kind == "getter":
        return facts.why_no_getter(part.name)
    return facts.why_no_metric(part.name, part.options - IGNORED_OPTIONS.get(part.name, frozenset()))


def _many(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
