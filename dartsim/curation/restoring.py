"""What a data manager takes up of a run that ended anyhow: its counts and groups, and what is lost of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dartsim.core.types import Drop, Group, Restored, Task
from dartsim.curation.attempt_ledger import AttemptLedger
from dartsim.curation.group_grader import GroupGrader
from dartsim.curation.open_groups import OpenGroups
from dartsim.curation.ready_groups import ReadyGroups
from dartsim.curation.scheduler_state import read_group, rebuilt


def restore_counts(books: AttemptLedger, saved: Mapping[str, Any], found: Restored) -> None:
    """Count again what was counted; what no checkpoint contains is not trained any more."""
    books.admitted, books.dropped = saved["admitted"], saved["dropped"]
    books.trained = books.published = saved["trained"] - len(found.untrained)
    books.version = books.trainer_version = found.version


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


def drop_lost(books: AttemptLedger, open_groups: OpenGroups, ready: ReadyGroups, found: Restored) -> None:
    """Drop what the store has and cannot give back, or of which no document knows."""
    here = {t.attempt.id for group in open_groups.groups.values() for t in group.usable}
    here |= {t.attempt.id for group in ready.groups for t in group.trajectories}
    books.lose(sorted(found.live - here))


def drop_undone(books: AttemptLedger, judge: GroupGrader, open_groups: OpenGroups, ready: ReadyGroups) -> None:
    """Drop what was made by weights that are gone, and judge the groups again that lack something."""
    complete, ready.groups = ready.groups, []
    for group in complete:
        undone = tuple(t for t in group.own if t.newest_version > books.version)
        books.drop(undone, Drop.UNDONE)
        left = tuple(t for t in group.trajectories if t not in undone)
        reason = judge.reason_to_drop(left) if group.own else Drop.LOST
        kept = Group(group.id, group.task, left, group.ready)
        if reason is None and kept.own:
            ready.groups.append(kept)
        else:
            books.drop(kept.own, reason or Drop.UNDONE)
    for opened in open_groups.groups.values():
        gone = tuple(t for t in opened.usable if t.newest_version > books.version)
        books.drop(gone, Drop.UNDONE)
        opened.usable = [t for t in opened.usable if t not in gone]
