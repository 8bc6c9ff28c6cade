"""``SimLearner``: the modeled time of an update, around a real learner or a version counter."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from heapq import heappop, heapreplace
from itertools import chain

from dartsim.core.ports import Learner
from dartsim.core.types import Batch, Trajectory, UpdateResult, Weights
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


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateParts:
    """Times an update part by part: ranks share its sequences, and wait for the slowest in each gradient step.

    The whole update is balanced, as verl does it: each GPU's part has as many sequences as any other and about as many
    tokens, in their order. A rank has the parts of its GPUs, one after the other, and cuts them into gradient steps,
    which therefore are not balanced, unless each is a part or more.

    Attributes:
        ranks: Number of ranks.
        gpus: GPUs of all ranks; if ranks have no equal number of them, each rank counts as one.
        copies: Sequences that each given one stands for.
        minibatches: Gradient steps of an update.
        max_tokens: Tokens of a micro-batch; a longer sequence is alone.
        step_seconds: Fixed time of a gradient step.
        micro_seconds: Moving weights for a micro-batch, behind its computation.
        stages: Stages of a pipeline: the first micro-batch passes all before the last stage is busy.
        token_seconds: Time per token on one rank.
        pair_seconds: Time of attention on one rank, per pair of tokens of a sequence.
    """

    ranks: int
    gpus: int = 1
    copies: int = 1
    minibatches: int = 1
    max_tokens: int = 8_192
    step_seconds: float = 0.0
    micro_seconds: float = 0.0
    stages: int = 1
    token_seconds: float = 0.0
    pair_seconds: float = 0.0

    def seconds(self, lengths: Sequence[int]) -> float:
        """Return the time of an update of sequences of these lengths, in their order."""
        shares = self._shares([length for length in lengths for _ in range(self.copies)])
        steps = range(self.minibatches)
        return sum(self._step([_slice(share, step, self.minibatches) for share in shares]) for step in steps)

    def _shares(self, lengths: Sequence[int]) -> list[list[int]]:
        """Return the lengths of each rank; the longest are placed first, each in the part with fewest tokens."""
        parts = self.gpus if self.gpus % self.ranks == 0 and len(lengths) >= self.gpus else self.ranks
        room = -(-len(lengths) // parts)
        found: list[list[int]] = [[] for _ in range(parts)]
        tokens = [(0, part) for part in range(parts)]
        for number in sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True):
            total, part = tokens[0]
            found[part].append(number)
            if len(found[part]) < room:
                heapreplace(tokens, (total + lengths[number], part))
            else:
                heappop(tokens)
        ordered = [[lengths[number] for number in sorted(part)] for part in found]
        each = parts // self.ranks
        return [list(chain(*ordered[start : start + each])) for start in range(0, parts, each)]

    def _step(self, ranks: Sequence[Sequence[int]]) -> float:
        """Return the time of a gradient step of these lengths on each rank; 0 if there are none."""
        if not any(ranks):
            return 0.0
        micros = max(1, max(-(-sum(lengths) // self.max_tokens) for lengths in ranks))
        pairs = (sum(length * (length + 1) for length in lengths) / 2 for lengths in ranks)
        busy = (
            sum(lengths) * self.token_seconds + pair * self.pair_seconds
            for lengths, pair in zip(ranks, pairs, strict=True)
        )
        longest = max(busy) * (1.0 + (self.stages - 1) / micros)
        return self.step_seconds + max(longest, micros * self.micro_seconds)

    def of(self, batch: Batch) -> float:
        """Return the time of a batch's update; each trajectory is one sequence, its first prompt and all replies."""
        return self.seconds([_sequence(each) for group in batch.groups for each in group.trajectories])


def _slice(share: Sequence[int], step: int, steps: int) -> Sequence[int]:
    return share[step * len(share) // steps : (step + 1) * len(share) // steps]


def _sequence(trajectory: Trajectory) -> int:
    turns = trajectory.turns
    return turns.prompt_tokens[0] + sum(turns.response_tokens) if turns else 0


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
    parts: UpdateParts | None = None
    """Times updates by the real lengths of their sequences, in place of ``kilotoken_seconds``."""

    def seconds(self, batch: Batch) -> float:
        """Return the duration of a batch's update without faults."""
        return self._seconds(batch, self.tokens.of(batch))

    def _seconds(self, batch: Batch, tokens: int) -> float:
        if self.parts is not None:
            return self.fixed_seconds + self.parts.of(batch)
        return self.fixed_seconds + self.kilotoken_seconds * tokens / 1000.0

    async def update(self, batch: Batch) -> UpdateResult:
        tokens = self.tokens.of(batch)
        seconds = self._seconds(batch, tokens)
        await asyncio.sleep(seconds)
        result = await self.inner.update(batch)
        if self.control is not None:
            await self.control.turn()
        modeled = {"update_seconds": seconds, "computed_tokens": tokens}
        return replace(result, metrics={**modeled, **result.metrics})
