"""The surrogate policy: what is drawn depends on the attempt alone and has the distribution it should."""

from statistics import fmean, pstdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dartsim.config import load
from dartsim.config.sections.policy import SurrogateConfig
from dartsim.core.errors import ConfigError
from dartsim.core.types import Attempt, Request, Task
from dartsim.sim.surrogate import SurrogateActions, SurrogatePolicy
from dartsim.sim.task_difficulties import TaskDifficulty

ACTIONS = SurrogateActions("work", "solve", "done")


def policy(success_rate=0.5, length_factor=1.0, *, config=None, max_plans=1000):
    difficulties = {"t": TaskDifficulty(success_rate, length_factor)}
    return SurrogatePolicy(difficulties, config=config or SurrogateConfig(), actions=ACTIONS, max_plans=max_plans)


def attempt(number=0, *, turn_limit=30, seed=None, version=0):
    seed = number if seed is None else seed
    return Attempt(number, Task("t", ""), 0, 0, seed=seed, turn_limit=turn_limit, version=version)


def acted(surrogate, attempt):
    """The actions of an attempt, played as ``play`` does."""
    actions = []
    for turn in range(attempt.turn_limit):
        actions.append(surrogate.act(Request(attempt, turn, None, [])))
        if actions[-1] == "done":
            break
    return actions


SEEDS = st.integers(0, 2**63 - 1)


@given(SEEDS, st.integers(1, 40), st.floats(0, 1), st.floats(0.2, 5.0))
def test_what_is_planned_is_what_is_done(seed, turn_limit, success_rate, length_factor):
    surrogate = policy(success_rate, length_factor)
    tried = attempt(seed=seed, turn_limit=turn_limit)
    plan = surrogate.plan(tried)
    actions = acted(surrogate, tried)
    assert actions.count("solve") == plan.success
    assert len(actions) == min(plan.num_turns, turn_limit)
    if plan.success:
        assert plan.num_turns <= turn_limit
        assert actions[-2:] == (["solve", "done"] if turn_limit > 1 else ["solve"])
    else:
        assert (actions[-1] == "done") == (plan.num_turns <= turn_limit)
    assert set(actions[:-2]) <= {"work"}


@given(SEEDS, st.integers(0, 1000), st.integers(0, 50))
def test_a_plan_depends_on_the_seed_and_the_task_alone(seed, number, version):
    surrogate = policy()
    one = surrogate.plan(attempt(0, seed=seed))
    surrogate.plan(attempt(1, seed=seed + 1))
    assert surrogate.plan(attempt(number, seed=seed, version=version)) == one
    assert policy().plan(attempt(seed=seed)) == one


def test_a_plan_that_was_forgotten_is_drawn_again_to_the_same_result():
    attempts = [attempt(number) for number in range(8)]
    remembering, forgetful = policy(), policy(max_plans=1)
    for turn in range(30):  # in turns, so that each forgets the others' plans
        asked = [Request(each, turn, None, []) for each in attempts]
        assert [forgetful.act(r) for r in asked] == [remembering.act(r) for r in asked]


def test_outcomes_and_lengths_have_the_distribution_they_are_given():
    turns = {"success_turns_mean": 12.0, "success_turns_sd": 5.0, "failure_turns_mean": 20.0, "failure_turns_sd": 9.0}
    config = SurrogateConfig(**turns, task_length_sd=0.0)
    surrogate = policy(0.7, config=config)
    plans = [surrogate.plan(attempt(n, seed=n * 7919, turn_limit=10**6)) for n in range(20_000)]
    assert fmean(plan.success for plan in plans) == pytest.approx(0.7, abs=0.01)
    for success, mean, sd in ((True, 12.0, 5.0), (False, 20.0, 9.0)):
        drawn = [plan.num_turns for plan in plans if plan.success is success]
        assert fmean(drawn) == pytest.approx(mean, rel=0.02)
        assert pstdev(drawn) == pytest.approx(sd, rel=0.05)


def test_a_task_s_length_factor_scales_its_attempts():
    config = SurrogateConfig(task_length_sd=0.0)
    short, long = policy(0.0, 1.0, config=config), policy(0.0, 3.0, config=config)
    seeds = range(2000)
    ratio = fmean(long.plan(attempt(seed=s)).num_turns for s in seeds) / fmean(
        short.plan(attempt(seed=s)).num_turns for s in seeds
    )
    assert ratio == pytest.approx(3.0, rel=0.01)


def test_attempts_cannot_vary_less_than_their_tasks():
    with pytest.raises(ConfigError, match=r"surrogate\.task_length_sd"):
        load(overrides=["surrogate.success_turns_mean=10.0", "surrogate.success_turns_sd=2.0"])
