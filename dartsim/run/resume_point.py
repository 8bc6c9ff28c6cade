"""``ResumePoint``: where an interrupted run continues.

run directory, store --recover--> ResumePoint --System--> scheduler and measurements as at the last transaction
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dartsim.core.ports import Store
from dartsim.core.types import Recovered, Restored, Task
from dartsim.curation.manager import RECORDER, SCHEDULER
from dartsim.observe.metrics import read_snapshots, read_updates
from dartsim.observe.recorder import Recorder
from dartsim.observe.recorder_state import restore_state, undo_update
from dartsim.observe.recording import SEGMENTS, read_segments, with_open_stays
from dartsim.observe.records import Segment, Snapshot, UpdateRecord
from dartsim.observe.rundir import METRICS, SNAPSHOTS

if TYPE_CHECKING:
    from dartsim.curation import DataManager

logger = logging.getLogger(__name__)

LIVES, FIRST, SETTINGS = "lives", "first_success_rate", "config"
"""Names of documents: how each life of the run resumed, the success rate of its first weights, its configuration."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumePoint:
    """Where a run continues."""

    life: int
    seconds: float
    recovered: Recovered
    scheduler: Mapping[str, Any]
    recorder: Mapping[str, Any]
    restored: Restored
    snapshots: Sequence[Snapshot]
    updates: Sequence[UpdateRecord]
    segments: Sequence[Sequence[Segment]] = ()
    lives: Sequence[Mapping[str, Any]] = field(default=())
    first: float | None = None
    longer: bool = False

    def restore(self, data: DataManager, recorder: Recorder, tasks: Sequence[Task]) -> None:
        restore_state(recorder, self.recorder, snapshots=self.snapshots, updates=self.updates, segments=self.segments)
        trajectories, untrained = self.restored.trajectories, self.restored.untrained
        for update in self.recovered.undone:
            members = [number for number, last in untrained.items() if last == update]
            again = [trajectories[number] for number in members if number in trajectories]
            undo_update(recorder, again, update - 1)
            recorder.counts["trained_trajectories"] -= len(members) - len(again)  # they are counted as lost
        if self.scheduler["leased"]:
            recorder.counts["failed_updates"] += 1
        recorder.counts["admitted_turns"] -= sum(
            len(trajectories[number].turns)
            for group in self.scheduler["leased"]
            for number in group["attempts"]
            if number in trajectories and trajectories[number].attempt.group == group["id"]
        )
        data.restore(self.scheduler, self.restored, {task.id: task for task in tasks})

    def as_json(self) -> dict[str, Any]:
        """Return the facts about this life for the run's summary."""
        return {
            "from_hours": self.seconds / 3600.0,
            "from_update": self.recovered.update,
            "interrupted_attempts": len(self.scheduler["running"]),
            "returned": len(self._returned()),
            "undone_updates": len(self.recovered.undone),
            "torn_checkpoints": list(self.recovered.torn),
        }

    def _returned(self) -> set[int]:
        """Return the attempts whose lease ended with the crash.

        The documents, not the store, say which were leased: the store may already have released them for a life that
        was killed before it continued.
        """
        trajectories, live = self.restored.trajectories, self.restored.live
        leased = {
            number
            for group in self.scheduler["leased"]
            for number in group["attempts"]
            if number in live and (number not in trajectories or trajectories[number].attempt.group == group["id"])
        }
        return leased | self.restored.untrained.keys()


def read_resume_point(store: Store, folder: Path | None) -> ResumePoint | None:
    """Recover a store, and return where its run continues; None if it had not started.

    Raises:
        StoreFault: If the database does not answer.
    """
    recovered = store.recover()
    for why in recovered.torn:
        logger.warning("a checkpoint cannot be used, and the one before it is taken: %s", why)
    documents = store.documents()
    if SCHEDULER not in documents:
        return None
    recorder = documents[RECORDER]
    # The store undoes updates immediately, but the documents are written only when the run continues, minutes later,
    # and it may be killed in between. So the updates to undo are those that the documents have and the weights lack.
    done = documents[SCHEDULER]["update"]
    recovered = replace(recovered, undone=tuple(range(recovered.update + 1, done + 1)))
    return ResumePoint(
        life=len(documents.get(LIVES, ())) + 2,
        seconds=recorder["time"],
        recovered=recovered,
        scheduler=documents[SCHEDULER],
        recorder=recorder,
        restored=store.restore(recovered, _members(documents[SCHEDULER])),
        snapshots=() if folder is None else read_snapshots(folder / SNAPSHOTS, until=recorder["time"]),
        updates=() if folder is None else read_updates(folder / METRICS, last=recovered.update),
        segments=() if folder is None else _segments(folder, recorder),
        lives=documents.get(LIVES, ()),
        first=documents.get(FIRST),
    )


def _segments(folder: Path, recorder: Mapping[str, Any]) -> list[list[Segment]]:
    present = [{member: (state, None) for member, state in enumerate(states)} for states in recorder["states"]]
    found = read_segments(folder / SEGMENTS, until=recorder["time"])
    return [own.tolist() for own in with_open_stays(found, present, recorder["time"])]


def _members(scheduler: Mapping[str, Any]) -> set[int]:
    """Return the attempts of all groups of the scheduler."""
    complete = [group["attempts"] for group in (*scheduler["leased"], *scheduler["eligible"])]
    begun = [group["usable"] for group in scheduler["open"]]
    return {number for attempts in (*complete, *begun) for number in attempts}
