"""``SimLearner``: the modeled time of an update, around a real learner or a version counter."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from dartsim.core.ports import Learner
from dartsim.core.types import Batch, UpdateResult, Weights
from dartsim.sim.control_loop import ControlLoop
from dartsim.sim.prompts import PromptModel


class VersionCounter:
    """A learner that only counts versions, for surrogate policies."""

    async def update(self, batch: Batch) -> UpdateResult:
        return UpdateResult(Weights(batch.update))


@dataclass(slots=True, eq=False)
class UpdateTokens:
    """Counts the tokens that an update computes, from the number of turns of each attempt.

    All attempts of a group share the first prompt; if it is a sequence of its own, it is computed once. Our own learner
    does so only if replies are single tokens, and computes some 5 % more with replies of text.
    ``PromptModel.training_sequences`` says when an attempt's tokens are exact. An attempt of one turn in a group with
    longer ones counts the first prompt again, unlike in the packer.

    Attributes:
        prompts: Lengths of prompts and replies.
        packed: Whether the turns of an attempt share sequences where their prompts nest.
    """

    prompts: PromptModel
    packed: bool
    _known: dict[int, tuple[int, bool]] = field(default_factory=dict)
    """By number of turns: an attempt's tokens, and whether its first prompt is a sequence of its own."""

    def of_group(self, num_turns: Sequence[int]) -> int:
        """Return the computed tokens of a group, given the number of turns of each attempt."""
        total = shared = 0
        for count in num_turns:
            tokens, alone = self._known.get(count) or self._learn(count)
            total += tokens
            shared += alone
        return total - max(0, shared - 1) * self.prompts.cold[0].tokens

    def _learn(self, count: int) -> tuple[int, bool]:
        sequences = self.prompts.training_sequences(count, packed=self.packed)
        alone = bool(sequences) and sequences[0].turns == 1
        self._known[count] = known = sum(sequence.tokens for sequence in sequences), alone
        return known

    def of(self, batch: Batch) -> int:
        """Return the computed tokens of a batch."""
        return sum(self.of_group([len(t.turns) for t in group.trajectories]) for group in batch.groups)


@dataclass(slots=True, eq=False)
class SimLearner:
    """A trainer's speed behind the port ``Learner``: a fixed time plus one per 1,000 computed tokens, then the update.

    Source: 21.2 min between the versions of DART's headline run, saving included (docs/schedulers.md).
    """

    inner: Learner
    tokens: UpdateTokens
    fixed_seconds: float
    kilotoken_seconds: float
    control: ControlLoop | None = None

    def seconds(self, batch: Batch) -> float:
        """Return the duration of a batch's update without faults."""
        return self._seconds(self.tokens.of(batch))

    def _seconds(self, tokens: int) -> float:
        return self.fixed_seconds + self.kilotoken_seconds * tokens / 1000.0

    async def update(self, batch: Batch) -> UpdateResult:
        tokens = self.tokens.of(batch)
        seconds = self._seconds(tokens)
        await asyncio.sleep(seconds)
        result = await self.inner.update(batch)
        if self.control is not None:
            await self.control.turn()
        modeled = {"update_seconds": seconds, "computed_tokens": tokens}
        return replace(result, metrics={**modeled, **result.metrics})
