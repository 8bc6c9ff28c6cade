"""Advantages: how much better an attempt did than its group (step-wise GRPO).

Every turn is one sample with its trajectory's reward, so a long attempt counts more in the group's mean and standard
deviation than a short one. ``level="trajectory"`` counts every attempt once, as GRPO on whole answers does. The rule
``group`` gives every turn the advantage of its attempt, the rule ``states`` one of its own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from dartsim.config.sections.trainer import AdvantageConfig
from dartsim.core.registry import register
from dartsim.core.rewards import all_equal
from dartsim.core.types import Group


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupAdvantages:
    """The advantages of one group.

    Attributes:
        values_N: [N] float64, one per trajectory, shared by all its turns.
        mean: The group's mean reward over samples.
        std: Standard deviation as configured, without ``epsilon``; 1 if advantages are not divided by it.
        num_samples: Turns, or trajectories, behind the statistics.
    """

    values_N: NDArray[np.float64]
    mean: float
    std: float
    num_samples: int


def group_advantages(rewards: Sequence[float], num_turns: Sequence[int], config: AdvantageConfig) -> GroupAdvantages:
    """Return the advantage of every trajectory of one group, (R - mean) / (std + epsilon).

    A group whose samples all have the same reward, within the tolerance, carries no signal: its advantages are exactly
    0. Otherwise, dividing by the spread would turn rounding errors into advantages as large as real ones.

    Args:
        rewards: [N] rewards of the unmasked trajectories.
        num_turns: [N] turns of each.
        config: Which statistics.

    Raises:
        ValueError: If the lengths differ, a number of turns is negative or a reward is not finite.

    Source: DART (arXiv 2509.23866), step-wise advantage: mean and std over all steps of a group.
    """
    reward_N = np.asarray(rewards, dtype=np.float64)
    turns_N = np.asarray(num_turns, dtype=np.int64)
    if reward_N.shape != turns_N.shape or reward_N.ndim != 1:
        raise ValueError(f"wanted one number of turns a reward, got {reward_N.shape} and {turns_N.shape}")
    if np.any(turns_N < 0) or not np.all(np.isfinite(reward_N)):
        raise ValueError(f"wanted finite rewards and turns of at least 0, got {rewards} and {num_turns}")
    samples_N = turns_N if config.level == "turn" else np.ones_like(turns_N)
    num_samples = int(samples_N.sum())
    zeros_N = np.zeros_like(reward_N)
    if num_samples == 0:
        return GroupAdvantages(values_N=zeros_N, mean=0.0, std=1.0, num_samples=0)
    if num_samples == 1 and config.lone_sample == "reward":
        alone_N = np.where(samples_N > 0, reward_N, 0.0)
        return GroupAdvantages(values_N=alone_N, mean=0.0, std=1.0, num_samples=1)

    mean = float(samples_N @ reward_N) / num_samples
    counted = reward_N[samples_N > 0]
    if all_equal(counted.tolist()):
        return GroupAdvantages(values_N=zeros_N, mean=mean, std=0.0, num_samples=num_samples)
    std = _spread(reward_N, samples_N, mean, config.spread)
    return GroupAdvantages(
        values_N=(reward_N - mean) / (std + config.epsilon if config.spread != "none" else 1.0),
        mean=mean,
        std=std,
        num_samples=num_samples,
    )


class AdvantageRule(ABC):
    """Decides how much better each turn of a group was than the group.

    A group whose rewards are all equal has advantages of exactly 0, unless it is a single sample.
    """

    Parameters: ClassVar[type[AdvantageConfig]] = AdvantageConfig

    def __init__(self, parameters: AdvantageConfig) -> None:
        self.parameters = parameters

    @abstractmethod
    def advantages(self, group: Group) -> list[NDArray[np.float64]]:
        """Return one advantage per turn, for each trajectory in order.

        Raises:
            ValueError: If a trajectory is masked.
        """


@register("advantage", "group")
class AttemptAdvantages(AdvantageRule):
    """All turns of an attempt share its advantage (DART)."""

    @override
    def advantages(self, group: Group) -> list[NDArray[np.float64]]:
        values_N = advantages_of(group, self.parameters).values_N
        return [np.full(len(t.turns), value) for t, value in zip(group.trajectories, values_N, strict=True)]


def advantages_of(group: Group, config: AdvantageConfig) -> GroupAdvantages:
    """Return the advantages of a group's trajectories, in order.

    Raises:
        ValueError: If one of them is masked.
    """
    rewards = [t.reward for t in group.trajectories if t.reward is not None]
    if len(rewards) < len(group.trajectories):
        raise ValueError(f"group {group.id} holds a masked trajectory, which has no reward to compare")
    return group_advantages(rewards, [len(t.turns) for t in group.trajectories], config)


def _spread(reward_N: NDArray[np.float64], samples_N: NDArray[np.int64], mean: float, spread: str) -> float:
    """Return the standard deviation of rewards that differ (so there are at least two samples)."""
    if spread == "none":
        return 1.0
    squares = float(samples_N @ (reward_N - mean) ** 2)
    return float(np.sqrt(squares / (samples_N.sum() - (spread == "unbiased"))))
