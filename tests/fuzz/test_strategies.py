"""The space of the search as hypothesis strategies: whatever they draw holds, and what is planted is made simple."""

import pytest
from hypothesis import HealthCheck, Phase, find, given, settings

from dartsim.fuzz import from_token, play_case
from dartsim.fuzz.faults import STORED
from dartsim.fuzz.mutations import MUTATIONS
from dartsim.fuzz.space import SHAPE, SPACE
from dartsim.fuzz.strategies import cases

FEW = settings(max_examples=12, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck))
MANY = settings(FEW, max_examples=600)


@FEW
@given(cases())
def test_whatever_is_drawn_holds(case):
    outcome = play_case(case)
    assert not outcome.failed, f"{outcome.text}\ndartsim replay {case.token()}"


@pytest.mark.soak
@pytest.mark.parametrize("preset", ["drawn", "dart", "coupled", "dartsim"])
def test_a_longer_search_by_hypothesis_finds_nothing(preset):
    @MANY
    @given(cases(preset, stored=True))
    def holds(case):
        outcome = play_case(case)
        assert not outcome.failed, f"{outcome.text}\ndartsim replay {case.token()}"

    holds()


@settings(FEW, max_examples=60, phases=[Phase.generate])
@given(cases(faults="osworld"))
def test_a_case_is_one_of_the_space_and_of_no_other_faults(case):
    assert from_token(case.token()) == case
    assert all(value in SPACE[name][1:] for name, value in case.choices.items())
    horizon = case.choices.get("fault_seconds", SHAPE["fault_seconds"][0])
    assert all(0 <= fault.start < fault.end <= horizon for fault in case.faults)
    assert not {fault.kind for fault in case.faults} & STORED
    assert len(case.faults) <= 6


@pytest.mark.soak
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_hypothesis_finds_what_is_planted_and_makes_it_simple():
    bug = MUTATIONS["lost wake-up"].apply
    simple = find(cases(), lambda case: play_case(case, mutation=bug).failed, settings=MANY)
    assert (simple.choices, simple.faults) == ({}, ()), "it needs nothing to go wrong"
    assert not play_case(simple).failed
