"""The scheduler as JSON: which groups there are, which attempts run, and the state of every rule; and back again.

    DataManager.documents --transaction--> store --crash--> Restored --> DataManager.restore

What is stored of a group are numbers of attempts. Their trajectories come from the store's rows, which were written in
the same transaction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dartsim.core.types import Attempt, Drop, Group, Restored, Task, Trajectory
from dartsim.curation.attempt_ledger import AttemptLedger
from dartsim.curation.group_grader import GroupGrader
from dartsim.curation.open_groups import OpenGroups
from dartsim.curation.ready_groups import ReadyGroups

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
    return [Group(number, group[0].attempt.task, tuple(group), ready) for number, group in sorted(members.items())]


def restore_counts(ledger: AttemptLedger, saved: Mapping[str, Any], found: Restored) -> None:
    """Count again what was counted; what no checkpoint contains is not trained any more."""
    ledger.admitted, ledger.dropped = saved["admitted"], saved["dropped"]
    ledger.trained = ledger.published = saved["trained"] - len(found.untrained)
    ledger.version = ledger.trainer_version = found.version


def restore_groups(
    open_groups: OpenGroups,
    ready: ReadyGroups,
    saved: Mapping[str, Any],
    found: Restored,
    tasks: Mapping[str, Task],
    *,
    now: float,
) -> None:
    """Take up the groups, as far as the store gives their trajectories back.

    Args:
        open_groups: Those that are being collected.
        ready: Those that may be trained on: what no checkpoint contains, a batch that was leased, and those that were.
        saved: What ``DataManager.documents`` returned under ``SCHEDULER``.
        found: What the store gave back.
        tasks: The run's tasks, by id.
        now: Loop time, seconds.
    """
    known = found.trajectories
    open_groups.restore(saved, tasks, known)
    again = [known[number] for number in found.untrained if number in known]
    ready.groups = [
        *rebuilt(again, now),
        *(read_group(group, tasks[group["task"]], known) for group in (*saved["leased"], *saved["eligible"])),
    ]


def drop_lost(ledger: AttemptLedger, open_groups: OpenGroups, ready: ReadyGroups, found: Restored) -> None:
    """Drop what the store has and cannot give back, or of which no document knows."""
    here = {t.attempt.id for group in open_groups.groups.values() for t in group.usable}
    here |= {t.attempt.id for group in ready.groups for t in group.trajectories}
    ledger.lose(sorted(found.live - here))


def drop_undone(ledger: AttemptLedger, grader: GroupGrader, open_groups: OpenGroups, ready: ReadyGroups) -> None:
    """Drop what was made by weights that are gone, and grade the groups again that lack something."""
    complete, ready.groups = ready.groups, []
    for group in complete:
        undone = tuple(t for t in group.own if t.newest_version > ledger.version)
        ledger.drop(undone, Drop.UNDONE)
        left = tuple(t for t in group.trajectories if t not in undone)
        reason = grader.reason_to_drop(left) if group.own else Drop.LOST
        kept = Group(group.id, group.task, left, group.ready)
        if reason is None and kept.own:
            ready.groups.append(kept)
        else:
            ledger.drop(kept.own, reason or Drop.UNDONE)
    for opened in open_groups.groups.values():
        gone = tuple(t for t in opened.usable if t.newest_version > ledger.version)
        ledger.drop(gone, Drop.UNDONE)
        opened.usable = [t for t in opened.usable if t not in gone]
