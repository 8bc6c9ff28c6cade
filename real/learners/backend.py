"""The configured learner of a model: in this process, or in several."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dartsim.config import Config
from dartsim.core.types import Batch
from dartsim.curation.rules.selection import AllTurns, TurnSelection
from dartsim.real.learners.fsdp.learner import FsdpLearner
from dartsim.real.learners.torch_learner import TorchLearner
from dartsim.real.vlm import Vlm

RealLearner = TorchLearner | FsdpLearner
"""A learner whose state can be written and read."""


def configured_learner(config: Config, vlm: Vlm) -> RealLearner:
    """Return the configured learner."""
    backend = config.backend.learner_backend
    learner: RealLearner = backend.train(config, vlm, seed=config.run.seed, select=_selector(config))
    return learner


def _selector(config: Config) -> Callable[[Batch], Sequence[bool]] | None:
    rule: TurnSelection = config.curation.selection.build()
    if isinstance(rule, AllTurns):
        return None

    def select(batch: Batch) -> Sequence[bool]:
        kept = (rule.select(group).kept for group in batch.groups)
        return [flag for group in kept for trajectory in group for flag in trajectory]

    return select
