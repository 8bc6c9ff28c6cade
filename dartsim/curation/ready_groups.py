"""``ReadyGroups``: the groups that may be trained on, and the batches that updates took of them."""

from __future__ import annotations

from collections.abc import Iterable

from dartsim.core.types import Batch, Drop, Group, Task, Trajectory
from dartsim.curation.attempt_ledger import AttemptLedger
from dartsim.curation.rules import Rules
from dartsim.curation.rules.batches import RunningGroup


class ReadyGroups:
    """The groups that may be trained on.

    Invariant: no batch holds a trajectory of the run that breaks the staleness rule.

    Args:
        rules: When there is a batch, and what it takes; how old a trajectory may be; which groups may be trained on.
        books: Where attempts are counted.

    Attributes:
        groups: Ready groups, in the order in which they became ready.
        unpublished: Groups trained into weights that are not published.
    """

    def __init__(self, rules: Rules, books: AttemptLedger) -> None:
        self._rules = rules
        self._ledger = books
        self.groups: list[Group] = []
        self.unpublished = 0
        self._leases: dict[int, Batch] = {}
        """Batches by the update that they are leased to."""
        self._num_fresh = 0
        """Groups at the head that are known to be fresh for the trainer's weights."""

    @property
    def leased(self) -> list[Group]:
        """The groups of the updates that run."""
        return [group for batch in self._leases.values() for group in batch.groups]

    def select(self, begun: Iterable[RunningGroup]) -> tuple[Group, ...]:
        """Return the groups of the next batch; none if it has to wait.

        Args:
            begun: Groups whose attempts still run.
        """
        return tuple(self._rules.batch_rule.select(self.groups, begun, self._ledger.trainer_version))

    def lease(self, groups: tuple[Group, ...]) -> Batch:
        """Return a batch of these groups, which ``select`` returned just now, for the next update."""
        taken = {group.id for group in groups}
        self.groups = [group for group in self.groups if group.id not in taken]
        self._num_fresh = len(self.groups)  # all were looked at before some were selected
        version = self._ledger.trainer_version
        batch = Batch(version + 1, version, groups)
        self._leases[batch.update] = batch
        self._ledger.lease(batch)
        return batch

    def trained(self, batch: Batch) -> None:
        """Let a batch go that is trained; the trainer's weights are others now."""
        self._leases.pop(batch.update, None)
        self.unpublished += len(batch.groups)
        self._num_fresh = 0

    def release(self, batch: Batch, *, keep: bool) -> None:
        """Take a batch back whose update failed; its groups come first again, or are not kept."""
        self._leases.pop(batch.update, None)
        if keep:
            self.groups[:0] = batch.groups
            self._num_fresh = 0

    def drop_stale(self) -> list[Task]:
        """Drop what is too old for the trainer's weights, and return the tasks of which a whole group was dropped.

        A group is looked at once a version: every group that becomes ready leads here, and looking at all
        of them each time would cost O(desktops) turns a group.
        """
        kept, tasks = self.groups, []
        unknown = kept[self._num_fresh :]
        del kept[self._num_fresh :]
        for group in unknown:
            fresh: list[Trajectory] = []
            stale: list[Trajectory] = []
            for trajectory in group.own:
                is_fresh = self._rules.staleness.fresh(trajectory, self._ledger.trainer_version)
                (fresh if is_fresh else stale).append(trajectory)
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
        """Drop all: the run ends."""
        for group in self.groups:
            self._ledger.drop(group.own, Drop.UNUSED)
        self.groups = []
        self._num_fresh = 0

    def could_lease(self, begun: Iterable[RunningGroup]) -> int:
        """Return of how many fresh groups a batch could be taken; 0 if none could."""
        fresh = [group for group in self.groups if self._is_fresh(group)]
        return len(fresh) if self._rules.batch_rule.select(fresh, begun, self._ledger.trainer_version) else 0

    def _is_fresh(self, group: Group) -> bool:
        return all(self._rules.staleness.fresh(trajectory, self._ledger.trainer_version) for trajectory in group.own)
