"""Two configurations held against each other, seed by seed: what the seeds have in common cancels out."""

from __future__ import annotations

from typing import NamedTuple

from dartsim.lab.comparison import half_width
from dartsim.lab.jobs import Outcome
from dartsim.lab.objectives import Objective


class Change(NamedTuple):
    """How much more or less of a figure there is."""

    share: float | None
    """Against the other one, as a share of it; None if one of them has none, or the other has 0."""
    half_width: float | None
    """Half of its 95 % interval, over the seeds that both were simulated with; None with fewer than two."""

    @property
    def certain(self) -> bool:
        """Whether the interval leaves out that there is no difference."""
        return self.share is not None and self.half_width is not None and abs(self.share) > self.half_width


def change(objective: Objective, base: Outcome, other: Outcome) -> Change:
    """Hold ``other`` against ``base``, over the seeds that come first in both.

    The change is that of the means; its interval is of the single seeds' changes.
    """
    values = [(objective.of(one), objective.of(two)) for one, two in zip(base.by_seed, other.by_seed, strict=False)]
    known = [(one, two) for one, two in values if one is not None and two is not None]
    reference = sum(one for one, _ in known)
    if not reference:
        return Change(None, None)
    width = half_width([two / one - 1.0 for one, two in known if one])
    return Change(sum(two for _, two in known) / reference - 1.0, width)
