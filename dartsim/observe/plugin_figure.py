"""``Figure``: a figure of a plug-in, which every run then has."""

from __future__ import annotations

from typing import ClassVar

from dartsim.core.registry import NamedComponent
from dartsim.observe.records import Snapshot


class Figure(NamedComponent):
    """A figure of a plug-in, registered as ``@register("figure", NAME)``: every run then has it.

    Its docstring is its definition.

    Attributes:
        label: Its name in tables; by default from its registered name.
        unit: Shown behind it; ``%``: the value is a share from 0 to 1.
        decimals: Digits shown after the point.
    """

    label: ClassVar[str] = ""
    unit: ClassVar[str] = ""
    decimals: ClassVar[int] = 1

    def value(self, first: Snapshot, last: Snapshot) -> float | None:
        """Return the figure of the time between two snapshots; None if it is unknown.

        Args:
            first: When what is measured begins, after the warm-up: time in seconds, counts and seconds by state.
            last: The end of the run, later than ``first``.
        """
        raise NotImplementedError

    @staticmethod
    def count(name: str, first: Snapshot, last: Snapshot) -> float:
        """Return how much a count of the recorder rose between two snapshots, such as ``"trained_turns"``."""
        return last.counts.get(name, 0) - first.counts.get(name, 0)
