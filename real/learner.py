"""``TorchLearner``: batches of trajectories into weights, with the objective of ``dartsim.trainer``.

    Batch --examples--> one row a prompt --micro-batches--> log-probabilities --objective--> gradient --AdamW--> Weights

Every turn is one example. A turn's prompt is built from what the worker saw, by the worker's own code. Prompts
that several attempts share are computed once (``real.vlm.packing``), with the very gradient that computing them
once an attempt would give.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from dartsim.errors import LearnerFault
from dartsim.trainer.advantages import advantages_of
from dartsim.trainer.health import Health
from dartsim.trainer.objective import TokenShares, TurnBatch, objective, token_shares
from dartsim.trainer.objective_config import ObjectiveConfig
from dartsim.types import Batch, Trajectory, Turn, UpdateResult, Version, Weights
from real.vlm.lora import LoraSettings, add_lora, merged
from real.vlm.model import Vlm
from real.vlm.packing import Example, Row, pack, rows_of, score, split

Selector = Callable[[Batch], Sequence[bool]]
"""Says of every turn of a batch, in order, whether the surrogate counts it (high-entropy turns)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnerConfig:
    """How weights are updated. The defaults of the optimizer suit a model of width 64 from random weights.

    Attributes:
        objective: What is maximized.
        learning_rate: Of AdamW, after the warm-up.
        warmup_updates: Updates over which the learning rate rises linearly from 0.
        betas: Of AdamW.
        weight_decay: Of AdamW, on matrices only.
        max_grad_norm: Longer gradients are shortened to this (DART's code: 2).
        minibatches: Gradient steps on one pass over a batch, each on some of its groups.
        epochs: Passes over a batch.
        max_tokens: Padded tokens of a micro-batch; more is accumulated. It changes speed and memory only.
        checkpointing: Compute activations again in the backward pass instead of keeping them.
        lora: Train low-rank additions instead of the weights.
    """

    objective: ObjectiveConfig = field(
        default_factory=lambda: ObjectiveConfig(kl_coefficient=0.0, entropy_coefficient=0.02)
    )
    learning_rate: float = 7e-4
    warmup_updates: int = 0
    betas: tuple[float, float] = (0.9, 0.98)
    weight_decay: float = 0.0
    max_grad_norm: float = 1.0
    minibatches: int = 1
    epochs: int = 1
    max_tokens: int = 4_096
    checkpointing: bool = False
    lora: LoraSettings | None = None

    def __post_init__(self) -> None:
        for name in ("learning_rate", "max_grad_norm", "minibatches", "epochs", "max_tokens"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be positive, got {getattr(self, name)}")


@dataclass(frozen=True, slots=True)
class _Data:
    """A batch as tensors: B turns of at most T response tokens; see ``TurnBatch`` for the fields."""

    examples: list[Example]
    mask: Tensor
    advantage: Tensor
    worker: Tensor
    trajectory: Tensor
    group: Tensor
    selected: Tensor | None

    def turns(self, rows: Tensor, **more: Any) -> TurnBatch:
        """Return some of the turns as the objective reads them."""
        return TurnBatch(
            mask_BT=self.mask[rows],
            advantage_B=self.advantage[rows],
            worker_BT=self.worker[rows],
            trajectory_B=self.trajectory[rows],
            group_B=self.group[rows],
            selected_B=None if self.selected is None else self.selected[rows],
            **more,
        )


class TorchLearner:
    """Trains a ``Vlm`` behind the port ``Learner``.

    An update that fails leaves weights and optimizer as they were.

    Attributes:
        vlm: The model in training; no policy may serve it (give a policy its ``twin``).
        updates: Finished updates, also the version of the weights.

    Args:
        vlm: The model.
        config: How.
        seed: Of the order of mini-batches, the only chance in here, and of LoRA's first weights.
        select: Which turns the surrogate counts; all by default.
    """

    def __init__(
        self, vlm: Vlm, config: LearnerConfig | None = None, *, seed: int = 0, select: Selector | None = None
    ) -> None:
        self.vlm = vlm
        self.config = config or LearnerConfig()
        self.updates = 0
        self.seed = seed
        self._select = select
        self._kept: tuple[dict[str, Tensor], dict[str, Any]] | None = None
        self._reference = vlm.twin() if self.config.objective.kl_coefficient else None
        if self.config.lora is not None:
            add_lora(vlm.model, self.config.lora, seed=seed)
        vlm.trunk.checkpointing = self.config.checkpointing
        self._parameters = {n: p for n, p in vlm.model.named_parameters() if p.requires_grad}
        self.optimizer = _optimizer(list(self._parameters.values()), self.config)

    async def update(self, batch: Batch) -> UpdateResult:
        """Train on a batch in a thread; in virtual time the thread is this one.

        Raises:
            LearnerFault: If loss or gradient was not finite.
        """
        return await asyncio.to_thread(self.train, batch)

    def train(self, batch: Batch) -> UpdateResult:
        """Train on a batch and return the new weights.

        Raises:
            LearnerFault: If loss or gradient was not finite, or no turn could be trained.
        """
        data, unwritable = self._read(batch)
        old_BT = reference_BT = None
        steps = self.config.minibatches * self.config.epochs
        everything = torch.arange(len(data.examples))
        if steps > 1:
            old_BT, _ = self._score_all(self.vlm, data)
        if self._reference is not None:
            reference_BT, _ = self._score_all(self._reference, data)
        before = self._state() if steps > 1 else None
        healths, norms, losses = Health(), [], []
        try:
            for rows in self._order(batch, everything, data.group):
                health, norm, loss = self._step(data, rows, old_BT, reference_BT)
                healths += health
                norms.append(norm)
                losses.append(loss)
        except LearnerFault:
            if before is not None:
                self._restore(before)
            raise
        self.updates = batch.update
        metrics = {
            "learner/loss": float(np.mean(losses)),
            "learner/grad_norm": float(np.mean(norms)),
            "learner/learning_rate": self.optimizer.param_groups[0]["lr"],
            "learner/turns": float(len(data.examples)),
            "learner/prompts": float(len(rows_of(data.examples))),
            "learner/response_tokens": float(data.mask.sum()),
            "learner/unwritable_turns": float(unwritable),
            **healths.metrics(),
        }
        return UpdateResult(self.weights(), metrics)

    def weights(self) -> Weights:
        """Return the present weights, low-rank additions added in: a copy that nothing changes."""
        return Weights(self.updates, merged(self.vlm.model))

    def keep(self) -> None:
        """Remember weights and optimizer as they are, for ``go_back``."""
        self._kept = self._state()

    def go_back(self, version: Version) -> Weights:
        """Return to the weights and the optimizer's state that were remembered, and return them as a new version.

        Raises:
            ValueError: If nothing was remembered.
        """
        if self._kept is None:
            raise ValueError("there is nothing to go back to; wanted a call of keep() before")
        self._restore(self._kept)
        self.updates = version
        return self.weights()

    # ---- batches

    def _read(self, batch: Batch) -> tuple[_Data, int]:
        """Return a batch as tensors, and the number of turns whose action the grammar cannot write."""
        kept = list(self._select(batch)) if self._select is not None else None
        examples, advantages, workers, trajectories, groups, selected = [], [], [], [], [], []
        turn_number = unwritable = 0
        for group in batch.groups:
            values = advantages_of(group, self.config.objective.advantage).values_N
            for trajectory, advantage in zip(group.trajectories, values, strict=True):
                for example, worker in self._examples(trajectory):
                    turn_number += 1
                    if example is None:
                        unwritable += 1
                        continue
                    examples.append(example)
                    workers.append(worker)
                    advantages.append(advantage)
                    trajectories.append(trajectory.attempt.id)
                    groups.append(group.id)
                    if kept is not None:
                        selected.append(kept[turn_number - 1])
        if not examples:
            raise LearnerFault(f"update {batch.update} has no turn to train on, {unwritable} could not be written")
        shape = (len(examples), max(len(example.tokens) for example in examples))
        mask, reported = np.zeros(shape, dtype=bool), np.full(shape, np.nan, dtype=np.float32)
        for number, (example, worker) in enumerate(zip(examples, workers, strict=True)):
            mask[number, : len(example.tokens)] = True
            if worker is not None:
                reported[number, : len(worker)] = worker
        data = _Data(
            examples,
            torch.from_numpy(mask),
            torch.tensor(np.array(advantages), dtype=torch.float32),
            torch.from_numpy(reported),
            torch.tensor(trajectories),
            torch.tensor(groups),
            torch.tensor(selected) if kept is not None else None,
        )
        return data, unwritable

    def _examples(self, trajectory: Trajectory) -> Iterator[tuple[Example | None, Any]]:
        """Yield each turn with the log-probabilities of its worker, which may be None."""
        for number, turn in enumerate(trajectory.turns):
            tokens = self._tokens(turn)
            if tokens is None:
                yield None, None
                continue
            prompt = self.vlm.prompts.build(turn.observation, trajectory.turns[:number])
            states = np.asarray(self.vlm.grammar.states(tokens.tolist()), dtype=np.int64)
            reported = turn.reply.logprobs
            yield Example(prompt, tokens, states), reported if turn.reply.tokens is not None else None

    def _tokens(self, turn: Turn) -> Any:
        if turn.reply.tokens is not None:
            return np.asarray(turn.reply.tokens, dtype=np.int64)
        try:
            return np.asarray(self.vlm.grammar.tokens(turn.reply.action), dtype=np.int64)
        except ValueError:
            return None

    def _order(self, batch: Batch, everything: Tensor, group_B: Tensor) -> Iterator[Tensor]:
        """Yield the turns of each gradient step; the groups of a batch are dealt to its mini-batches."""
        if self.config.minibatches == 1:
            for _ in range(self.config.epochs):
                yield everything
            return
        rng = np.random.default_rng([self.seed, batch.update])
        for _ in range(self.config.epochs):
            ids = rng.permutation(np.unique(group_B.numpy()))
            for part in np.array_split(ids, min(self.config.minibatches, len(ids))):
                yield torch.from_numpy(np.flatnonzero(np.isin(group_B.numpy(), part)))

    # ---- gradient steps

    def _micro_batches(self, examples: Sequence[Example]) -> list[list[Row]]:
        return split(rows_of(examples), max_tokens=self.config.max_tokens)

    @torch.no_grad()
    def _score_all(self, vlm: Vlm, data: _Data) -> tuple[Tensor, Tensor]:
        """Return [B, T] log-probabilities and entropies of a whole batch."""
        logprobs_BT, entropies_BT = torch.zeros(data.mask.shape), torch.zeros(data.mask.shape)
        for rows in self._micro_batches(data.examples):
            packed = pack(vlm, rows, data.examples)
            logprobs, entropies = score(vlm, packed)
            logprobs_BT[packed.member, packed.column] = logprobs
            entropies_BT[packed.member, packed.column] = entropies
        return logprobs_BT, entropies_BT

    def _step(
        self, data: _Data, rows: Tensor, old_BT: Tensor | None, reference_BT: Tensor | None
    ) -> tuple[Health, float, float]:
        """Take one gradient step on some turns; return their health, the gradient's norm and the loss."""
        settings = self.config.objective
        chosen = rows.tolist()
        examples = [data.examples[i] for i in chosen]
        whole = data.turns(rows, new_BT=torch.zeros(data.mask[rows].shape))
        shares = token_shares(whole, settings)
        health, loss = Health(), 0.0
        self.optimizer.zero_grad()
        for micro in self._micro_batches(examples):
            here = torch.tensor(sorted(member for row in micro for member in row.members))
            new_BT, entropy_BT = self._score(micro, examples, here, data.mask.shape[1])
            result = objective(
                data.turns(
                    rows[here],
                    new_BT=new_BT,
                    entropy_BT=entropy_BT,
                    old_BT=None if old_BT is None else old_BT[rows[here]],
                    reference_BT=None if reference_BT is None else reference_BT[rows[here]],
                ),
                settings,
                shares=TokenShares(policy_BT=shares.policy_BT[here], kl_BT=shares.kl_BT[here]),
            )
            result.loss.backward()  # type: ignore[no-untyped-call]
            health += result.health
            loss += result.loss.item()
        norm = float(torch.nn.utils.clip_grad_norm_(self._parameters.values(), self.config.max_grad_norm))
        if not (np.isfinite(norm) and np.isfinite(loss)):
            self.optimizer.zero_grad()
            raise LearnerFault(f"loss {loss} and gradient norm {norm} after update {self.updates} are not finite")
        for group in self.optimizer.param_groups:
            group["lr"] = self._learning_rate()
        self.optimizer.step()
        return health, norm, loss

    def _score(self, micro: list[Row], examples: list[Example], here: Tensor, width: int) -> tuple[Tensor, Tensor]:
        """Return [b, T] log-probabilities and entropies of a micro-batch's turns, with gradient."""
        packed = pack(self.vlm, micro, examples)
        logprobs, entropies = score(self.vlm, packed)
        at = torch.searchsorted(here, packed.member) * width + packed.column
        blank = torch.zeros(len(here) * width)
        shape = (len(here), width)
        return blank.index_copy(0, at, logprobs).view(shape), blank.index_copy(0, at, entropies).view(shape)

    def _learning_rate(self) -> float:
        warmup = self.config.warmup_updates
        share = min(1.0, (self.updates + 1) / warmup) if warmup else 1.0
        return self.config.learning_rate * share

    # ---- checkpoints

    def save(self, folder: Path) -> None:
        """Write weights, optimizer and progress, so that ``load`` goes on exactly; a folder appears whole or not."""
        partial = folder.with_name(folder.name + ".partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        tensors, numbers = self._state()
        save_file({k: v for k, v in tensors.items() if k.startswith("weight/")}, partial / "weights.safetensors")
        rest = {k: v for k, v in tensors.items() if not k.startswith("weight/")}
        save_file(rest, partial / "optimizer.safetensors")
        text = json.dumps({**numbers, "seed": self.seed, "torch": torch.__version__}, indent=1)
        (partial / "learner.json").write_text(text + "\n", encoding="utf-8")
        shutil.rmtree(folder, ignore_errors=True)
        partial.rename(folder)

    def load(self, folder: Path) -> None:
        """Go on from a checkpoint.

        Raises:
            ValueError: If it is another model's, or another seed's.
        """
        numbers = json.loads((folder / "learner.json").read_text(encoding="utf-8"))
        if numbers["seed"] != self.seed:
            raise ValueError(f"checkpoint {folder} has seed {numbers['seed']}, this learner {self.seed}")
        tensors = load_file(folder / "weights.safetensors") | load_file(folder / "optimizer.safetensors")
        self._restore((tensors, numbers))

    def _state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return copies of the trained weights and the optimizer's state, and the numbers beside them."""
        tensors = {f"weight/{name}": p.detach().clone() for name, p in self._parameters.items()}
        for name, parameter in self._parameters.items():
            for key, value in self.optimizer.state.get(parameter, {}).items():
                tensors[f"{key}/{name}"] = torch.as_tensor(value).clone()
        return tensors, {"updates": self.updates}

    def _restore(self, state: tuple[dict[str, Tensor], dict[str, Any]]) -> None:
        tensors, numbers = state
        names = {name.removeprefix("weight/") for name in tensors if name.startswith("weight/")}
        if names != self._parameters.keys():
            odd = sorted(names ^ self._parameters.keys())
            raise ValueError(f"the checkpoint is of another model: {len(odd)} names differ, first {odd[0]}")
        self.optimizer.state.clear()
        with torch.no_grad():
            for name, parameter in self._parameters.items():
                parameter.copy_(tensors[f"weight/{name}"])
                kept = {key: tensors.get(f"{key}/{name}") for key in ("step", "exp_avg", "exp_avg_sq")}
                if kept["step"] is not None:
                    self.optimizer.state[parameter] = {key: t.clone() for key, t in kept.items() if t is not None}
        self.updates = int(numbers["updates"])


def _optimizer(parameters: list[Any], config: LearnerConfig) -> torch.optim.AdamW:
    matrices = [p for p in parameters if p.ndim > 1]
    others = [p for p in parameters if p.ndim <= 1]
    groups = [{"params": matrices, "weight_decay": config.weight_decay}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(
        [group for group in groups if group["params"]], lr=config.learning_rate, betas=config.betas, fused=True
    )
