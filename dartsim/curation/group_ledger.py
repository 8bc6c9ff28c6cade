"""``GroupLedger``: every group and attempt of a run, from its admission until it is trained or dropped.

               begin         complete      lease, release       train            publish
    (a task) ------> open -------------> ready <--------> leased -------> trained --------> published
                      | complete,          | drop_stale
                      v withdraw           v
                   dropped              dropped

An attempt of an open group runs, then it is collected or, if it is masked, dropped; it goes on with its group. Every
change is reported to the store and the recorder.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dartsim.core.errors import InvariantViolated, PlugInFailed
from dartsim.core.ports import Store
from dartsim.core.types import (
    Attempt,
    Batch,
    Drop,
    Group,
    Restored,
    Task,
    Trajectory,
    UpdateResult,
    Version,
)
from dartsim.curation.rules import Rules
from dartsim.curation.rules.admission import GroupCounts
from dartsim.curation.rules.batches import RunningGroup
from dartsim.observe import Recorder

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
    """Index and seed of attempts that a crash interrupted, to be repeated."""
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


_COUNTS = ("id", "size", "admitted", "finished", "replaced", "turn_limit", "repeated")
"""Fields of an open group that are numbers."""


class GroupLedger:
    """The state of every group and attempt.

    Invariants: every admitted attempt is in exactly one of running, collected in an open group, ready, leased, trained,
    dropped, and the counts add up (``check``); attempts that an open group lacks start before another group begins; no
    batch holds a trajectory of the run that breaks the staleness rule.

    Attributes:
        running: Running attempts by id.
        withdrawn: Why the groups of running attempts were withdrawn, by attempt.
        open: Groups with attempts that have not ended.
        ready: Complete groups that may be trained on, in the order of training.
        unpublished: Number of groups trained into weights that are not published.
        version: Newest published version.
        trainer_version: Newest version that the trainer made.
    """

    def __init__(self, rules: Rules, store: Store, recorder: Recorder, *, seed: int = 0) -> None:
        self._rules = rules
        self._store = store
        self._recorder = recorder
        self._seed = seed
        self.running: dict[int, Attempt] = {}
        self.withdrawn: dict[int, Drop] = {}
        self.open: dict[int, OpenGroup] = {}
        self.ready: list[Group] = []
        self.unpublished = 0
        self.admitted = 0
        self.leased = 0
        self.trained = 0
        self.dropped = 0
        self.version: Version = 0
        self.trainer_version: Version = 0
        self._newest: OpenGroup | None = None
        self._replace: deque[OpenGroup] = deque()
        """Older groups that lack attempts again, one entry per attempt."""
        self._again: deque[Task] = deque()
        """Tasks to offer again, before those of the order."""
        self._begun = 0
        self._drawn = 0
        """Number of attempts with a new seed: all but those repeated after a crash."""
        self._leases: dict[int, Batch] = {}
        """Batches by update."""
        self._num_fresh = 0
        """Number of groups at the head of ``ready`` that are known to be fresh enough for the trainer's weights."""

    @property
    def lacking(self) -> bool:
        """Whether an open group lacks an attempt."""
        return bool(self._replace) or (self._newest is not None and self._newest.lacking)

    @property
    def leased_groups(self) -> list[Group]:
        return [group for batch in self._leases.values() for group in batch.groups]

    def counts(self) -> GroupCounts:
        return GroupCounts(len(self.open), len(self.ready), len(self.leased_groups), self.unpublished)

    # -- attempts

    def begin(self) -> Attempt:
        """Start an attempt for a group that lacks one, or the first of a new group."""
        group = self._next_group()
        if group.again:
            index, seed = group.again.pop(0)
            group.repeated += 1
        else:
            index = group.admitted - group.repeated
            seed = (self._seed * _MIX + self._drawn * 0xBF58476D1CE4E5B9) % 2**63
            self._drawn += 1
        group.admitted += 1
        attempt = Attempt(
            id=self.admitted,
            task=group.task,
            group=group.id,
            index=index,
            seed=seed,
            turn_limit=group.turn_limit,
            version=self.version,
        )
        self.admitted += 1
        self.running[attempt.id] = attempt
        self._recorder.attempt_started()
        return attempt

    def _next_group(self) -> OpenGroup:
        if self._replace:
            return self._replace.popleft()
        if self._newest is not None and self._newest.lacking:
            return self._newest
        rules = self._rules
        task = self._again.popleft() if self._again else self._next_task()
        attempts = _count(rules.attempts, "attempts", rules.attempts.attempts(task.id))
        turn_limit = _count(rules.turn_limits, "limit", rules.turn_limits.limit(task.id))
        group = self._newest = OpenGroup(self._begun, task, attempts, turn_limit=turn_limit)
        self._begun += 1
        self.open[group.id] = group
        return group

    def _next_task(self) -> Task:
        task: Any = self._rules.order.next()
        if not isinstance(task, Task):
            raise PlugInFailed(f"{type(self._rules.order).__name__}.next returned {task!a:.200}, wanted a task")
        return task

    def end(self, trajectory: Trajectory) -> Drop | None:
        """Record the trajectory of a running attempt; return why it was withdrawn, if it was.

        Raises:
            InvariantViolated: If it is not running: never admitted, or already handed over.
        """
        attempt = trajectory.attempt.id
        if self.running.pop(attempt, None) is None:
            raise InvariantViolated(
                f"attempt {attempt} was handed over, but it is not running: every admitted attempt is handed over "
                "exactly once"
            )
        self._store.record(trajectory)
        self._recorder.attempt_finished(trajectory)
        return self.withdrawn.pop(attempt, None)

    def drop(self, trajectories: Sequence[Trajectory], reason: Drop) -> None:
        if trajectories:
            self.dropped += len(trajectories)
            self._store.drop(trajectories, reason)
            self._recorder.dropped(tuple(trajectories), reason)

    def replace(self, group: OpenGroup) -> None:
        """Let an open group have another attempt, in place of a masked one."""
        group.replaced += 1
        if group is not self._newest:
            self._replace.append(group)

    # -- open groups

    def running_groups(self) -> Iterator[RunningGroup]:
        """Yield the open groups, for rules that consider them."""
        versions = {group.id: [t.attempt.version for t in group.usable] for group in self.open.values()}
        for attempt in self.running.values():
            if attempt.group in versions:
                versions[attempt.group].append(attempt.version)
        for group, of_group in versions.items():
            yield RunningGroup(group, min(of_group, default=self.version))

    def withdraw(self, group: OpenGroup, reason: Drop) -> list[int]:
        """Drop an open group; return the numbers of its running attempts."""
        self._close(group)
        self.drop(tuple(group.usable), reason)
        if reason is Drop.STALE:
            self._offer_again(group.task)
        running = [attempt.id for attempt in self.running.values() if attempt.group == group.id]
        self.withdrawn.update(dict.fromkeys(running, reason))
        return running

    def complete(self, opened: OpenGroup, *, now: float) -> Drop | None:
        """Grade an open group whose attempts have ended: it is ready, or dropped for the returned reason."""
        self._close(opened)
        group, reason, replaced = self._rules.grade(opened.id, opened.task, opened.usable, now=now)
        if replaced is not None:
            self.drop((replaced,), Drop.REPLACED)
        self._recorder.group_judged(group.own, reason)
        if reason is None:
            self._store.eligible(group)
            self.ready.append(group)
        else:
            self.drop(group.own, reason)
        return reason

    def _close(self, group: OpenGroup) -> None:
        del self.open[group.id]
        if group is self._newest:
            self._newest = None
        if group in self._replace:
            self._replace = deque(other for other in self._replace if other is not group)

    def _offer_again(self, task: Task) -> None:
        """Offer the task of a stale group again, if the staleness rule says so."""
        if self._rules.staleness.parameters.requeue:
            self._again.append(task)

    # -- ready groups and batches

    def select(self) -> tuple[Group, ...]:
        """Return the groups of the next batch; none if it must wait."""
        rule = self._rules.batch_rule
        chosen: Any = rule.select(self.ready, self.running_groups(), self.trainer_version)
        try:
            groups = tuple(chosen)
            taken = {group.id for group in groups}
        except (TypeError, AttributeError):
            raise PlugInFailed(f"{type(rule).__name__}.select returned {chosen!a:.200}, wanted groups") from None
        if groups and (len(taken) < len(groups) or not taken <= {group.id for group in self.ready}):
            numbers = ", ".join(str(group.id) for group in groups)
            raise PlugInFailed(
                f"{type(rule).__name__}.select chose the groups {numbers}, wanted eligible ones, once each"
            )
        return groups

    def num_selectable(self) -> int:
        """Return the number of fresh groups if they suffice for a batch; 0 otherwise."""
        version = self.trainer_version
        fresh = [g for g in self.ready if all(self._rules.staleness.fresh(t, version) for t in g.own)]
        return len(fresh) if self._rules.batch_rule.select(fresh, self.running_groups(), version) else 0

    def lease(self, groups: tuple[Group, ...]) -> Batch:
        """Lease the groups that ``select`` just returned to the next update, as a batch."""
        taken = {group.id for group in groups}
        self.ready = [group for group in self.ready if group.id not in taken]
        self._num_fresh = len(self.ready)  # select() has checked all of them
        batch = Batch(self.trainer_version + 1, self.trainer_version, groups)
        self._leases[batch.update] = batch
        consumed = batch.own
        self.leased += len(consumed.trajectories)
        self._store.lease(consumed)
        self._recorder.batch_leased(consumed)
        return batch

    def train(self, batch: Batch, result: UpdateResult) -> None:
        self._leases.pop(batch.update, None)
        self.unpublished += len(batch.groups)
        self._num_fresh = 0
        consumed = batch.own
        num = len(consumed.trajectories)
        self.leased -= num
        self.trained += num
        self.trainer_version = result.weights.version
        self._store.trained(consumed, self.trainer_version, checkpoint=result.checkpoint)
        self._recorder.update_finished(consumed, result.metrics, rescued=batch)

    def release(self, batch: Batch, drop: Drop | None) -> None:
        """Take back a batch whose update failed: its groups return to the head, or are dropped."""
        consumed = batch.own
        self._leases.pop(batch.update, None)
        self.leased -= len(consumed.trajectories)
        self._store.release(consumed)
        self._recorder.batch_released(consumed)
        if drop is None:
            self.ready[:0] = batch.groups
            self._num_fresh = 0
        else:
            for group in batch.groups:
                self.drop(group.own, drop)

    def publish(self, version: Version) -> None:
        self.version = max(self.version, version)
        self.unpublished = 0

    def drop_stale(self) -> None:
        """Drop ready trajectories that are too stale for the trainer's weights.

        Each group is checked once per version: this runs whenever a group becomes ready, so checking all of them each
        time would cost O(desktops) per group.
        """
        version, kept = self.trainer_version, self.ready
        unchecked = kept[self._num_fresh :]
        del kept[self._num_fresh :]
        for group in unchecked:
            fresh: list[Trajectory] = []
            stale: list[Trajectory] = []
            for trajectory in group.own:
                (fresh if self._rules.staleness.fresh(trajectory, version) else stale).append(trajectory)
            if not stale:
                kept.append(group)
                continue
            left = (*fresh, *group.pooled)
            if fresh and self._rules.group_filter.reason_to_drop(left) is None:
                self.drop(stale, Drop.STALE)
                kept.append(Group(group.id, group.task, left, group.ready))
            else:
                self.drop(group.own, Drop.STALE)
                self._offer_again(group.task)
        self._num_fresh = len(kept)

    def drop_unused(self) -> None:
        """Drop what is neither running, leased nor trained, at the end of the run."""
        for opened in self.open.values():
            self.drop(tuple(opened.usable), Drop.UNUSED)
        self.open.clear()
        for group in self.ready:
            self.drop(group.own, Drop.UNUSED)
        self.ready = []
        self._num_fresh = 0

    # -- checks

    def check(self) -> None:
        """Check that every admitted attempt is in exactly one place, and that no open group waits forever.

        Raises:
            InvariantViolated: If the counts do not add up, or a group lacks an attempt that will never start.
        """
        places = {
            "running": len(self.running),
            "collected": sum(len(group.usable) for group in self.open.values()),
            "eligible": sum(len(group.own) for group in self.ready),
            "leased": self.leased,
            "trained": self.trained,
            "dropped": self.dropped,
        }
        if sum(places.values()) != self.admitted or min(places.values()) < 0:
            raise InvariantViolated(f"{self.admitted} attempts were admitted, but they are in these places: {places}")
        running = Counter(attempt.group for attempt in self.running.values())
        for group in self.open.values():
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

    # -- resuming: a group is stored as the ids of its attempts, whose trajectories come from the store's rows

    def state(self) -> dict[str, Any]:
        return {
            "update": self.trainer_version,
            "admitted": self.admitted,
            "trained": self.trained,
            "dropped": self.dropped,
            "running": [_save_attempt(attempt) for attempt in self.running.values()],
            "drawn": self._drawn,
            "groups": self._begun,
            "newest": None if self._newest is None else self._newest.id,
            "replace": [group.id for group in self._replace],
            "open": [_save_open(group) for group in self.open.values()],
            "again": [task.id for task in self._again],
            "order": self._rules.order.state(),
            "eligible": [_save_group(group) for group in self.ready],
            "leased": [_save_group(group) for group in self.leased_groups],
        }

    def restore(self, saved: Mapping[str, Any], stored: Restored, tasks: Mapping[str, Task], *, now: float) -> None:
        """Restore the state, with the readable trajectories; running attempts are left to the caller.

        Ready groups are those of updates that no checkpoint contains, those of a leased batch, and those that were
        ready. Unreadable trajectories are dropped as ``lost``, those generated by lost weights as ``undone``.
        """
        known = stored.trajectories
        self.admitted, self.dropped = saved["admitted"], saved["dropped"]
        self.trained = saved["trained"] - len(stored.untrained)
        self.version = self.trainer_version = stored.version
        self._rules.order.restore(saved["order"])
        self._drawn, self._begun = saved["drawn"], saved["groups"]
        self._again = deque(tasks[name] for name in saved["again"] if name in tasks)
        self.open = {group["id"]: _read_open(group, tasks[group["task"]], known) for group in saved["open"]}
        self._newest = self.open.get(saved["newest"])
        self._replace = deque(self.open[number] for number in saved["replace"] if number in self.open)
        untrained = [known[number] for number in stored.untrained if number in known]
        self.ready = [
            *_regroup(untrained, now),
            *(_read_group(group, tasks[group["task"]], known) for group in (*saved["leased"], *saved["eligible"])),
        ]
        self._drop_lost(stored)
        self._drop_undone()

    def _drop_lost(self, stored: Restored) -> None:
        """Drop attempts that the store cannot read or no document contains."""
        here = {t.attempt.id for group in self.open.values() for t in group.usable}
        here |= {t.attempt.id for group in self.ready for t in group.trajectories}
        if lost := sorted(stored.live - here):
            self._store.give_up(lost, Drop.LOST)
            self._recorder.lost(lost, Drop.LOST)
            self.dropped += len(lost)

    def _drop_undone(self) -> None:
        """Drop trajectories generated by lost weights, and grade the affected groups again."""
        complete, self.ready = self.ready, []
        for group in complete:
            undone = tuple(t for t in group.own if t.newest_version > self.version)
            self.drop(undone, Drop.UNDONE)
            left = tuple(t for t in group.trajectories if t not in undone)
            reason = self._rules.group_filter.reason_to_drop(left) if group.own else Drop.LOST
            kept = Group(group.id, group.task, left, group.ready)
            if reason is None and kept.own:
                self.ready.append(kept)
            else:
                self.drop(kept.own, reason or Drop.UNDONE)
        for opened in self.open.values():
            undone_of_group = tuple(t for t in opened.usable if t.newest_version > self.version)
            self.drop(undone_of_group, Drop.UNDONE)
            opened.usable = [t for t in opened.usable if t not in undone_of_group]


