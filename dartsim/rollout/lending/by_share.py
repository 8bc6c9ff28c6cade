"""verl's rule: a share of the groups until the next publication, which follows the trainer's waits."""

from __future__ import annotations

from collections import deque
from math import inf
from statistics import fmean
from typing import Annotated

from pydantic import Field
from typing_extensions import override

from dartsim.config.sections.rollout import LendingConfig
from dartsim.core.registry import register
from dartsim.core.section import Fuzzed, Share
from dartsim.rollout.lending import Cycle, LendingRule

STEP_UP = 0.05
"""Added to the share after a wait (verl's trainer V1)."""
WINDOW = 3
"""Lendings over which the time of a switch is averaged (verl's trainer V1)."""


@register("lending", "by_share")
class ByShare(LendingRule):
    """Lends until a share of the next groups is ready, if these would otherwise take longer than the switch.

    The share rises after a cycle in which the trainer waited for groups, and falls after another one. A group is
    expected to take as long as in the last cycle with a wait; before the first, forever.
    """

    class Parameters(LendingConfig):
        """The share, and how it changes; defaults are those of verl's trainer V1."""

        share: Annotated[Share, Fuzzed((1.0, 0.5))] = Field(
            0.4, description="Share of the groups until the next publication (verl: 0.4, 0.3)."
        )
        step_down: Share = Field(0.03, description="Taken from it after a cycle without one.")

    def __init__(self, parameters: Parameters) -> None:
        self._parameters = parameters
        self._share = parameters.share
        self._switches: deque[float] = deque(maxlen=WINDOW)
        self._group_seconds = inf

    @override
    def recall_at(self, cycle: Cycle) -> int:
        self._learn(cycle)
        wanted = round(self._share * cycle.needed)
        lacking = wanted - cycle.ready
        cost = fmean(self._switches) if self._switches else 0.0
        return wanted if lacking > 0 and lacking * self._group_seconds > cost else 0

    def _learn(self, cycle: Cycle) -> None:
        if cycle.switch_seconds:
            self._switches.append(cycle.switch_seconds)
        if cycle.waited_groups:
            self._group_seconds = cycle.waited_seconds / cycle.waited_groups
            self._share = min(1.0, self._share + STEP_UP)
        elif cycle.number:
            self._share = max(0.0, self._share - self._parameters.step_down)
