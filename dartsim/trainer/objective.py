"""The objective: step-wise GRPO, GSPO, divergence from a reference, truncated importance sampling.

Three policies give each sampled token a probability: the trained one (new), the learner's before the update (old),
and the one that the rollout worker sampled from (worker; mu in the paper).

Shapes, as suffixes: B turns (one row each), T response tokens of the longest turn, padded. torch is imported only in
functions that need it. Settings are in ``dartsim.config.sections.trainer``.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from dartsim.config.sections.trainer import ObjectiveConfig
from dartsim.trainer.health import Health

if TYPE_CHECKING:
    from torch import Tensor

LOG_RATIO_LIMIT = 20.0
"""Clamp of log ratios, nats."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnBatch:
    """The inputs of the objective for a batch or a micro-batch. Values at padding are never read.

    Attributes:
        new_BT: [B, T] log-probabilities of the sampled tokens under the trained policy, nats, with gradient.
        mask_BT: [B, T] bool, true at response tokens. A row without any is padding.
        advantage_B: [B] advantages.
        old_BT: [B, T] log-probabilities under the policy before the update; None: the new ones, detached,
            which is exact for a single gradient step on a batch.
        worker_BT: [B, T] log-probabilities that the worker reported, NaN where missing; None: all are missing.
        reference_BT: [B, T] log-probabilities under the reference; needed where its coefficient is not 0.
        entropy_BT: [B, T] entropies of the trained policy, nats; needed, with gradient, for an entropy bonus.
        selected_B: [B] bool, turns that selection kept; None: all.
        trajectory_B: [B] int, trajectory of each turn; needed to aggregate by trajectory.
        group_B: [B] int, group of each turn; needed to aggregate by group.
    """

    new_BT: Tensor
    mask_BT: Tensor
    advantage_B: Tensor
    old_BT: Tensor | None = None
    worker_BT: Tensor | None = None
    reference_BT: Tensor | None = None
    entropy_BT: Tensor | None = None
    selected_B: Tensor | None = None
    trajectory_B: Tensor | None = None
    group_B: Tensor | None = None

    def __post_init__(self) -> None:
        import torch

        rows, columns = self.mask_BT.shape
        if self.mask_BT.dtype != torch.bool:
            raise ValueError(f"mask_BT must be bool, got {self.mask_BT.dtype}")
        for item in fields(self):
            name, value = item.name, getattr(self, item.name)
            wanted = (rows, columns) if name.endswith("_BT") else (rows,)
            if value is not None and tuple(value.shape) != wanted:
                raise ValueError(f"{name} must be of shape {wanted} as mask_BT is, got {tuple(value.shape)}")

    def missing(self) -> Tensor:
        """Return [B] bool, the turns in which some response token lacks its worker's log-probability."""
        if self.worker_BT is None:
            return self.mask_BT.any(1)
        return (self.mask_BT & ~self.worker_BT.isfinite()).any(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """The objective's value.

    Attributes:
        loss: Scalar to minimize, with gradient.
        health: Figures of the same turns, without gradient.
    """

    loss: Tensor
    health: Health


def token_shares(batch: TurnBatch, config: ObjectiveConfig) -> Tensor:
    """Return [B, T] shares of tokens in the batch's averages; 0 where nothing is trained.

    Unselected turns count in the denominator. Log-probabilities matter only where they are missing. Computed once over
    a whole batch, the shares make the losses of its micro-batches add up to the batch's loss.

    Raises:
        ValueError: If an aggregation's ids are absent.
    """
    trainable_BT = batch.mask_BT
    if config.importance != "off" and config.missing == "mask":
        trainable_BT = trainable_BT & ~batch.missing()[:, None]
    selected_BT = trainable_BT if batch.selected_B is None else trainable_BT & batch.selected_B[:, None]
    return _shares(trainable_BT, batch, config) * selected_BT


def objective(batch: TurnBatch, config: ObjectiveConfig, *, shares_BT: Tensor | None = None) -> Objective:
    """Return the loss, -mean[w S - beta KL + eta H], and the health of a batch.

    Args:
        batch: Turns.
        config: Which objective.
        shares_BT: Shares of these turns in the whole batch, if this is a micro-batch; None: this is the whole batch.

    Raises:
        ValueError: If an input that the settings need is absent.

    Source: DART (arXiv 2509.23866), the objective with distribution alignment and high-entropy steps; the
        ratio by turn is GSPO's (arXiv 2507.18071), k3 is Schulman's.
    """
    import torch

    shares_BT = token_shares(batch, config) if shares_BT is None else shares_BT
    mask_BT = batch.mask_BT
    new_BT = _clean(batch.new_BT, mask_BT)
    old_BT = new_BT.detach() if batch.old_BT is None else _clean(batch.old_BT, mask_BT).detach()

    ratio_BT = _limit(_log_ratio(new_BT - old_BT, mask_BT, config.ratio)).exp()
    surrogate_BT = _surrogate(ratio_BT, batch.advantage_B.to(new_BT.dtype)[:, None], config)
    weight_BT, raw_BT = _importance_weights(batch, old_BT, config)
    loss = -_total(shares_BT, weight_BT * surrogate_BT)

    kl_BT = None
    if batch.reference_BT is not None:
        kl_BT = k3(new_BT, _clean(batch.reference_BT, mask_BT).detach())
        if config.kl_coefficient:
            loss = loss + config.kl_coefficient * _total(shares_BT, kl_BT)
    elif config.kl_coefficient:
        raise ValueError(f"kl_coefficient {config.kl_coefficient} needs reference_BT, got None")
    if config.entropy_coefficient:
        if batch.entropy_BT is None:
            raise ValueError(f"entropy_coefficient {config.entropy_coefficient} needs entropy_BT, got None")
        loss = loss - config.entropy_coefficient * _total(shares_BT, _clean(batch.entropy_BT, mask_BT))
    with torch.no_grad():
        health = _health(batch, config, shares_BT, ratio_BT, old_BT, new_BT, weight_BT, raw_BT, kl_BT)
    return Objective(loss=loss, health=health)


def k3(new_BT: Tensor, reference_BT: Tensor, *, limit: float = LOG_RATIO_LIMIT) -> Tensor:
    """Return the k3 estimate of KL(new || reference) at each token, exp(d) - d - 1 with d = reference - new.

    Args:
        new_BT: [B, T] log-probabilities of tokens that the new policy sampled, nats.
        reference_BT: [B, T] log-probabilities of the same tokens under the reference, nats.
        limit: Bound of |d|, nats.

    Source: DART's formula sheet; J. Schulman, "Approximating KL divergence" (2020).
    """
    d_BT = (reference_BT - new_BT).clamp(-limit, limit)
    return d_BT.exp() - d_BT - 1.0


def truncated_ratio(old_BT: Tensor, worker_BT: Tensor, *, cap: float) -> Tensor:
    """Return the importance weight of each token, min(exp(old - worker), cap), without gradient.

    Args:
        old_BT: [B, T] log-probabilities under the learner before the update, nats.
        worker_BT: [B, T] log-probabilities under the worker's policy, nats.
        cap: Largest weight, > 0.

    Source: DART (arXiv 2509.23866), distribution alignment.
    """
    return (old_BT - worker_BT).exp().clamp(max=cap).detach()


def _shares(counted_BT: Tensor, batch: TurnBatch, config: ObjectiveConfig) -> Tensor:
    """Return [B, T] shares that add up to 1 over the counted tokens (to 0 if there are none)."""
    counted_BT = counted_BT.to(_widen(batch.new_BT).dtype)
    length_B = counted_BT.sum(1)
    turn_B = (length_B > 0).to(length_B.dtype)
    if config.aggregation == "token":
        whole_B = length_B.sum().expand_as(length_B)
    elif config.aggregation == "turn":
        whole_B = length_B * turn_B.sum()
    elif config.aggregation == "trajectory":
        length_of_B, units = _by_id(length_B, batch.trajectory_B, "trajectory")
        whole_B = length_of_B * units
    else:
        turns_of_B, units = _by_id(turn_B, batch.group_B, "group")
        whole_B = length_B * turns_of_B * units
    return counted_BT / whole_B.clamp(min=1.0)[:, None]


def _by_id(value_B: Tensor, id_B: Tensor | None, what: str) -> tuple[Tensor, Tensor]:
    """Return [B] sums of values over the turns of the same id, and the number of ids whose sum is not 0."""
    if id_B is None:
        raise ValueError(f"aggregation by {what} needs {what}_B, got None")
    import torch

    _, index_B = torch.unique(id_B, return_inverse=True)
    sums = value_B.new_zeros(value_B.shape).index_add(0, index_B, value_B)
    return sums[index_B], (sums > 0).sum().to(value_B.dtype)


def _clean(value_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """Return values in at least float32, 0 at padding, so that nothing there reaches a sum or a gradient."""
    return _widen(value_BT).masked_fill(~mask_BT, 0.0)


def _widen(value_BT: Tensor) -> Tensor:
    """Return values of lower precision as float32, others unchanged."""
    import torch

    return value_BT.to(torch.promote_types(value_BT.dtype, torch.float32))


def _limit(log_ratio: Tensor) -> Tensor:
    return log_ratio.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)


def _log_ratio(difference_BT: Tensor, mask_BT: Tensor, ratio: str) -> Tensor:
    """Return [B, T] log ratios; with ``sequence``, the same for all tokens of a turn."""
    if ratio == "token":
        return difference_BT
    mean_B = difference_BT.sum(1) / mask_BT.sum(1).clamp(min=1)
    return mean_B[:, None].expand_as(difference_BT)


def _surrogate(ratio_BT: Tensor, advantage_B1: Tensor, config: ObjectiveConfig) -> Tensor:
    """Return the clipped surrogate, min(rho A, clip(rho) A)."""
    clipped_BT = ratio_BT.clamp(1.0 - config.clip_low, 1.0 + config.clip_high)
    return (ratio_BT * advantage_B1).minimum(clipped_BT * advantage_B1)


def _importance_weights(batch: TurnBatch, old_BT: Tensor, config: ObjectiveConfig) -> tuple[Tensor, Tensor]:
    """Return [B, T] weights, truncated and raw, without gradient; 1 where log-probabilities are missing."""
    if batch.worker_BT is None or config.importance == "off":
        ones_BT = old_BT.new_ones(old_BT.shape)
        return ones_BT, ones_BT
    known_BT = batch.mask_BT & ~batch.missing()[:, None]
    difference_BT = (old_BT - batch.worker_BT.detach()).masked_fill(~known_BT, 0.0)
    if config.importance == "sequence":
        difference_BT = difference_BT.sum(1, keepdim=True).expand_as(difference_BT)
    difference_BT = _limit(difference_BT)
    raw_BT = difference_BT.exp()
    weight_BT = truncated_ratio(difference_BT, difference_BT.new_zeros(()), cap=config.importance_cap)
    return weight_BT.masked_fill(~known_BT, 1.0), raw_BT.masked_fill(~known_BT, 1.0)


def _total(share_BT: Tensor, value_BT: Tensor) -> Tensor:
    return (share_BT * value_BT).sum()


def _health(
    batch: TurnBatch,
    config: ObjectiveConfig,
    shares_BT: Tensor,
    ratio_BT: Tensor,
    old_BT: Tensor,
    new_BT: Tensor,
    weight_BT: Tensor,
    raw_BT: Tensor,
    kl_BT: Tensor | None,
) -> Health:
    """Return the sums of ``Health``, with a single transfer from the device."""
    import torch

    mask_BT, missing_B = batch.mask_BT, batch.missing()
    turn_B = mask_BT.any(1)
    trained_BT = shares_BT > 0
    masks_missing = config.importance != "off" and config.missing == "mask"
    masked_B = turn_B & missing_B if masks_missing else turn_B & False
    selected_B = turn_B if batch.selected_B is None else batch.selected_B
    unselected_B = turn_B & ~selected_B & ~masked_B
    advantage_B1 = batch.advantage_B[:, None]
    negative_BT, positive_BT = trained_BT & (advantage_B1 < 0), trained_BT & (advantage_B1 > 0)

    sums: dict[str, Tensor] = {
        "turns": turn_B.sum(),
        "missing_turns": missing_B.sum(),
        "masked_turns": masked_B.sum(),
        "unselected_turns": unselected_B.sum(),
        "tokens": trained_BT.sum(),
        "ratio": ratio_BT[trained_BT].sum(),
        "clipped_low": (negative_BT & (ratio_BT < 1.0 - config.clip_low)).sum(),
        "clipped_high": (positive_BT & (ratio_BT > 1.0 + config.clip_high)).sum(),
        "kl_old_new": k3(old_BT, new_BT)[trained_BT].sum(),
    }
    if kl_BT is not None:
        sums |= {"kl_reference": kl_BT[trained_BT].sum(), "reference_tokens": trained_BT.sum()}
    if batch.entropy_BT is not None:
        sums |= {"entropy": batch.entropy_BT[trained_BT].sum(), "entropy_tokens": trained_BT.sum()}
    if batch.worker_BT is not None:
        known_BT = mask_BT & batch.worker_BT.isfinite()
        gap = (old_BT - batch.worker_BT)[known_BT].abs()
        sums |= {"mismatch": gap.sum(), "mismatch_tokens": known_BT.sum()}
        sums["mismatch_max"] = gap.max() if gap.numel() else gap.sum()
        if config.importance != "off":
            sums |= _weight_sums(weight_BT, raw_BT, trained_BT & ~missing_B[:, None], config)
    numbers = torch.stack([value.to(torch.float64) for value in sums.values()]).tolist()
    return Health(**dict(zip(sums, numbers, strict=True)))


def _weight_sums(weight_BT: Tensor, raw_BT: Tensor, counted_BT: Tensor, config: ObjectiveConfig) -> dict[str, Tensor]:
    """Return the sums over importance weights: one per token, or with ``sequence`` one per turn."""
    if config.importance == "sequence":
        first_BT = counted_BT.cumsum(1) == 1
        counted_BT = counted_BT & first_BT
    weight, raw = weight_BT[counted_BT].double(), raw_BT[counted_BT].double()
    return {
        "weights": counted_BT.sum(),
        "weight": weight.sum(),
        "weight_squared": (weight**2).sum(),
        "raw_weight": raw.sum(),
        "raw_weight_squared": (raw**2).sum(),
        "capped": (raw > config.importance_cap).sum(),
    }
