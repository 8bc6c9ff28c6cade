"""``GradientSteps``: from a batch's tensors to new weights, in one process or as one of several.

Weights of tokens, turns and groups in the loss refer to the whole batch, however it is split into processes and
micro-batches, so the parts of a loss add up to the loss of a single process with the whole batch.

Weights with less precision than float32 are trained as float32 copies, their masters, because bfloat16 rounds a step of
1e-6 to nothing. Gradients are added up in float32, and after each step the masters are rounded into the model, which is
used for computing and serving.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import ceil
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from dartsim.config.sections.trainer import ObjectiveConfig, OptimizerConfig, TrainerConfig
from dartsim.core.errors import BatchUntrainable
from dartsim.real.learners.mismatch import Mismatch
from dartsim.real.learners.ranks import Ranks
from dartsim.real.learners.turn_data import TurnData
from dartsim.real.vlm.model import Vlm
from dartsim.real.vlm.packing import Packed, PackedRow, pack, rows_of, score, split
from dartsim.trainer.health import Health
from dartsim.trainer.objective import objective, token_shares

TINY = TrainerConfig(
    objective=ObjectiveConfig(kl_coefficient=0.0, entropy_coefficient=0.02),
    optimizer=OptimizerConfig(learning_rate=7e-4, max_tokens=4_096),
)
"""Defaults for a model of width 64 with random weights."""

BETAS = 0.9, 0.98
"""AdamW's decay of the mean gradient, and of the mean squared gradient."""

Scorer = Callable[[Packed], tuple[Tensor, Tensor]]
"""Returns the log-probabilities and entropies [M] of a pack's reply tokens, on the CPU and with gradient."""

State = tuple[dict[str, Tensor], dict[str, Any]]
"""Trained weights and optimizer state by name, and numbers such as ``updates``."""


class GradientStep(NamedTuple):
    """Report of one gradient step."""

    health: Health
    mismatch: Mismatch
    grad_norm: float
    loss: float
    rows: list[PackedRow]


