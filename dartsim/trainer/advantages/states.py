"""Advantages by turn: an attempt is compared with those attempts of its group that were in the same state."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from typing_extensions import override

from dartsim.config.sections.trainer import AdvantageConfig
from dartsim.core.png import key_of
from dartsim.core.registry import register
from dartsim.core.types import Group, Trajectory
from dartsim.trainer.advantages import AdvantageRule, advantages_of


@register("advantage", "states")
class StateAdvantages(AdvantageRule):
    """A turn's advantage is what the attempts that share its state say about it.

    The value of a state is the mean reward of the group's attempts that reach it, each counted once, with ``prior``
    further attempts at the group's mean. With ``decay`` 1 a turn gets reward less value, with 0 the change of value
    that its action causes, and in between their mix as in generalized advantage estimation. So turns in vain after a
    mistake get nothing, nor does a right action whose attempt fails later. Divided as ``spread`` says.

    Invariants: with ``decay`` 0 the advantages of a trajectory add up to its reward less the value of its first state;
    with ``decay`` 1 and an infinite ``prior`` they are those of the rule ``group``.

    Source: groups of equal states are GiGPO's (arXiv 2505.10978), groups of equal beginnings Tree-GRPO's
        (arXiv 2509.21240); the mix over later turns is that of arXiv 1506.02438. The prior is ours: a state that only
        one attempt reaches has no one to be compared with.
    """

    class Parameters(AdvantageConfig):
        """When two turns are in the same state, and how values become advantages."""

        same: Literal["history", "screenshot"] = Field(
            "history", description="Same state: equal screenshots so far, or an equal screenshot now (GiGPO)."
        )
        prior: float = Field(1.0, ge=0.0, description="Attempts at the group's mean that count in every state's value.")
        decay: float = Field(
            1.0, ge=0.0, le=1.0, description="Weight of the next turn's change of value in this one's."
        )
        leave_one_out: Literal[False] = Field(False, description="Not with this rule: a state may have one attempt.")

    def __init__(self, parameters: Parameters) -> None:
        super().__init__(parameters)
        self._parameters = parameters

    @override
    def advantages(self, group: Group) -> list[NDArray[np.float64]]:
        rule, whole = self._parameters, advantages_of(group, self.parameters)
        rewards = [t.reward for t in group.trajectories if t.reward is not None]
        if whole.std == 0.0 or whole.num_samples < 2:
            return [np.full(len(t.turns), value) for t, value in zip(group.trajectories, whole.values_N, strict=True)]
        states = [list(states_of(t, number, rule.same)) for number, t in enumerate(group.trajectories)]
        values = state_values(states, rewards, mean=whole.mean, prior=rule.prior)
        divisor = whole.std + rule.epsilon if rule.spread != "none" else 1.0
        return [changes(value_T, r, decay=rule.decay) / divisor for value_T, r in zip(values, rewards, strict=True)]


def states_of(trajectory: Trajectory, number: int, same: str) -> Iterator[Hashable]:
    """Yield the state of each turn; without a screenshot it is one that no attempt but this, by number, reaches."""
    before: Hashable = None
    for index, (observation, _) in enumerate(trajectory.turns):
        seen = (number, index) if observation.screenshot is None else key_of(observation.screenshot)
        state: Hashable = (seen, observation.instruction)
        if same == "history":
            before = state = (before, state)
        yield state


def state_values(
    states: Sequence[Sequence[Hashable]], rewards: Sequence[float], *, mean: float, prior: float
) -> list[NDArray[np.float64]]:
    """Return the value of the state of every turn of every trajectory.

    Args:
        states: Of each turn, by trajectory.
        rewards: One a trajectory.
        mean: Value of a state of which nothing is known.
        prior: Attempts with that mean that count beside those that reached the state.
    """
    found: dict[Hashable, list[float]] = {}
    for visited, reward in zip(states, rewards, strict=True):
        for state in set(visited):
            found.setdefault(state, []).append(reward)
    value = {state: (sum(own) + prior * mean) / (len(own) + prior) for state, own in found.items()}
    return [np.array([value[state] for state in visited], dtype=np.float64) for visited in states]


def changes(value_T: NDArray[np.float64], reward: float, *, decay: float) -> NDArray[np.float64]:
    """Return at each turn the sum of all later changes of value, the last one to the reward, decayed by turn."""
    change_T = np.diff(value_T, append=reward)
    for turn in range(len(change_T) - 2, -1, -1):
        change_T[turn] += decay * change_T[turn + 1]
    return change_T
