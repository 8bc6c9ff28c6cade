"""Which tasks are for evaluation only, and which are left out of training for a while."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Protocol

from dartsim.core.types import Task


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """Tasks to train on and tasks held out, each in the order in which they were given."""

    train: tuple[Task, ...]
    held_out: tuple[Task, ...]


def position(task_id: str, seed: int) -> float:
    """Return where a task stands in [0, 1), by a hash of its id: the same in every process and task list."""
    digest = blake2b(f"{seed}:{task_id}".encode(), digest_size=8).digest()
    return (int.from_bytes(digest, "big") >> 11) / 2**53


def split_tasks(tasks: Sequence[Task], *, share: float, seed: int = 0) -> Split:
    """Return the tasks of which about ``share`` is held out, whatever other tasks there are.

    A task is held out if its position is below ``share``. Only if that leaves one side empty does the list
    matter: the task of lowest position is then held out, or the one of highest position trained on.

    Args:
        tasks: The task list; two at least if ``share`` is not 0.
        share: Of tasks to hold out, in [0, 1); at 0 none is.
        seed: Another split.

    Raises:
        ValueError: If ``share`` is out of range or there are too few tasks.
    """
    if not 0.0 <= share < 1.0:
        raise ValueError(f"share must be in [0, 1), got {share}")
    if share == 0.0:
        return Split(train=tuple(tasks), held_out=())
    if len({task.id for task in tasks}) < 2:
        raise ValueError(f"holding out {share} of the tasks needs two tasks at least, got {len(tasks)}")
    positions = {task.id: position(task.id, seed) for task in tasks}
    out = {name for name, at in positions.items() if at < share}
    if not out:
        out = {min(positions, key=lambda name: (positions[name], name))}
    elif len(out) == len(positions):
        out.remove(max(positions, key=lambda name: (positions[name], name)))
    return Split(
        train=tuple(task for task in tasks if task.id not in out),
        held_out=tuple(task for task in tasks if task.id in out),
    )


class TaskFilter:
    """Leaves out tasks whose mean reward over their last attempts is too high or too low to teach anything.

    A task is judged once ``window`` rewards are known, and offered again after it was skipped
    ``revisit_after`` times, with a clean slate: policies change.

    Args:
        window: Newest rewards of a task that count.
        max_mean: Mean above which a task is too easy; 1 never.
        min_mean: Mean below which a task is too hard; 0 never.
        revisit_after: Skips after which a task is offered again; None: never again.
    """

    def __init__(
        self, *, window: int = 16, max_mean: float = 1.0, min_mean: float = 0.0, revisit_after: int | None = 4
    ) -> None:
        if window < 1 or not 0.0 <= min_mean <= max_mean <= 1.0 or (revisit_after or 1) < 1:
            raise ValueError(
                "wanted window >= 1, 0 <= min_mean <= max_mean <= 1 and revisit_after >= 1 or None, got "
                f"{window}, {min_mean}, {max_mean}, {revisit_after}"
            )
        self._window = window
        self._max_mean = max_mean
        self._min_mean = min_mean
        self._revisit_after = revisit_after
        self._rewards: dict[str, deque[float]] = {}
        self._skipped: Counter[str] = Counter()
        self.counts: Counter[str] = Counter()
        """Skips by reason (``too_easy``, ``too_hard``), and ``revisited``."""

    def learn(self, task_id: str, rewards: Sequence[float]) -> None:
        """Remember the newest rewards."""
        self._rewards.setdefault(task_id, deque(maxlen=self._window)).extend(rewards)

    def reason_to_skip(self, task_id: str) -> str | None:
        """Return ``too_easy`` or ``too_hard``, or None if the task may be offered. Changes nothing."""
        rewards = self._rewards.get(task_id)
        if rewards is None or len(rewards) < self._window:
            return None
        mean = sum(rewards) / len(rewards)
        if mean > self._max_mean:
            return "too_easy"
        return "too_hard" if mean < self._min_mean else None

    def offer(self, task_id: str) -> bool:
        """Return whether a task whose turn it is may be offered now, and count why not."""
        reason = self.reason_to_skip(task_id)
        if reason is None:
            return True
        if self._revisit_after is not None and self._skipped[task_id] >= self._revisit_after:
            del self._skipped[task_id], self._rewards[task_id]
            self.counts["revisited"] += 1
            return True
        self._skipped[task_id] += 1
        self.counts[reason] += 1
        return False

    def state(self) -> dict[str, Any]:
        """Return what it knows, as JSON can say it."""
        rewards = {task: list(newest) for task, newest in self._rewards.items()}
        return {"rewards": rewards, "skipped": dict(self._skipped), "counts": dict(self.counts)}

    def restore(self, state: dict[str, Any]) -> None:
        """Take up what ``state`` returned."""
        self._rewards = {task: deque(newest, maxlen=self._window) for task, newest in state["rewards"].items()}
        self._skipped = Counter(state["skipped"])
        self.counts = Counter(state["counts"])


class Order(Protocol):
    """An endless order of tasks."""

    def next(self) -> Task:
        """Return the next task."""
        ...

    def state(self) -> Any:
        """Return where it is, as JSON can say it."""
        ...

    def restore(self, state: Any) -> None:
        """Take up what ``state`` returned."""
        ...


class FilteredOrder:
    """A task order without the tasks that a filter leaves out at the time.

    If the filter leaves out every task, the next one is offered all the same: a run never waits for a task.

    Args:
        order: Which task is next.
        task_filter: Which are left out.
        num_tasks: Tasks of the order, after that many skips in a row none is left.
    """

    def __init__(self, order: Order, task_filter: TaskFilter, *, num_tasks: int) -> None:
        self._order = order
        self._filter = task_filter
        self._num_tasks = num_tasks

    def next(self) -> Task:
        """Return the next task that may be offered."""
        for _ in range(self._num_tasks):
            task = self._order.next()
            if self._filter.offer(task.id):
                return task
        self._filter.counts["none_left"] += 1
        return self._order.next()

    def state(self) -> Any:
        """Return where the order behind it is; the filter has a state of its own."""
        return self._order.state()

    def restore(self, state: Any) -> None:
        """Take up what ``state`` returned."""
        self._order.restore(state)
