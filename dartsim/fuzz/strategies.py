"""Hypothesis strategies of cases, for tests: the same space, searched, remembered and made simple by hypothesis.

``dartsim fuzz`` draws by itself, as it needs no database of examples and spreads over processes; see ``draw_case``.
This module needs hypothesis, which only tests do.
"""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from dartsim.fuzz.cases import Case, Choice, Fault
from dartsim.fuzz.faults import KINDS, REACH, STORED
from dartsim.fuzz.space import DRAWN, MOST_FAULTS, RULES, SCHEDULER, SHAPE, SPARE, STORAGE, Shaped

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
        faults: How hostile: a key of ``MOST_FAULTS``.
        stored: Whether the process may be killed and its store may fail, which takes longer to play.
    """
    chosen = draw(choices(preset))
    if not stored:
        chosen = {name: value for name, value in chosen.items() if name not in STORAGE}
    horizon = int(Shaped(chosen).fault_seconds)
    kinds = sorted(
        name
        for name, kind in KINDS.items()
        if (stored or name not in STORED) and (faults != "osworld" or kind.part == "desktop")
    )
    drawn = draw(st.lists(_faults(kinds, horizon), max_size=MOST_FAULTS[faults]))
    return Case(preset, draw(st.integers(0, 2**31 - 1)), chosen, tuple(sorted(drawn, key=_place)))


@st.composite
def _faults(draw: st.DrawFn, kinds: Sequence[str], horizon: int) -> Fault:
    """Return a strategy of faults of these kinds that are over by ``horizon``."""
    start = draw(st.integers(0, horizon - 1))
    seconds = min(draw(st.sampled_from(LENGTHS)), horizon - start)
    target = draw(st.none() | st.integers(0, REACH - 1))
    return Fault(draw(st.sampled_from(kinds)), start, seconds, target)


def _place(fault: Fault) -> tuple[int, str]:
    return fault.start, fault.kind
