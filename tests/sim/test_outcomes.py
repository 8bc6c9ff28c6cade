"""Outcomes of a run, played again attempt by attempt."""

import pytest

from dartsim.config.sections.policy import SurrogateConfig
from dartsim.core.types import Attempt, Task
from dartsim.sim.surrogate import (
    NEARBY,
    AttemptPlan,
    RecordedAttempt,
    RecordedOutcomes,
    SurrogateActions,
    SurrogatePolicy,
)

TASK = Task("t", "do it")


def attempt(group, index, seed=0, limit=30):
    return Attempt(7, TASK, group, index, seed, limit, 0)


def test_an_attempt_ends_as_the_same_one_of_the_run_did():
    outcomes = RecordedOutcomes([RecordedAttempt(0, 0, 3, success=True), RecordedAttempt(0, 1, 9, success=False)])
    assert outcomes.of(attempt(0, 1)) == RecordedAttempt(0, 1, 9, success=False)


@pytest.mark.parametrize("group", [40, 99, 100, 5000])
def test_one_that_the_run_did_not_have_ends_as_one_of_a_group_nearby(group):
    outcomes = RecordedOutcomes(RecordedAttempt(number, 0, number + 1, success=False) for number in range(100))
    for seed in range(50):
        found = outcomes.of(attempt(group, 3, seed)).group
        assert abs(min(group, 99) - found) <= NEARBY


def test_the_surrogate_plays_what_was_recorded():
    outcomes = RecordedOutcomes([RecordedAttempt(0, 0, 4, success=True), RecordedAttempt(0, 1, 1, success=True)])
    actions = SurrogateActions("work", "solve", "done")
    policy = SurrogatePolicy({}, config=SurrogateConfig(), actions=actions, max_plans=4, outcomes=outcomes)
    assert policy.plan(attempt(0, 0)) == AttemptPlan(4, success=True)
    assert policy.plan(attempt(0, 1, limit=1)) == AttemptPlan(1, success=True)