class GradientSteps:
    """Takes the gradient steps of an update."""

    def __init__(
        self,
        vlm: Vlm,
        config: TrainerConfig,
        *,
        seed: int,
        reference: Vlm | None = None,
        ranks: Ranks | None = None,
        scorers: tuple[Scorer, Scorer | None] | None = None,
    ) -> None:
        self.config = config
        self.updates = 0
        self._seed = seed
        self._vlm = vlm
        self._ranks = ranks or Ranks()
        self._score, self._score_reference = scorers or (
            _scorer(vlm),
            None if reference is None else _scorer(reference),
        )
        trained = {n: p for n, p in vlm.model.named_parameters() if p.requires_grad}
        self.parameters: dict[str, Tensor] = {n: _master(p) for n, p in trained.items()}
        """The optimizer's parameters by name: the model's own, or their masters where these are not float32."""
        self._rounded = [(trained[n], master) for n, master in self.parameters.items() if master is not trained[n]]
        self.optimizer = _optimizer(list(self.parameters.values()), config.optimizer)

    def fit(self, data: TurnData, update: int) -> dict[str, float]:
        """Train on a batch and return metrics; if that fails, weights and optimizer stay as before.

        Raises:
            BatchUntrainable: If no step has a token to train or a gradient other than 0, or one is not finite. Even
                without a gradient, momentum and weight decay would move the weights.
        """
        old_BT = reference_BT = None
        several = self.config.optimizer.minibatches * self.config.optimizer.epochs > 1
        if several:
            old_BT, _ = self.score(data)
        if self._score_reference is not None:
            reference_BT, _ = self._score_all(self._score_reference, data)
        before = self._snapshot() if several else None
        health, mismatch, norms, losses, rows = Health(), Mismatch(), [], [], []
        try:
            for turns in self._order(data.group, update):
                step = self._step(data, turns, old_BT, reference_BT)
                if step is None:
                    continue
                health, mismatch = health + step.health, mismatch + step.mismatch
                norms.append(step.grad_norm)
                losses.append(step.loss)
                rows += step.rows
            if not norms:
                raise BatchUntrainable(
                    f"update {update}: no token of its {len(data.examples)} turns changes the weights; "
                    f"{int(_missing(data).sum())} turns came without usable log-probabilities, "
                    f"{int((data.advantage == 0.0).sum())} have an advantage of 0"
                )
        except BaseException:  # any step may run out of memory
            self._zero_grad()
            if before is not None:
                self._roll_back(before)
            raise
        self.updates = update
        turn_tokens = self.config.optimizer.epochs * sum(example.length for example in data.examples)
        return {
            "learner/loss": float(np.mean(losses)),
            "learner/grad_norm": float(np.mean(norms)),
            "learner/learning_rate": self.optimizer.param_groups[0]["lr"],
            "learner/turns": float(len(data.examples)),
            "learner/sequences": float(len(rows)),
            "learner/computed_tokens": float(sum(row.length for row in rows)),
            "learner/turn_tokens": float(turn_tokens),
            "learner/response_tokens": float(data.mask.sum()),
            "learner/unwritable_turns": float(data.unwritable),
            **mismatch.metrics(self.config.mismatch_bound),
            **health.metrics(),
        }

    def score(self, data: TurnData) -> tuple[Tensor, Tensor]:
        """Return [B, T] log-probabilities and entropies of a whole batch under the present weights, nats."""
        return self._score_all(self._score, data)

    def state(self, *, copy: bool = True) -> State:
        """Return the trained weights and the optimizer's state, as copies or as they are."""

        def read(value: Any) -> Tensor:
            tensor = torch.as_tensor(value).detach()
            return tensor.clone() if copy else tensor

        tensors = {f"weight/{name}": read(p) for name, p in self.parameters.items()}
        for name, parameter in self.parameters.items():
            for key, value in self.optimizer.state.get(parameter, {}).items():
                tensors[f"{key}/{name}"] = read(value)
        return tensors, {"updates": self.updates}

    def restore(self, state: State) -> None:
        tensors, numbers = state
        names = {name.removeprefix("weight/") for name in tensors if name.startswith("weight/")}
        if names != self.parameters.keys():
            odd = sorted(names ^ self.parameters.keys())
            raise ValueError(f"the checkpoint is of another model: {len(odd)} names differ, first {odd[0]}")
        self.optimizer.state.clear()
        with torch.no_grad():
            for name, parameter in self.parameters.items():
                parameter.copy_(tensors[f"weight/{name}"])
                stored = {key: tensors.get(f"{key}/{name}") for key in ("step", "exp_avg", "exp_avg_sq")}
                if stored["step"] is not None:
                    moments = {key: t.clone() for key, t in stored.items() if t is not None}
                    # Checkpoints of other versions may have moments in the model's type.
                    self.optimizer.state[parameter] = {key: t.to(torch.float32) for key, t in moments.items()}
        self._round()
        self.updates = int(numbers["updates"])

    def _snapshot(self) -> tuple[list[Tensor], list[dict[str, Tensor]]]:
        """Return this process's parts of weights and moments, copied to the host, because a GPU may lack the memory."""
        weights = [_on_host(parameter) for parameter in self.parameters.values()]
        moments = [self.optimizer.state.get(parameter, {}) for parameter in self.parameters.values()]
        return weights, [{key: _on_host(value) for key, value in state.items()} for state in moments]

    @torch.no_grad()
    def _roll_back(self, before: tuple[list[Tensor], list[dict[str, Tensor]]]) -> None:
        """Return to the weights and moments of ``_snapshot``."""
        for parameter, weights, moments in zip(self.parameters.values(), *before, strict=True):
            _local(parameter).copy_(weights)
            if not moments:  # there was no step yet
                self.optimizer.state.pop(parameter, None)
            for key, value in moments.items():
                _local(self.optimizer.state[parameter][key]).copy_(value)
        self._round()

    def _order(self, group_B: Tensor, update: int) -> Iterator[Tensor]:
        """Yield the turns of each gradient step; mini-batches consist of whole groups."""
        if self.config.optimizer.minibatches == 1:
            for _ in range(self.config.optimizer.epochs):
                yield torch.arange(len(group_B))
            return
        rng = np.random.default_rng([self._seed, update])
        for _ in range(self.config.optimizer.epochs):
            ids = rng.permutation(np.unique(group_B.numpy()))
            for part in np.array_split(ids, min(self.config.optimizer.minibatches, len(ids))):
                yield torch.from_numpy(np.flatnonzero(np.isin(group_B.numpy(), part)))

    def _micro_batches(self, rows: Sequence[PackedRow]) -> Iterator[tuple[list[PackedRow], bool]]:
        """Yield this process's micro-batches, and whether they count.

        All processes have the same number, and compute micro-batches of similar size at the same time, because each
        takes part in gathering every layer's weights. A process with too few repeats the shortest row, uncounted.
        """
        ranks = self._ranks
        batches = split(rows, max_tokens=self.config.optimizer.max_tokens, ranks=ranks.size)
        batches.sort(key=lambda batch: -sum(row.length for row in batch))
        mine = batches[ranks.rank :: ranks.size]
        yield from ((micro, True) for micro in mine)
        if len(mine) < ceil(len(batches) / ranks.size):
            yield [min(rows, key=lambda row: row.length)], False

    @torch.no_grad()
    def _score_all(self, scorer: Scorer, data: TurnData) -> tuple[Tensor, Tensor]:
        logprobs_BT, entropies_BT = torch.zeros(data.mask.shape), torch.zeros(data.mask.shape)
        for micro, counts in self._micro_batches(rows_of(data.examples, pack=self.config.optimizer.pack)):
            packed = pack(self._vlm, micro, data.examples)
            logprobs, entropies = scorer(packed)
            if counts:
                logprobs_BT[packed.member, packed.column] = logprobs
                entropies_BT[packed.member, packed.column] = entropies
        return self._ranks.add(logprobs_BT), self._ranks.add(entropies_BT)

    def _step(
        self, data: TurnData, turns: Tensor, old_BT: Tensor | None, reference_BT: Tensor | None
    ) -> GradientStep | None:
        """Take one gradient step on some turns.

        None, and nothing changes, if there is no token to train or the gradient is 0.
        """
        examples = [data.examples[i] for i in turns.tolist()]
        rows = rows_of(examples, pack=self.config.optimizer.pack)
        whole = data.turns(turns, new_BT=torch.zeros(data.mask[turns].shape))
        shares_BT = token_shares(whole, self.config.objective)
        if not shares_BT.any():
            return None
        health, mismatch, loss = Health(), Mismatch(), 0.0
        self._zero_grad()
        for micro, counts in self._micro_batches(rows):
            packed = pack(self._vlm, micro, examples)
            logprobs, entropies = self._score(packed)
            if not counts:
                ((logprobs + entropies) * 0.0).sum().backward()  # type: ignore[no-untyped-call]
                self._collect_gradients()
                continue
            here = torch.unique(packed.member)  # sorted
            new_BT, entropy_BT = _spread(packed, here, data.mask.shape[1], logprobs, entropies)
            these = turns[here]
            inputs = data.turns(
                these,
                new_BT=new_BT,
                entropy_BT=entropy_BT,
                old_BT=None if old_BT is None else old_BT[these],
                reference_BT=None if reference_BT is None else reference_BT[these],
            )
            result = objective(inputs, self.config.objective, shares_BT=shares_BT[here])
            result.loss.backward()  # type: ignore[no-untyped-call]
            self._collect_gradients()
            health += result.health
            mismatch += Mismatch.of(
                new_BT if inputs.old_BT is None else inputs.old_BT,
                data.worker[these],
                inputs.mask_BT,
                data.fresh[these],
            )
            loss += result.loss.item()
        loss = float(self._ranks.add(torch.tensor(loss, dtype=torch.float64)))
        norm = self._clip_gradient()
        if not (np.isfinite(norm) and np.isfinite(loss)):
            raise BatchUntrainable(f"loss {loss} and gradient norm {norm} after update {self.updates} are not finite")
        if norm == 0.0:
            return None
        health, mismatch = self._ranks.health(health), self._ranks.mismatch(mismatch)
        for group in self.optimizer.param_groups:
            group["lr"] = self.config.optimizer.learning_rate
        self.optimizer.step()  # the last thing that can fail
        self._round()
        return GradientStep(health, mismatch, norm, loss, rows)

    def _zero_grad(self) -> None:
        self.optimizer.zero_grad()
        for parameter, _ in self._rounded:
            parameter.grad = None

    @torch.no_grad()
    def _collect_gradients(self) -> None:
        """Add the gradients of a micro-batch to those of the masters."""
        for parameter, master in self._rounded:
            if parameter.grad is not None:
                gradient = parameter.grad.float()
                master.grad = gradient if master.grad is None else master.grad + gradient
                parameter.grad = None

    @torch.no_grad()
    def _round(self) -> None:
        """Round the masters into the model."""
        for parameter, master in self._rounded:
            parameter.copy_(master)

    def _clip_gradient(self) -> float:
        """Clip the gradient to ``max_grad_norm`` and return its norm before."""
        grads = [_local(p.grad) for p in self.parameters.values() if p.grad is not None]
        norm = self._ranks.norm(torch.nn.utils.get_total_norm(grads))
        factor = torch.clamp(self.config.optimizer.max_grad_norm / (norm + 1e-6), max=1.0)
        torch._foreach_mul_(grads, factor)
        return float(norm)


