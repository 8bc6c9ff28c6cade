"""What the learners of a model have in common: in this process, or in several."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dartsim.config import Config
from dartsim.core.types import Batch
from dartsim.curation.rules.selection import AllTurns, TurnSelection
from dartsim.real.learners.fsdp.learner import FsdpLearner
from dartsim.real.learners.torch_learner import TorchLearner

RealLearner = TorchLearner | FsdpLearner
"""A learner whose state can be written and read."""


def turn_selector(config: Config) -> Callable[[Batch], Sequence[bool]] | None:
    """Return what says of each turn of a batch whether it is trained on; None if all are."""
    rule: TurnSelection = config.curation.selection.build()
    if isinstance(rule, AllTurns):
        return None

    def select(batch: Batch) -> Sequence[bool]:
        return [flag for group in batch.groups for trajectory in rule.select(group) for flag in trajectory]

    return select
