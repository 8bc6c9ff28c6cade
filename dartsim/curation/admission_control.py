"""``AdmissionControl``: whether another attempt may start, by bounds on attempts, groups and the engines' caches."""

from __future__ import annotations

import asyncio

from dartsim.curation.attempt_ledger import AttemptLedger
from dartsim.curation.open_groups import OpenGroups
from dartsim.curation.ready_groups import ReadyGroups
from dartsim.curation.rules import Rules
from dartsim.curation.rules.admission import GroupCounts


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
        max_ahead, rule = self._rules.max_ahead, self._rules.admission
        if self._crowded() or (max_ahead is not None and self._ledger.ahead >= max_ahead):
            return False
        if rule.unbounded and not self.holding:
            return True
        if self._open.lacking:
            return True
        return not self.holding and rule.blocked_by(self._counts()) is None

    def blocked_by(self) -> str | None:
        """Return why no group may begin, as a sentence; None if one may, or only ``max_ahead`` forbids it."""
        if self.holding:
            return "new weights wait for those that run"
        if self._crowded():
            return (
                f"{len(self._ledger.running)} attempts run, at most {self._rules.admission.max_running} may by what "
                "the engines' caches hold"
            )
        return self._rules.admission.blocked_by(self._counts())

    def spare(self, slots: int) -> int:
        """Return how many of these slots could start an attempt at once, though no group may be begun for them."""
        if self.holding or self._crowded() or self.there_is():
            return 0
        most = self._rules.max_ahead
        return slots if most is None else min(slots, most - self._ledger.ahead)

    def attempt_ended(self) -> None:
        """Take note that an attempt has ended."""
        self._rules.admission.attempt_ended()

    def adjust(self) -> bool:
        """Let the rule adjust its bound on attempts; return whether the youngest groups are to be given up."""
        return self._rules.admission.adjust(asyncio.get_running_loop().time(), len(self._ledger.running))

    def too_many(self) -> bool:
        """Return whether more attempts run than may, apart from those that are being withdrawn."""
        most = self._rules.admission.max_running
        return most is not None and len(self._ledger.running) - len(self._ledger.withdrawn) > most

    def _crowded(self) -> bool:
        most = self._rules.admission.max_running
        return most is not None and len(self._ledger.running) >= most

    def _counts(self) -> GroupCounts:
        ready = self._ready
        return GroupCounts(len(self._open.groups), len(ready.groups), len(ready.leased), ready.unpublished)
