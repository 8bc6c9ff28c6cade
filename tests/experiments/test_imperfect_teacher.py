"""Demonstrations: the oracle's, and those of a teacher that errs."""

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from hypothesis import given, settings
from hypothesis import strategies as st

from dartsim.config import load
from dartsim.envs.mock.suites import mock_tasks
from dartsim.run.demonstrations import oracle_turns
from experiments.imperfect_teacher import Mistakes, imperfect_turns

CONFIG = load("tiny", overrides=["policy.grammar=clicks_done_fail", "policy.screen=96", "rollout.max_turns=30"])


def taught(family, mistakes, *, seed=0, difficulty=6):
    (task,) = mock_tasks(family, 1, seed, difficulty)
    rng = np.random.default_rng(seed)
    return [turn.action for turn in imperfect_turns(CONFIG, task, 0, mistakes, rng)]


def oracle(family, *, seed=0, difficulty=6):
    (task,) = mock_tasks(family, 1, seed, difficulty)
    return [turn.action for turn in oracle_turns(CONFIG, task, 0)]


@pytest.mark.parametrize("family", ["plain_jobs", "recall_jobs", "missing_jobs"])
def test_a_teacher_without_mistakes_is_the_oracle(family):
    assert taught(family, Mistakes()) == oracle(family)


def test_a_teacher_who_presses_beside_never_turns_a_page():
    right = oracle("odd_jobs")
    shown = taught("odd_jobs", Mistakes(beside=1.0))
    assert len(shown) == 30
    assert shown[0] == right[0]
    column, row = map(int, right[1].split()[1:])
    assert shown[1] == f"click {(column + 1) % 3} {row}"


@given(st.integers(0, 500), st.sampled_from(["plain_jobs", "mixed_jobs", "recall_jobs"]))
@settings(max_examples=15, deadline=None)
def test_a_teacher_goes_on_from_where_its_mistakes_lead(seed, family):
    """Its demonstration ends with ``done``, and is longer by what the mistakes cost, unless it runs out of turns."""
    shown = taught(family, Mistakes(by_chance=0.2, slips=0.05), seed=seed, difficulty=2)
    assert len(shown) >= len(oracle(family, seed=seed, difficulty=2))
    assert len(shown) == 30 or shown[-1] == "done"
