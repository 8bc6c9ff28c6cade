"""Group statistics: by turns as in DART, by trajectories as in GRPO; exact on the degenerate groups."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dartsim.config.sections.trainer import AdvantageConfig
from dartsim.core.types import Attempt, Ending, Group, Observation, Reply, Task, Trajectory, Turn
from dartsim.trainer.advantages import AttemptAdvantages, advantages_of, group_advantages
from dartsim.trainer.advantages.states import StateAdvantages

PAPER = AdvantageConfig()
RELEASED = AdvantageConfig(spread="unbiased", epsilon=1e-6, lone_sample="reward")

groups = st.lists(st.tuples(st.sampled_from([0.0, 0.25, 0.5, 1.0]), st.integers(0, 12)), min_size=1, max_size=8)
configs = st.builds(
    AdvantageConfig,
    level=st.sampled_from(["turn", "trajectory"]),
    spread=st.sampled_from(["biased", "unbiased", "none"]),
    epsilon=st.sampled_from([0.0, 1e-6]),
    lone_sample=st.sampled_from(["zero", "reward"]),
)


def by_hand(rewards: list[float], turns: list[int], config: AdvantageConfig) -> list[float]:
    """Step-wise GRPO in ten lines of plain Python: one entry of ``steps`` a sample."""
    copies = turns if config.level == "turn" else [1] * len(turns)
    steps = [r for r, n in zip(rewards, copies, strict=True) for _ in range(n)]
    if len(steps) == 1 and config.lone_sample == "reward":
        return [r if n else 0.0 for r, n in zip(rewards, copies, strict=True)]
    if len(set(steps)) <= 1:
        return [0.0] * len(rewards)
    spread = {"biased": statistics.pstdev, "unbiased": statistics.stdev, "none": lambda _: 1.0}[config.spread]
    divisor = spread(steps) + (config.epsilon if config.spread != "none" else 0.0)
    return [(reward - statistics.fmean(steps)) / divisor for reward in rewards]


@given(groups, configs)
def test_advantages_match_a_reference_in_plain_python(group: list[tuple[float, int]], config: AdvantageConfig):
    rewards, turns = [r for r, _ in group], [n for _, n in group]
    found = group_advantages(rewards, turns, config)
    assert found.values_N.tolist() == pytest.approx(by_hand(rewards, turns, config), rel=1e-6, abs=1e-9)


def test_a_long_trajectory_weighs_as_many_times_as_it_has_turns():
    # three steps of reward 1 and one of 0: mean 3/4, biased variance 3/16
    found = group_advantages([1.0, 0.0], [3, 1], PAPER)
    assert found.mean == 0.75
    assert found.std == pytest.approx(math.sqrt(3 / 16))
    assert found.values_N.tolist() == pytest.approx([0.25 / math.sqrt(3 / 16), -0.75 / math.sqrt(3 / 16)])
    assert found.num_samples == 4


@pytest.mark.parametrize(("config", "expected"), [(PAPER, 0.0), (RELEASED, 0.7)])
def test_a_group_of_one_sample(config: AdvantageConfig, expected: float):
    assert group_advantages([0.7], [1], config).values_N.tolist() == [expected]


@pytest.mark.parametrize("config", [PAPER, RELEASED])
@pytest.mark.parametrize("reward", [0.0, 0.1, 1.0])
def test_equal_rewards_have_advantages_of_exactly_zero(config: AdvantageConfig, reward: float):
    found = group_advantages([reward] * 7, [1, 2, 3, 4, 5, 6, 7], config)
    assert found.values_N.tolist() == [0.0] * 7


@given(groups)
def test_the_advantages_of_all_samples_average_to_zero_with_unit_spread(group: list[tuple[float, int]]):
    rewards, turns = [r for r, _ in group], np.array([n for _, n in group])
    found = group_advantages(rewards, turns.tolist(), PAPER)
    samples = np.repeat(found.values_N, turns)
    if found.values_N.any():
        assert samples.mean() == pytest.approx(0.0, abs=1e-9)
        assert samples.std() == pytest.approx(1.0)


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match="one number of turns a reward"):
        group_advantages([1.0], [1, 2], PAPER)
    with pytest.raises(ValueError, match="finite rewards"):
        group_advantages([math.nan, 1.0], [1, 2], PAPER)
    with pytest.raises(ValueError, match="greater than or equal to 0"):
        AdvantageConfig(epsilon=-1.0)


def trajectory(index: int, reward: float | None, turns: int) -> Trajectory:
    task = Task("t", "do it")
    attempt = Attempt(id=index, task=task, group=0, index=index, seed=0, turn_limit=30, version=0)
    turn = Turn(Observation(None, "do it"), Reply("click", 0, 0, 0, 10, 5))
    return Trajectory(attempt, (turn,) * turns, Ending.DONE, reward, None, 0.0, 1.0)


def test_a_group_is_read_in_the_order_of_its_trajectories():
    group = Group(0, Task("t", "do it"), (trajectory(0, 1.0, 3), trajectory(1, 0.0, 1)), 1.0)
    expected = group_advantages([1.0, 0.0], [3, 1], PAPER)
    assert advantages_of(group, PAPER).values_N.tolist() == expected.values_N.tolist()


def test_a_masked_trajectory_has_no_advantage():
    group = Group(3, Task("t", "do it"), (trajectory(0, 1.0, 3), trajectory(1, None, 1)), 1.0)
    with pytest.raises(ValueError, match="group 3 holds a masked trajectory"):
        advantages_of(group, PAPER)


@given(st.floats(0.0, 1.0), st.lists(st.floats(-1e-7, 1e-7), min_size=2, max_size=8), configs)
def test_differences_of_the_last_digits_are_no_advantage(reward, noise, config):
    trajectories = tuple(trajectory(number, reward + each, 1 + number) for number, each in enumerate(noise))
    group = Group(0, Task("t", "do it"), trajectories, 1.0)
    by_state = StateAdvantages.Parameters(**config.model_dump(exclude={"rule"}))
    for rule in (AttemptAdvantages(config), StateAdvantages(by_state)):
        assert not any(values_T.any() for values_T in rule.advantages(group))
