"""``OpenGroups``: the groups being collected, and the choice of the group for the next attempt."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from dartsim.core.errors import InvariantViolated, PlugInFailed
from dartsim.core.types import Attempt, Task, Trajectory, Version
from dartsim.curation.rules.attempts import AttemptsRule
from dartsim.curation.rules.batches import RunningGroup
from dartsim.curation.rules.task_order import TaskOrder
from dartsim.curation.rules.turn_limit import TurnLimitRule

_MIX = 0x9E3779B97F4A7C15


@dataclass(slots=True)
class OpenGroup:
    """A group that is being collected."""

    id: int
    task: Task
    size: int
    admitted: int = 0
    finished: int = 0
    replaced: int = 0
    usable: list[Trajectory] = field(default_factory=list)
    turn_limit: int = 0
    again: list[tuple[int, int]] = field(default_factory=list)
    repeated: int = 0

    @property
    def planned(self) -> int:
        """Number of admitted attempts it will have when complete."""
        return self.size + self.replaced

    @property
    def lacking(self) -> bool:
        """Whether some of its attempts have not started."""
        return self.admitted < self.planned

    @property
    def complete(self) -> bool:
        return self.finished == self.planned


COUNTS = ("id", "size", "admitted", "finished", "replaced", "turn_limit", "repeated")
"""Fields of an open group that are numbers."""


class OpenGroups:
    """The groups being collected.

    Attempts that an open group lacks come first; only then does another group begin, with a task to offer again or the
    next one of the order.
    """

    def __init__(self, order: TaskOrder, attempts: AttemptsRule, turn_limits: TurnLimitRule, *, seed: int = 0) -> None:
        self._order = order
        self._attempts = attempts
        self._turn_limits = turn_limits
        self._seed = seed
        self.groups: dict[int, OpenGroup] = {}
        self._newest: OpenGroup | None = None
        self._replace: deque[OpenGroup] = deque()
        """Older groups that lack attempts again, one entry per attempt."""
        self._again: deque[Task] = deque()
        """Tasks to offer again, before those of the order."""
        self._begun = 0
        self._drawn = 0
        """Number of attempts with a new seed: all but those repeated after a crash."""

    @property
    def lacking(self) -> bool:
        return bool(self._replace) or (self._newest is not None and self._newest.lacking)

    def next_attempt(self, number: int, version: Version) -> Attempt:
        """Return an attempt for a group that lacks one, or the first of a new group.

        Args:
            number: Id of the attempt.
            version: Newest published version.
        """
        group = self._next_group()
        if group.again:
            index, seed = group.again.pop(0)
            group.repeated += 1
        else:
            index = group.admitted - group.repeated
            seed = (self._seed * _MIX + self._drawn * 0xBF58476D1CE4E5B9) % 2**63
            self._drawn += 1
        group.admitted += 1
        return Attempt(
            id=number,
            task=group.task,
            group=group.id,
            index=index,
            seed=seed,
            turn_limit=group.turn_limit,
            version=version,
        )

    def _next_group(self) -> OpenGroup:
        if self._replace:
            return self._replace.popleft()
        if self._newest is not None and self._newest.lacking:
            return self._newest
        task = self._again.popleft() if self._again else self._next_task()
        attempts = _count(self._attempts, "attempts", self._attempts.attempts(task.id))
        turn_limit = _count(self._turn_limits, "limit", self._turn_limits.limit(task.id))
        group = self._newest = OpenGroup(self._begun, task, attempts, turn_limit=turn_limit)
        self._begun += 1
        self.groups[group.id] = group
        return group

    def _next_task(self) -> Task:
        task: Any = self._order.next()
        if not isinstance(task, Task):
            raise PlugInFailed(f"{type(self._order).__name__}.next returned {task!a:.200}, wanted a task")
        return task

    def replace(self, group: OpenGroup) -> None:
        group.replaced += 1
        if group is not self._newest:
            self._replace.append(group)

    def remove(self, group: OpenGroup) -> None:
        del self.groups[group.id]
        if group is self._newest:
            self._newest = None
        if group in self._replace:
            self._replace = deque(other for other in self._replace if other is not group)

    def offer_again(self, task: Task) -> None:
        """Offer a task once more, before those of the order."""
        self._again.append(task)

    def running(self, attempts: Iterable[Attempt], version: Version) -> Iterator[RunningGroup]:
        """Yield the open groups, for rules that consider them."""
        versions = {group.id: [t.attempt.version for t in group.usable] for group in self.groups.values()}
        for attempt in attempts:
            if attempt.group in versions:
                versions[attempt.group].append(attempt.version)
        for group, of_group in versions.items():
            yield RunningGroup(group, min(of_group, default=version))

    def check(self, running: Counter[int]) -> None:
        """Check that no group waits forever.

        Raises:
            InvariantViolated: If a group lacks an attempt that will never start.
        """
        for group in self.groups.values():
            if group.admitted - group.finished != running[group.id]:
                raise InvariantViolated(
                    f"group {group.id} waits for {group.admitted - group.finished} attempts, and {running[group.id]} "
                    "of it run: it would never be complete"
                )
            lacking = group.planned - group.admitted
            if group is not self._newest and lacking != self._replace.count(group):
                raise InvariantViolated(
                    f"group {group.id} lacks {lacking} attempts and {self._replace.count(group)} of them are to be "
                    "started: it would never be complete"
                )

    def state(self) -> dict[str, Any]:
        return {
            "drawn": self._drawn,
            "groups": self._begun,
            "newest": None if self._newest is None else self._newest.id,
            "replace": [group.id for group in self._replace],
            "open": [save_open(group) for group in self.groups.values()],
            "again": [task.id for task in self._again],
            "order": self._order.state(),
        }

    def restore(
        self, saved: Mapping[str, Any], tasks: Mapping[str, Task], trajectories: Mapping[int, Trajectory]
    ) -> None:
        self._order.restore(saved["order"])
        self._drawn, self._begun = saved["drawn"], saved["groups"]
        self._again = deque(tasks[name] for name in saved["again"] if name in tasks)
        self.groups = {group["id"]: read_open(group, tasks[group["task"]], trajectories) for group in saved["open"]}
        self._newest = self.groups.get(saved["newest"])
        self._replace = deque(self.groups[number] for number in saved["replace"] if number in self.groups)


def save_open(group: OpenGroup) -> dict[str, Any]:
    """Return an open group as a mapping."""
    return {
        **{name: getattr(group, name) for name in COUNTS},
        "task": group.task.id,
        "usable": [trajectory.attempt.id for trajectory in group.usable],
        "again": group.again,
    }


def read_open(saved: Mapping[str, Any], task: Task, trajectories: Mapping[int, Trajectory]) -> OpenGroup:
    """Return the group that ``save_open`` saved, with its readable trajectories."""
    return OpenGroup(
        **{name: saved[name] for name in COUNTS},
        task=task,
        usable=[trajectories[number] for number in saved["usable"] if number in trajectories],
        again=[(index, seed) for index, seed in saved["again"]],
    )


def _count(rule: object, method: str, value: Any) -> int:
    """Return a count chosen by a rule.

    Raises:
        PlugInFailed: If it is not an integer of at least 1.
    """
    if not isinstance(value, int) or value < 1:
        raise PlugInFailed(f"{type(rule).__name__}.{method} returned {value!a:.200}, wanted a number of at least 1")
    return value
