"""``ReadyGroups``: the groups that may be trained on, and the batches made of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dartsim.core.errors import PlugInFailed
from dartsim.core.types import Batch, Drop, Group, Task, Trajectory
from dartsim.curation.attempt_ledger import AttemptLedger
from dartsim.curation.rules import Rules
from dartsim.curation.rules.batches import RunningGroup


class ReadyGroups:
    """The groups that may be trained on.

    Invariant: no batch holds a trajectory of the run that breaks the staleness rule.
    """

    def __init__(self, rules: Rules, ledger: AttemptLedger) -> None:
        self._rules = rules
        self._ledger = ledger
        self.groups: list[Group] = []
        self.unpublished = 0
        self._leases: dict[int, Batch] = {}
        """Batches by update."""
        self._num_fresh = 0
        """Number of groups at the head that are known to be fresh enough for the trainer's weights."""

    @property
    def leased(self) -> list[Group]:
        return [group for batch in self._leases.values() for group in batch.groups]

    def select(self, running: Iterable[RunningGroup]) -> tuple[Group, ...]:
        """Return the groups of the next batch, given the running groups; none if it must wait."""
        rule = self._rules.batch_rule
        chosen: Any = rule.select(self.groups, running, self._ledger.trainer_version)
        try:
            groups = tuple(chosen)
            taken = {group.id for group in groups}
        except (TypeError, AttributeError):
            raise PlugInFailed(f"{type(rule).__name__}.select returned {chosen!a:.200}, wanted groups") from None
        if groups and (len(taken) < len(groups) or not taken <= {group.id for group in self.groups}):
            numbers = ", ".join(str(group.id) for group in groups)
            raise PlugInFailed(
                f"{type(rule).__name__}.select chose the groups {numbers}, wanted eligible ones, once each"
            )
        return groups

    def lease(self, groups: tuple[Group, ...]) -> Batch:
        """Lease the groups that ``select`` just returned to the next update, as a batch."""
        taken = {group.id for group in groups}
        self.groups = [group for group in self.groups if group.id not in taken]
        self._num_fresh = len(self.groups)  # select() has checked all of them
        version = self._ledger.trainer_version
        batch = Batch(version + 1, version, groups)
        self._leases[batch.update] = batch
        self._ledger.lease(batch)
        return batch

    def trained(self, batch: Batch) -> None:
        self._leases.pop(batch.update, None)
        self.unpublished += len(batch.groups)
        self._num_fresh = 0

    def release(self, batch: Batch, *, keep: bool) -> None:
        """Take back a batch whose update failed; its groups return to the head, unless ``keep`` is false."""
        self._leases.pop(batch.update, None)
        if keep:
            self.groups[:0] = batch.groups
            self._num_fresh = 0

    def drop_stale(self) -> list[Task]:
        """Drop what is too stale for the trainer's weights; return the tasks of groups dropped as a whole.

        Each group is checked once per version: this runs whenever a group becomes ready, so checking all of them each
        time would cost O(desktops) per group.
        """
        version = self._ledger.trainer_version
        kept, tasks = self.groups, []
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
                self._ledger.drop(stale, Drop.STALE)
                kept.append(Group(group.id, group.task, left, group.ready))
            else:
                self._ledger.drop(group.own, Drop.STALE)
                tasks.append(group.task)
        self._num_fresh = len(kept)
        return tasks

    def drop_unused(self) -> None:
        for group in self.groups:
            self._ledger.drop(group.own, Drop.UNUSED)
        self.groups = []
        self._num_fresh = 0

    def num_selectable(self, running: Iterable[RunningGroup]) -> int:
        """Return the number of fresh groups if they suffice for a batch; 0 otherwise."""
        version = self._ledger.trainer_version
        fresh = [g for g in self.groups if all(self._rules.staleness.fresh(t, version) for t in g.own)]
        return len(fresh) if self._rules.batch_rule.select(fresh, running, version) else 0
