"""The scheduler as JSON: which groups there are, who runs, and where every rule stands; and back again.

    DataManager.documents --transaction--> store --crash--> SavedScheduler, Restored --> DataManager.restore

What is stored of a group are numbers of attempts. Their trajectories come from the store's rows, which were written in
the same transaction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dartsim.core.types import Attempt, Group, Task, Trajectory
from dartsim.curation.groups import OpenGroup

SCHEDULER, RECORDER = "scheduler", "recorder"
"""Names of the documents of a run."""


def save_attempt(attempt: Attempt) -> list[Any]:
    """Return a running attempt as a list."""
    numbers = [attempt.id, attempt.group, attempt.index, attempt.seed, attempt.turn_limit, attempt.version]
    return [attempt.task.id, *numbers]


def read_attempt(saved: Sequence[Any], tasks: Mapping[str, Task]) -> Attempt:
    """Return the attempt of which ``save_attempt`` made a list."""
    task, number, group, index, seed, turn_limit, version = saved
    return Attempt(number, tasks[task], group, index, seed, turn_limit, version)


def save_open(group: OpenGroup) -> dict[str, Any]:
    """Return a group that is being collected."""
    return {
        "id": group.id,
        "task": group.task.id,
        "size": group.size,
        "admitted": group.admitted,
        "finished": group.finished,
        "replaced": group.replaced,
        "turn_limit": group.turn_limit,
        "usable": [trajectory.attempt.id for trajectory in group.usable],
        "again": [list(place) for place in group.again],
        "repeated": group.repeated,
        "further": group.further,
    }


def read_open(saved: Mapping[str, Any], task: Task, found: Mapping[int, Trajectory]) -> OpenGroup:
    """Return the group of which ``save_open`` made a mapping, with those of its trajectories that are left."""
    return OpenGroup(
        id=saved["id"],
        task=task,
        size=saved["size"],
        admitted=saved["admitted"],
        finished=saved["finished"],
        replaced=saved["replaced"],
        turn_limit=saved["turn_limit"],
        usable=[found[number] for number in saved["usable"] if number in found],
        again=[(index, seed) for index, seed in saved["again"]],
        repeated=saved["repeated"],
        further=saved["further"],
    )


def save_group(group: Group) -> dict[str, Any]:
    """Return a group that is complete."""
    attempts = [trajectory.attempt.id for trajectory in group.trajectories]
    return {"id": group.id, "task": group.task.id, "ready": group.ready, "attempts": attempts}


def read_group(saved: Mapping[str, Any], task: Task, found: Mapping[int, Trajectory]) -> Group:
    """Return the group of which ``save_group`` made a mapping, with those of its trajectories that are left."""
    left = tuple(found[number] for number in saved["attempts"] if number in found)
    return Group(saved["id"], task, left, saved["ready"])


def rebuilt(trajectories: Sequence[Trajectory], ready: float) -> list[Group]:
    """Return the groups of trajectories of which no document knows the group any more, in their order."""
    members: dict[int, list[Trajectory]] = {}
    for trajectory in sorted(trajectories, key=lambda found: found.attempt.id):
        members.setdefault(trajectory.attempt.group, []).append(trajectory)
    return [Group(number, own[0].attempt.task, tuple(own), ready) for number, own in sorted(members.items())]
