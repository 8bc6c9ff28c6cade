"""``AdmissionControl``: whether another attempt may start, by bounds on attempts, groups and the engines' caches."""

from __future__ import annotations

import asyncio

from dartsim.curation.admission import GroupCounts
from dartsim.curation.attempt_ledger import AttemptLedger
from dartsim.curation.open_groups import OpenGroups
from dartsim.curation.ready_groups import ReadyGroups
from dartsim.curation.rules import Rules


class AdmissionControl:
    """What free slots wait for. It reads where attempts and groups are, and changes nothing there.

    Args:
        rules: The bounds.
        books: Where attempts are.
        open_groups: Groups that are being collected.
        ready: Groups that may be trained on, and those of updates.

    Attributes:
        holding: Whether no group may be begun, because new weights wait for those that run.
    """

    def __init__(self, rules: Rules, books: AttemptLedger, open_groups: OpenGroups, ready: ReadyGroups) -> None:
        self._rules = rules
        self._ledger = books
        self._open = open_groups
        self._ready = ready
        self.holding = False

    def there_is(self) -> bool:
        """Return whether another attempt may start: one that its group lacks, or the first of a new one."""
        most, admission = self._rules.max_ahead, self._rules.admission
        if self._crowded() or (most is not None and self._ledger.ahead >= most):
            return False
        if admission.unbounded and not self.holding:
            return True
        if self._open.lacking:
            return True
        return not self.holding and admission.room(self._places())

    def lacks(self) -> str | None:
        """Return why no group may be begun, in words; None if one may, or only ``max_ahead`` forbids it."""
        if self.holding:
            return "new weights wait for those that run"
        if self._crowded():
            return (
                f"{len(self._ledger.running)} attempts run, at most {self._bound} may by what the engines' caches hold"
            )
        return self._rules.admission.lacks(self._places())

    def spare(self, slots: int) -> int:
        """Return how many of these slots could start an attempt at once, though no group may be begun for them."""
        if self.holding or self._crowded() or self.there_is():
            return 0
        most = self._rules.max_ahead
        return slots if most is None else min(slots, most - self._ledger.ahead)

    def ended(self) -> None:
        """An attempt has ended."""
        if self._rules.concurrency is not None:
            self._rules.concurrency.ended()

    def look_at_caches(self) -> bool:
        """Let the bound on attempts follow the engines' caches; return whether they overflow."""
        rule, caches = self._rules.concurrency, self._rules.caches
        if rule is None or caches is None:
            return False
        return rule.look(asyncio.get_running_loop().time(), len(self._ledger.running), caches.read())

    def too_many(self) -> bool:
        """Return whether more attempts run than may, apart from those that are being withdrawn."""
        return self._bound is not None and len(self._ledger.running) - len(self._ledger.withdrawn) > self._bound

    @property
    def _bound(self) -> int | None:
        """Most attempts that may run; None: as many as there are slots."""
        rule = self._rules.concurrency
        return None if rule is None else rule.bound

    def _crowded(self) -> bool:
        rule = self._rules.concurrency
        return rule is not None and len(self._ledger.running) >= rule.bound

    def _places(self) -> GroupCounts:
        ready = self._ready
        return GroupCounts(len(self._open.groups), len(ready.groups), len(ready.leased), ready.unpublished)
