"""Batches of trajectories in a learner's form: one example per turn, and tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dartsim.config.sections.trainer import AdvantageConfig
from dartsim.core.errors import BatchUntrainable
from dartsim.core.types import Batch, Trajectory, Turn, Turns
from dartsim.real.vlm.grammar import TokenGrammar
from dartsim.real.vlm.images import Picture
from dartsim.real.vlm.model import Vlm
from dartsim.real.vlm.packing import Example
from dartsim.trainer.advantages import AdvantageRule
from dartsim.trainer.objective import TurnBatch

Selector = Callable[[Batch], Sequence[bool]]
"""Returns for every turn of a batch, in order, whether the surrogate counts it (high-entropy turns)."""


@dataclass(frozen=True, slots=True)
class TurnData:
    """A batch as tensors: B turns of at most T response tokens; see ``TurnBatch`` for fields not named here.

    Attributes:
        examples: The prompt and reply of each turn.
        number: [B] int, position of each turn among all turns of the batch; unwritable ones have no row.
        fresh: [B] bool, turns that were sampled by the weights that are trained.
        unwritable: Turns whose action or tokens the grammar cannot write.
    """

    examples: list[Example]
    mask: Tensor
    advantage: Tensor
    worker: Tensor
    trajectory: Tensor
    group: Tensor
    number: Tensor
    fresh: Tensor
    selected: Tensor | None
    unwritable: int

    def turns(self, rows: Tensor, **more: Any) -> TurnBatch:
        return TurnBatch(
            mask_BT=self.mask[rows],
            advantage_B=self.advantage[rows],
            worker_BT=self.worker[rows],
            trajectory_B=self.trajectory[rows],
            group_B=self.group[rows],
            selected_B=None if self.selected is None else self.selected[rows],
            **more,
        )


def read_turns(batch: Batch, vlm: Vlm, advantage: AdvantageConfig) -> TurnData:
    """Return a batch as tensors, with all turns selected.

    Raises:
        BatchUntrainable: If no turn can be trained on.
    """
    examples, advantages, workers, trajectories, groups, numbers, fresh = [], [], [], [], [], [], []
    turns = 0
    shared: dict[tuple[Any, bytes], Picture] = {}
    rule: AdvantageRule = advantage.build()
    for group in batch.groups:
        for trajectory, value_T in zip(group.trajectories, rule.advantages(group), strict=True):
            for value, (example, turn) in zip(value_T, _examples(trajectory, vlm), strict=True):
                turns += 1
                if example is None:
                    continue
                # A screenshot is in several prompts, and the picture cache is too small for a batch. It is cut into
                # patches at its first use.
                pictures = tuple(shared.setdefault((p.grid, p.key), p) for p in example.prompt.pictures)
                examples.append(example._replace(prompt=replace(example.prompt, pictures=pictures)))
                workers.append(turn.reply.logprobs if turn.reply.tokens is not None else None)
                advantages.append(value)
                trajectories.append(trajectory.attempt.id)
                groups.append(group.id)
                numbers.append(turns - 1)
                fresh.append(turn.reply.oldest_version == turn.reply.version == batch.version)
    unwritable = turns - len(examples)
    if not examples:
        raise BatchUntrainable(f"update {batch.update} has no turn to train on, {unwritable} could not be written")
    shape = (len(examples), max(len(example.tokens) for example in examples))
    mask, reported = np.zeros(shape, dtype=bool), np.full(shape, np.nan, dtype=np.float32)
    for row, (example, worker) in enumerate(zip(examples, workers, strict=True)):
        mask[row, : len(example.tokens)] = True
        if worker is not None:
            log_probs = worker[: len(example.tokens)]  # what follows is padding
            reported[row, : len(log_probs)] = log_probs
    return TurnData(
        examples,
        torch.from_numpy(mask),
        torch.tensor(np.array(advantages), dtype=torch.float32),
        torch.from_numpy(reported),
        torch.tensor(trajectories),
        torch.tensor(groups),
        torch.tensor(numbers),
        torch.tensor(fresh),
        None,
        unwritable,
    )


def lacks_entropies(batch: Batch) -> bool:
    """Return whether the worker gave no entropies for some turn."""
    return any(turn.reply.entropies is None for trajectory in batch.trajectories for turn in trajectory.turns)


def with_selection(data: TurnData, batch: Batch, select: Selector, entropy_BT: Tensor | None = None) -> TurnData:
    """Return the data of a batch with the turns that a rule selects by the entropies of their replies.

    ``entropy_BT`` are the learner's own, nats, for turns whose worker gave none; None leaves those without.
    """
    selected = list(select(batch if entropy_BT is None else with_scores(data, batch, entropy_BT)))
    return replace(data, selected=torch.tensor([selected[number] for number in data.number.tolist()]))


def with_scores(data: TurnData, batch: Batch, entropy_BT: Tensor, logprob_BT: Tensor | None = None) -> Batch:
    """Return a batch with the learner's entropies, and log-probabilities if they are given, where turns lack them."""
    row_of = {number: row for row, number in enumerate(data.number.tolist())}
    numbers = iter(range(batch.num_turns))

    def filled(turn: Turn) -> Turn:
        row = row_of.get(next(numbers))
        if row is None or turn.reply.entropies is not None:
            return turn
        length = len(data.examples[row].tokens)
        reply = turn.reply._replace(entropies=entropy_BT[row, :length].numpy(), response_tokens=length)
        if logprob_BT is not None and reply.logprobs is None:
            reply = reply._replace(logprobs=logprob_BT[row, :length].numpy())
        return turn._replace(reply=reply)

    groups = tuple(
        replace(
            group,
            trajectories=tuple(replace(t, turns=Turns(filled(turn) for turn in t.turns)) for t in group.trajectories),
        )
        for group in batch.groups
    )
    return replace(batch, groups=groups)


def _examples(trajectory: Trajectory, vlm: Vlm) -> Iterator[tuple[Example | None, Turn]]:
    """Yield each turn, with its example if the grammar can write it."""
    turns = tuple(trajectory.turns)  # each look at the trajectory's own makes them again
    for number, turn in enumerate(turns):
        try:
            tokens = _tokens(turn, vlm.grammar)
            vlm.grammar.check(tokens.tolist())
        except ValueError:
            yield None, turn
            continue
        prompt = vlm.prompts.build(turn.observation, turns[:number])
        yield Example(prompt, tokens), turn


def _tokens(turn: Turn, grammar: TokenGrammar) -> Any:
    tokens = turn.reply.tokens
    return np.asarray(grammar.tokens(turn.reply.action) if tokens is None else tokens, dtype=np.int64)
