"""Advantages by state: exact sums, DART's as a limit, and the states themselves."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dartsim.core.types import Attempt, Ending, Group, Observation, Reply, Task, Trajectory, Turn
from dartsim.trainer.advantages import AttemptAdvantages
from dartsim.trainer.advantages.states import KEYS, PRIOR, StateAdvantages, states_of

TASK = Task("t", "do it")
SCREENS = [np.full((2, 2, 3), shade, dtype=np.uint8) for shade in range(3)]


def attempt(number: int, reward: float | None, screens: list[int | None], instruction: str = "do it") -> Trajectory:
    reply = Reply("click", 0, 0, 0, 10, 5)
    turns = tuple(
        Turn(Observation(None if screen is None else SCREENS[screen].copy(), instruction), reply) for screen in screens
    )
    about = Attempt(id=number, task=TASK, group=0, index=number, seed=0, turn_limit=30, version=0)
    return Trajectory(about, turns, Ending.DONE, reward, None, 0.0, 1.0)


def group_of(*played: tuple[float | None, list[int | None]]) -> Group:
    return Group(0, TASK, tuple(attempt(number, *each) for number, each in enumerate(played)), 1.0)


def rule(*, keys: Sequence[str] = KEYS, prior: float = PRIOR, **parameters: object) -> StateAdvantages:
    return StateAdvantages(StateAdvantages.Parameters(**parameters), keys=keys, prior=prior)


groups = st.lists(
    st.tuples(st.sampled_from([0.0, 0.5, 1.0]), st.lists(st.sampled_from([0, 1, 2, None]), max_size=6)),
    min_size=2,
    max_size=6,
).map(lambda played: group_of(*played))
settings = st.fixed_dictionaries(
    {
        "keys": st.sampled_from([("history",), ("screenshot",), KEYS]),
        "prior": st.sampled_from([0.0, 1.0, 3.0]),
        "level": st.sampled_from(["turn", "trajectory"]),
    }
)


def differ(group: Group) -> bool:
    return len({t.reward for t in group.trajectories if t.turns}) > 1


@given(groups, settings)
def test_changes_of_value_add_up_to_the_reward_less_the_first_value(group, chosen):
    found = rule(decay=0.0, spread="none", **chosen).advantages(group)
    from_the_start = rule(decay=1.0, spread="none", **chosen).advantages(group)
    for changes, whole in zip(found, from_the_start, strict=True):
        assert sum(changes) == pytest.approx(whole[0] if len(whole) else 0.0, abs=1e-12)


@given(groups, settings, st.floats(0.0, 1.0), st.sampled_from([0.5, 0.95, 1.0]))
def test_each_turn_gets_its_change_and_a_share_of_what_the_next_one_gets(group, chosen, decay, discount):
    found, alone = (rule(decay=share, discount=discount, **chosen).advantages(group) for share in (decay, 0.0))
    for values, changes in zip(found, alone, strict=True):
        later = np.append(values[1:], 0.0)[: len(values)]
        assert values == pytest.approx(changes + discount * decay * later, abs=1e-12)


@given(groups, settings)
def test_with_many_attempts_at_the_mean_it_is_dart_s_advantage(group, chosen):
    ours = rule(**{**chosen, "prior": 1e12}).advantages(group)
    darts = AttemptAdvantages(AttemptAdvantages.Parameters(level=chosen["level"])).advantages(group)
    for values, expected in zip(ours, darts, strict=True):
        assert values == pytest.approx(expected, abs=1e-6)


@given(groups, settings, st.permutations(range(6)))
def test_the_order_of_attempts_does_not_matter(group, chosen, order):
    order = [place for place in order if place < len(group.trajectories)]
    moved = Group(0, TASK, tuple(group.trajectories[place] for place in order), 1.0)
    before, after = rule(**chosen).advantages(group), rule(**chosen).advantages(moved)
    for place, values in zip(order, after, strict=True):
        assert values == pytest.approx(before[place], abs=1e-12)


@given(groups, st.sampled_from(["history", "screenshot"]), st.sampled_from([0.5, 1.0]))
def test_advantages_cancel_in_every_state_and_dead_ends_get_nothing(group, same, discount):
    found = rule(keys=(same,), prior=0.0, discount=discount, spread="none").advantages(group)
    by_state = {}
    for number, (values, played) in enumerate(zip(found, group.trajectories, strict=True)):
        for state, value in zip(states_of(played, number, same), values, strict=True):
            by_state.setdefault(state, []).append((value, played.reward))
    for turns in by_state.values():
        assert sum(value for value, _ in turns) == pytest.approx(0.0, abs=1e-9)
        assert any(reward for _, reward in turns) or all(abs(value) < 1e-12 for value, _ in turns)


def test_a_detour_of_a_success_gets_less_than_its_way():
    # Screen 0, a dead end, and screen 0 again: the second action there was the better one.
    detour = group_of((1.0, [0, 2, 0, 1]), (0.0, [0, 2, 0, 2]))
    first, _, second, _ = rule(keys=("screenshot",), discount=0.9).advantages(detour)[0]
    assert first < second
    first, _, second, _ = rule(keys=("screenshot",)).advantages(detour)[0]
    assert first == second


def test_a_history_that_is_not_shared_has_nearly_the_value_of_its_screenshot():
    # The last one sees screen 1 by a way of its own, in which others see it, too.
    group = group_of((1.0, [0, 1]), (1.0, [0, 1]), (0.0, [0, 2]), (0.0, [0, 2, 1]))
    options = {"spread": "none", "level": "trajectory", "prior": 1.0}
    by_history = rule(keys=("history",), **options).advantages(group)[3][2]
    by_both = rule(**options).advantages(group)[3][2]
    assert by_history == pytest.approx(-(0.0 + 0.5) / 2)
    assert by_both == pytest.approx(-(0.0 + (2.0 + 0.5) / 4) / 2)


def test_a_right_action_is_not_blamed_for_a_later_mistake():
    # All see screen 0; the second and third get to screen 1, and one of them is right there, too.
    group = group_of((0.0, [0, 0, 0]), (1.0, [0, 1]), (0.0, [0, 1, 1]))
    wrong, right, late = rule(keys=("history",), decay=0.0, prior=0.0, spread="none").advantages(group)
    third, half = pytest.approx(1 / 3), pytest.approx(0.5)
    assert (-wrong[0], list(wrong[1:])) == (third, [0.0, 0.0])
    assert (right[0], right[1]) == (pytest.approx(1 / 6), half)
    assert (late[0], -late[1], late[2]) == (pytest.approx(1 / 6), half, 0.0)


def test_states_differ_by_history_screenshot_and_instruction():
    seen, again, later = (attempt(number, 1.0, screens) for number, screens in enumerate([[0, 1], [0, 1], [1, 1]]))
    assert list(states_of(seen, 0, "history")) == list(states_of(again, 1, "history"))
    assert list(states_of(seen, 0, "history"))[1] != list(states_of(later, 2, "history"))[1]
    assert list(states_of(seen, 0, "screenshot"))[1] == list(states_of(later, 2, "screenshot"))[1]
    other = attempt(3, 1.0, [0, 1], "do that")
    assert not set(states_of(seen, 0, "screenshot")) & set(states_of(other, 3, "screenshot"))


def test_a_group_without_differences_has_no_advantages_and_a_masked_attempt_is_refused():
    assert [values.tolist() for values in rule().advantages(group_of((1.0, [0]), (1.0, [0, 1])))] == [[0.0], [0.0, 0.0]]
    assert rule(lone_sample="reward").advantages(group_of((1.0, [0])))[0].tolist() == [1.0]
    with pytest.raises(ValueError, match="holds a masked trajectory"):
        rule().advantages(group_of((1.0, [0]), (None, [0])))
