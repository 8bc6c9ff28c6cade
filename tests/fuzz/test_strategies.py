"""The space of the search as hypothesis strategies: whatever they draw holds, and what is planted is made simple."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, Phase, find, given, settings
from hypothesis import strategies as st

from dartsim.config.schema import FaultWindow
from dartsim.fuzz import Case, fault_window, from_token, run_case
from dartsim.fuzz.cases import Choice
from dartsim.fuzz.space import (
    DRAWN,
    MAX_FAULTS,
    MAX_TARGET,
    RULES,
    SCHEDULER,
    SHAPE,
    SPACE,
    SPARE,
    STORAGE,
    STORED,
    CaseSettings,
    drawn_kinds,
    in_order,
)
from experiments.planted_bugs import MUTATIONS

LENGTHS = (1, 5, 20, 60, 150)
"""Of faults, seconds."""


@st.composite
def choices(draw: st.DrawFn, preset: str = DRAWN) -> dict[str, Choice]:
    """Return a strategy of choices: those that are left out have their simplest value, to which others shrink.

    Args:
        draw: Hypothesis's.
        preset: Whose scheduler it is; ``DRAWN``: the scheduler is among the choices.
    """
    space = {**SHAPE, **STORAGE, **({**SCHEDULER, **SPARE, **RULES} if preset == DRAWN else {})}
    names = draw(st.lists(st.sampled_from(sorted(space)), unique=True, max_size=len(space)))
    return {name: draw(_more(space[name])) for name in sorted(names)}


def _more(values: Sequence[Choice]) -> st.SearchStrategy[Choice]:
    return st.sampled_from(values[1:])


@st.composite
def cases(draw: st.DrawFn, preset: str = DRAWN, *, faults: str = "hostile", stored: bool = False) -> Case:
    """Return a strategy of cases.

    Args:
        draw: Hypothesis's.
        preset: Whose scheduler they have; ``DRAWN`` draws one.
        faults: How hostile: a key of ``MAX_FAULTS``.
        stored: Whether the process may be killed and its store may fail, which takes longer to play.
    """
    chosen = draw(choices(preset))
    if not stored:
        chosen = {name: value for name, value in chosen.items() if name not in STORAGE}
    horizon = int(CaseSettings(chosen).fault_seconds)
    kinds = sorted(name for names in drawn_kinds(faults).values() for name in names)
    drawn = draw(st.lists(_faults([*kinds, *(sorted(STORED) if stored else ())], horizon), max_size=MAX_FAULTS[faults]))
    return Case(preset, draw(st.integers(0, 2**31 - 1)), chosen, in_order(drawn))


@st.composite
def _faults(draw: st.DrawFn, kinds: Sequence[str], horizon: int) -> FaultWindow:
    """Return a strategy of faults of these kinds that are over by ``horizon``."""
    start = draw(st.integers(0, horizon - 1))
    seconds = min(draw(st.sampled_from(LENGTHS)), horizon - start)
    target = draw(st.none() | st.integers(0, MAX_TARGET - 1))
    return fault_window(draw(st.sampled_from(kinds)), start, seconds, target)


FEW = settings(max_examples=12, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck))
MANY = settings(FEW, max_examples=600)


@FEW
@given(cases())
def test_whatever_is_drawn_holds(case):
    result = run_case(case)
    assert not result.failed, f"{result.text}\ndartsim fuzz --replay {case.token()}"


@pytest.mark.soak
@pytest.mark.parametrize("preset", ["drawn", "dart", "coupled", "dartsim"])
def test_a_longer_search_by_hypothesis_finds_nothing(preset):
    @MANY
    @given(cases(preset, stored=True))
    def holds(case):
        result = run_case(case)
        assert not result.failed, f"{result.text}\ndartsim fuzz --replay {case.token()}"

    holds()


@settings(FEW, max_examples=60, phases=[Phase.generate])
@given(cases(faults="osworld"))
def test_a_case_is_one_of_the_space_and_of_no_other_faults(case):
    assert from_token(case.token()) == case
    assert all(value in SPACE[name][1:] for name, value in case.choices.items())
    horizon = case.choices.get("fault_seconds", SHAPE["fault_seconds"][0])
    assert all(0 <= fault.at_seconds < fault.end_seconds <= horizon for fault in case.faults)
    assert not {fault.kind for fault in case.faults} & STORED
    assert len(case.faults) <= 6


@pytest.mark.soak
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_hypothesis_finds_what_is_planted_and_makes_it_simple():
    bug = MUTATIONS["lost wake-up"].apply
    simple = find(cases(), lambda case: run_case(case, mutation=bug).failed, settings=MANY)
    assert (simple.choices, simple.faults) == ({}, ()), "it needs nothing to go wrong"
    assert not run_case(simple).failed
