"""Advantages by turn: each turn is compared with the turns of its group in the same state."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from typing_extensions import override

from dartsim.config.sections.trainer import AdvantageConfig
from dartsim.core.png import key_of
from dartsim.core.registry import register
from dartsim.core.types import Group, Trajectory
from dartsim.trainer.advantages import AdvantageRule, advantages_of

KEYS = ("screenshot", "history")
"""What two turns must share to be in the same state, the coarsest first."""

PRIOR = 1.0
"""Number of turns at the coarser state's value that count in each state's value."""


@register("advantage", "states")
class StateAdvantages(AdvantageRule):
    """A turn's advantage is relative to the turns of its group in the same state.

    The return of a turn is its attempt's reward, times ``discount`` for each turn after it. The value of a state is the
    mean return of its turns, with ``PRIOR`` more turns at the value of the coarser state: equal screenshot histories
    within equal current screenshots (GiGPO) within the whole group. With ``decay`` 1 a turn gets its return less the
    value, with 0 the change of value that its action causes, and in between a mix as in generalized advantage
    estimation. So useless turns after a mistake get no advantage, and with a discount a detour earns less than the
    direct path. Advantages are divided as ``spread`` says.

    Invariants: with ``decay`` 0 and no discount the advantages of a trajectory add up to its reward less the value of
    its first state; with ``decay`` 1, no discount and an infinite ``prior``, they are those of the rule ``group``.

    Source: groups of equal states and the discount are GiGPO's (arXiv 2505.10978, where it is 0.95), groups of equal
        beginnings Tree-GRPO's (arXiv 2509.21240); the mix over later turns is that of arXiv 1506.02438. The prior is
        ours: a state with a single turn has nothing to be compared with.
    """

    class Parameters(AdvantageConfig):
        """How values of states become advantages."""

        discount: float = Field(
            1.0, gt=0.0, le=1.0, description="Factor of the reward for each later turn (GiGPO: .95)."
        )
        decay: float = Field(
            1.0, ge=0.0, le=1.0, description="Weight of the next turn's change of value in this one's."
        )

    def __init__(self, parameters: Parameters, *, keys: Sequence[str] = KEYS, prior: float = PRIOR) -> None:
        super().__init__(parameters)
        self._parameters = parameters
        self._keys = keys
        self._prior = prior

    @override
    def advantages(self, group: Group) -> list[NDArray[np.float64]]:
        rule, whole = self._parameters, advantages_of(group, self.parameters)
        rewards = [t.reward for t in group.trajectories if t.reward is not None]
        if whole.std == 0.0 or min(whole.num_samples, group.num_turns) < 2:
            return [np.full(len(t.turns), value) for t, value in zip(group.trajectories, whole.values_N, strict=True)]
        returns = [
            np.asarray(reward * rule.discount ** np.arange(len(t.turns))[::-1], dtype=np.float64)
            for t, reward in zip(group.trajectories, rewards, strict=True)
        ]
        # Without a discount this is the group's mean over turns or attempts; with one, returns differ by turn.
        mean = whole.mean if rule.discount == 1.0 else float(np.concatenate(returns).mean())
        values = [np.full_like(return_T, mean) for return_T in returns]
        for key in self._keys:
            states = [list(states_of(t, number, key)) for number, t in enumerate(group.trajectories)]
            values = state_values(states, returns, values, prior=self._prior)
        divisor = whole.std + rule.epsilon if rule.spread != "none" else 1.0
        return [
            changes(value_T, reward, discount=rule.discount, decay=rule.decay) / divisor
            for value_T, reward in zip(values, rewards, strict=True)
        ]


def states_of(trajectory: Trajectory, number: int, same: str) -> Iterator[Hashable]:
    """Yield the state of each turn; without a screenshot, a state of its own."""
    before: Hashable = None
    for index, (observation, _) in enumerate(trajectory.turns):
        seen = (number, index) if observation.screenshot is None else key_of(observation.screenshot)
        state: Hashable = (seen, observation.instruction)
        if same == "history":
            before = state = (before, state)
        yield state


def state_values(
    states: Sequence[Sequence[Hashable]],
    returns: Sequence[NDArray[np.float64]],
    expected: Sequence[NDArray[np.float64]],
    *,
    prior: float,
) -> list[NDArray[np.float64]]:
    """Return the value of the state of every turn, by trajectory.

    Args:
        states: The state of each turn.
        returns: The return of each turn.
        expected: Prior value of each turn's state, equal for equal states.
        prior: Number of turns with that return to count besides those in the state.
    """
    found: dict[Hashable, list[float]] = {}
    for visited, return_T in zip(states, returns, strict=True):
        for state, value in zip(visited, return_T.tolist(), strict=True):
            found.setdefault(state, []).append(value)
    return [
        np.array(
            [(sum(found[s]) + prior * e) / (len(found[s]) + prior) for s, e in zip(visited, expected_T, strict=True)],
            dtype=np.float64,
        )
        for visited, expected_T in zip(states, expected, strict=True)
    ]


def changes(value_T: NDArray[np.float64], reward: float, *, discount: float, decay: float) -> NDArray[np.float64]:
    """Return for each turn the decayed sum of later changes of value, the last of them to the reward."""
    change_T = np.append(discount * value_T[1:], reward) - value_T if len(value_T) else value_T.copy()
    for turn in range(len(change_T) - 2, -1, -1):
        change_T[turn] += discount * decay * change_T[turn + 1]
    return change_T