def _save_attempt(attempt: Attempt) -> list[Any]:
    numbers = [attempt.id, attempt.group, attempt.index, attempt.seed, attempt.turn_limit, attempt.version]
    return [attempt.task.id, *numbers]


def read_attempt(saved: Sequence[Any], tasks: Mapping[str, Task]) -> Attempt:
    """Return the running attempt that a state has as a list."""
    task, number, group, index, seed, turn_limit, version = saved
    return Attempt(number, tasks[task], group, index, seed, turn_limit, version)


def _save_group(group: Group) -> dict[str, Any]:
    attempts = [trajectory.attempt.id for trajectory in group.trajectories]
    return {"id": group.id, "task": group.task.id, "ready": group.ready, "attempts": attempts}


def _read_group(saved: Mapping[str, Any], task: Task, trajectories: Mapping[int, Trajectory]) -> Group:
    members = tuple(trajectories[number] for number in saved["attempts"] if number in trajectories)
    return Group(saved["id"], task, members, saved["ready"])


def _regroup(trajectories: Sequence[Trajectory], ready: float) -> list[Group]:
    """Return trajectories whose groups are in no document, in groups again, ordered by group."""
    members: dict[int, list[Trajectory]] = {}
    for trajectory in sorted(trajectories, key=lambda trajectory: trajectory.attempt.id):
        members.setdefault(trajectory.attempt.group, []).append(trajectory)
    return [Group(number, group[0].attempt.task, tuple(group), ready) for number, group in sorted(members.items())]


def _save_open(group: OpenGroup) -> dict[str, Any]:
    return {
        **{name: getattr(group, name) for name in _COUNTS},
        "task": group.task.id,
        "usable": [trajectory.attempt.id for trajectory in group.usable],
        "again": group.again,
    }


def _read_open(saved: Mapping[str, Any], task: Task, trajectories: Mapping[int, Trajectory]) -> OpenGroup:
    return OpenGroup(
        **{name: saved[name] for name in _COUNTS},
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