def _spread(packed: Packed, here: Tensor, width: int, *values: Tensor) -> tuple[Tensor, ...]:
    """Return values [M] of a micro-batch's tokens as [b, T], one row for each of its turns."""
    at = torch.searchsorted(here, packed.member) * width + packed.column
    blank = torch.zeros(len(here) * width)
    return tuple(blank.index_copy(0, at, value).view(len(here), width) for value in values)


def _scorer(vlm: Vlm) -> Scorer:
    return lambda packed: score(vlm, packed)


def _master(parameter: Tensor) -> Tensor:
    """Return a parameter, or a float32 copy if it has less precision."""
    return parameter if parameter.dtype == torch.float32 else parameter.detach().to(torch.float32)


def _missing(data: TurnData) -> Tensor:
    """Return [B] bool, the turns of which some response token has no log-probability."""
    return data.turns(torch.arange(len(data.mask)), new_BT=torch.zeros(data.mask.shape)).missing()


def _local(tensor: Tensor) -> Tensor:
    """Return this process's part of a tensor."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def _on_host(tensor: Tensor) -> Tensor:
    """Return a copy of this process's part of a tensor in the host's memory."""
    return _local(tensor).detach().to("cpu", copy=True)


def _optimizer(parameters: list[Any], config: OptimizerConfig) -> torch.optim.AdamW:
    matrices = [p for p in parameters if p.ndim > 1]
    others = [p for p in parameters if p.ndim <= 1]
    groups = [{"params": matrices, "weight_decay": config.weight_decay}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(
        [group for group in groups if group["params"]],
        lr=config.learning_rate,
        betas=BETAS,
        fused=True,
    )
