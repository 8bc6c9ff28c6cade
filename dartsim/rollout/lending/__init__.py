"""Rules of lending: when a trainer that waits for data lends its GPUs to engines, and when it takes them back.

``dartsim.rollout.lender`` carries them out.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, NamedTuple

from dartsim.config.sections.rollout import LendingConfig


class Cycle(NamedTuple):
    """What a rule knows right after a publication.

    Attributes:
        number: Publications so far.
        ready: Groups that are ready for batches.
        needed: Groups that the updates until the next publication take, at least.
        waited_groups: Groups of the last cycle that were not ready when the trainer asked for their batch.
        waited_seconds: How long it waited for them.
        switch_seconds: What the last lending took, both ways; 0: there was none in the last cycle.
    """

    number: int
    ready: int
    needed: int
    waited_groups: int = 0
    waited_seconds: float = 0.0
    switch_seconds: float = 0.0


class LendingRule(ABC):
    """Decides after each publication, and may learn from the cycle before; one instance for each run."""

    Parameters: ClassVar[type[LendingConfig]] = LendingConfig

    @abstractmethod
    def recall_at(self, cycle: Cycle) -> int:
        """Return at how many ready groups the trainer takes its GPUs back; at most ``cycle.ready``: none are lent."""
