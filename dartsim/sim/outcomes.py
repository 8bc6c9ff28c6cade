"""Outcomes and lengths of attempts as a run had them, played again attempt by attempt.

A twin of a run asks how well its system is modelled, not what its policy would learn another time. So the attempts of
its n-th group end as those of the run's n-th group did, and change over time as the policy did.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import NamedTuple

from dartsim.core.errors import ConfigError
from dartsim.core.types import Attempt

NEARBY = 16
"""Groups among which one looks for an attempt that the run did not have."""


class Recorded(NamedTuple):
    """How an attempt ended: number of its group, its number in that, turns, and whether it had a reward above 0."""

    group: int
    number: int
    num_turns: int
    success: bool


class Outcomes:
    """What attempts of a run came to.

    Args:
        recorded: Those that were scored.

    Raises:
        ConfigError: If there are none.
    """

    def __init__(self, recorded: Iterable[Recorded]) -> None:
        self._in_order = sorted(recorded)
        if not self._in_order:
            raise ConfigError("no attempt was recorded as scored: repeat the run with more --hours")
        self._exact = {(each.group, each.number): each for each in self._in_order}
        self._groups = [each.group for each in self._in_order]

    def of(self, attempt: Attempt) -> Recorded:
        """Return the outcome of the run's attempt of the same group and number, else one of a group nearby."""
        found = self._exact.get((attempt.group, attempt.index))
        if found is not None:
            return found
        middle = min(attempt.group, self._groups[-1])
        first = bisect_right(self._groups, middle - NEARBY)
        last = bisect_right(self._groups, middle + NEARBY)
        near = self._in_order[first:last] or self._in_order
        return near[attempt.seed % len(near)]
