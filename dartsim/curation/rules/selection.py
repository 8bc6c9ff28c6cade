"""Which turns of a group are trained on: DART's high-entropy steps."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from math import ceil
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field
from typing_extensions import override

from dartsim.core.registry import ComponentSection, register
from dartsim.core.types import Group, Reply, Trajectory


class TurnSelection(ABC):
    """Decides which turns of a group are trained on. Advantages are still those of the whole group."""

    Parameters: ClassVar[type[ComponentSection]] = ComponentSection
    needs_entropies: ClassVar[bool] = False

    def __init__(self, parameters: ComponentSection | None = None) -> None:
        self.parameters = parameters

    @abstractmethod
    def select(self, group: Group) -> Sequence[Sequence[bool]]:
        """Return whether each turn is trained on, by trajectory."""


@register("selection", "all")
class AllTurns(TurnSelection):
    """Every turn (DART's released code, where selection is commented out)."""

    @override
    def select(self, group: Group) -> Sequence[Sequence[bool]]:
        return tuple((True,) * len(t.turns) for t in group.trajectories)


@register("selection", "high_entropy")
class HighEntropyTurns(TurnSelection):
    """The turns of a group with the highest entropy (DART's paper): exactly ceil(share * turns).

    Ties are broken in favor of the lower (attempt, turn). Turns without entropies cannot be ranked: they are kept, and
    the share applies to the others.
    """

    class Parameters(ComponentSection):
        """How many turns are kept, and which are not ranked."""

        share: float = Field(0.8, gt=0.0, le=1.0, description="Share of a group's turns that is kept (DART: 0.8).")
        keep: Literal["stored", "successes"] | None = Field(
            None,
            description="Attempts that are kept whole: stored successes, or all whose reward is above the group's "
            "mean; none: no (DART). What is never solved is mostly what a policy is sure of and wrong about, so that "
            "the entropies of the first weights are low there, and the paper's rule cuts the very turns that the pool "
            "brings.",
        )

    needs_entropies: ClassVar[bool] = True

    def __init__(self, parameters: Parameters) -> None:
        self._parameters = parameters

    @override
    def select(self, group: Group) -> Sequence[Sequence[bool]]:
        ranked: list[tuple[float, int, int, int]] = []
        kept = [[True] * len(t.turns) for t in group.trajectories]
        for place, trajectory in enumerate(group.trajectories):
            if self._kept_whole(trajectory, group):
                continue
            for index, turn in enumerate(trajectory.turns):
                entropy = turn_entropy(turn.reply)
                if entropy is not None:
                    ranked.append((-entropy, trajectory.attempt.id, index, place))
        ranked.sort()
        for _, _, index, place in ranked[num_turns_kept(len(ranked), self._parameters.share) :]:
            kept[place][index] = False
        return tuple(tuple(flags) for flags in kept)

    def _kept_whole(self, trajectory: Trajectory, group: Group) -> bool:
        """Return whether all turns of a trajectory are kept without ranking."""
        if self._parameters.keep != "successes":
            return self._parameters.keep == "stored" and trajectory.attempt.group != group.id
        rewards = [t.reward or 0.0 for t in group.trajectories]
        return len(rewards) * (trajectory.reward or 0.0) > sum(rewards)


def num_turns_kept(num_turns: int, share: float) -> int:
    """Return ceil(share * num_turns), with ``share`` taken as a decimal number."""
    return ceil(share * num_turns - 1e-9)  # .07 * 100 is 7.000000000000001 in floats


def turn_entropy(reply: Reply) -> float | None:
    """Return the mean entropy over the response tokens of a reply, nats; None if they are unusable.

    Entries beyond ``response_tokens`` are padding. Entropies are unusable if there are too few, or one is not finite.
    """
    entropies: Any = reply.entropies
    if entropies is None or reply.response_tokens < 1:
        return None
    values = np.asarray(entropies, dtype=np.float64)[: reply.response_tokens]
    if len(values) < reply.response_tokens or not np.isfinite(values).all():
        return None
    return float(values.mean())
