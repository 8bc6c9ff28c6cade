"""High-entropy turns: an exact share of each group, ties by id, padding ignored, unknowns reported."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dartsim.core.types import Attempt, Ending, Group, Observation, Reply, Task, Trajectory, Turn
from dartsim.curation.rules.selection import HighEntropyTurns, num_turns_kept, turn_entropy

TASK = Task("t", "")


def entropy(share: float, **keep: bool) -> HighEntropyTurns:
    return HighEntropyTurns(HighEntropyTurns.Parameters(share=share, **keep))


def reply(entropies: Any, tokens: int | None = None) -> Reply:
    return Reply("click", 0, 0, 0, 10, len(entropies) if tokens is None else tokens, entropies=entropies)


def group(*trajectories: list[Any], ids: list[int] | None = None) -> Group:
    """Return a group; each turn is given by the entropies of its tokens."""
    made = []
    for index, turns in enumerate(trajectories):
        number = ids[index] if ids else index
        attempt = Attempt(id=number, task=TASK, group=0, index=index, seed=0, turn_limit=30, version=0)
        shown = tuple(
            Turn(Observation(None, ""), reply(e) if e is not None else Reply("", 0, 0, 0, 1, 1)) for e in turns
        )
        made.append(Trajectory(attempt, shown, Ending.DONE, 1.0, None, 0.0, 1.0))
    return Group(0, TASK, tuple(made), 1.0)


def test_of_equal_entropies_the_lower_id_is_kept_whatever_the_order():
    turns = [[[1.0]] * 2, [[1.0]] * 3]
    assert entropy(0.4).select(group(*turns, ids=[4, 7])) == ((True, True), (False,) * 3)
    assert entropy(0.4).select(group(*turns, ids=[7, 4])) == ((False, False), (True, True, False))


@pytest.mark.parametrize(
    ("entropies", "tokens"), [(None, 3), ([], 0), ([1.0], 2), ([1.0, math.nan], 2), ([1.0, math.inf], 2)]
)
def test_an_entropy_that_cannot_be_used_is_unknown(entropies: Any, tokens: int):
    assert turn_entropy(reply(entropies, tokens=tokens)) is None


def test_turns_without_entropies_are_kept():
    assert entropy(0.5).select(group([None, [1.0], [2.0], None])) == ((True, False, True, True),)
    assert entropy(0.5).select(group([None, None])) == ((True, True),)


def test_a_stored_success_is_ranked_or_kept_whole():
    mixed = group([[1.0], [2.0], [3.0], [4.0]], [[0.1], [0.2]])
    stored = replace(mixed.trajectories[1], attempt=replace(mixed.trajectories[1].attempt, id=-1, group=-1))
    rescued = replace(mixed, trajectories=(mixed.trajectories[0], stored))
    ranked = entropy(0.5).select(rescued)
    assert ranked == ((False, True, True, True), (False, False))
    whole = entropy(0.5, keep="stored").select(rescued)
    assert whole == ((False, False, True, True), (True, True))


def test_only_turns_of_attempts_below_the_mean_are_ranked_if_successes_are_kept():
    mixed = group([[0.1], [0.2]], [[1.0], [2.0], [3.0], [4.0]], [[0.3]])
    rewards = (1.0, 0.0, 0.5)
    graded = tuple(replace(t, reward=reward) for t, reward in zip(mixed.trajectories, rewards, strict=True))
    found = entropy(0.5, keep="successes").select(replace(mixed, trajectories=graded))
    assert found == ((True, True), (False, True, True, True), (False,))


@given(st.lists(st.lists(st.sampled_from([0.0, 0.5, 1.0, None]), max_size=6), min_size=1), st.integers(1, 100))
def test_what_is_kept_is_exact_and_never_less_uncertain_than_what_is_cut(turns: list[list[Any]], percent: int):
    made = group(*[[None if e is None else [e] for e in row] for row in turns])
    found = entropy(percent / 100).select(made)
    flat = [(e, k) for row, flags in zip(turns, found, strict=True) for e, k in zip(row, flags, strict=True)]
    known = [(e, k) for e, k in flat if e is not None]
    assert sum(k for _, k in known) == math.ceil(Fraction(percent, 100) * len(known))
    assert all(k for e, k in flat if e is None)
    if not all(k for _, k in known):
        assert min(e for e, k in known if k) >= max(e for e, k in known if not k)


@given(st.integers(0, 3000), st.integers(1, 100))
def test_the_count_is_that_of_decimal_arithmetic(turns: int, percent: int):
    assert num_turns_kept(turns, percent / 100) == math.ceil(Fraction(percent, 100) * turns)
