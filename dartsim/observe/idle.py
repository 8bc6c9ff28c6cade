"""Idle causes: every second of each desktop, each engine and the trainer is work, or idle for one cause.

Work is a desktop that acts, an engine with a request, or a trainer in an update. This is stricter than environment
utilization, which counts waiting for a reply as use of the desktop: here the desktop is idle, cause ``generating``.

Most states are their own cause (``dartsim.observe.states``). Three depend on the other components at that moment:

- a desktop that is *not admitted* waits for the trainer during an update, for the publication or the weight sync while
  the trainer waits for it, and otherwise for the admission rule;
- an *idle engine* waits for the most common state of desktops that do not wait for a reply; if all wait, the request
  is on the network;
- a trainer *waiting for data* waits for the most common state of desktops with an attempt; if there are none, of the
  others.

Ties go to the first state in ``DesktopState``. Work and causes of a population add up to its components times the
window.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dartsim.observe.states import (
    AT_WORK,
    CAUSES,
    IDLE_BINS,
    NETWORK,
    POPULATIONS,
    DesktopState,
    EngineState,
    TrainerState,
)
from dartsim.observe.window import Window

Floats = NDArray[np.float64]
Counts = NDArray[np.int32]
ByCause = dict[str, Counts]

D = DesktopState

WITH_ATTEMPT = (
    *(D.STARTING, D.SETUP, D.GENERATING, D.SYNC_WAIT, D.TURN_WAIT, D.ACTING, D.SCORE_WAIT, D.EVALUATING, D.CLOSING),
)
WITHOUT = (D.WAIT_ADMISSION, D.WAIT_UNIT, D.WAIT_START, D.OFF, D.READY)
NOT_ASKING = tuple(state for state in D if state not in (D.GENERATING, D.OFF))

FIRST_ROW: Mapping[str, int] = {"desktops": 0, "engines": len(D), "trainer": len(D) + len(EngineState)}
"""First row of each population's states in the table of components per state."""
NUM_ROWS = len(D) + len(EngineState) + len(TrainerState)


def attribute(window: Window) -> dict[str, Any]:
    """Return the seconds of work and of each idle cause for each population, and their shares over time."""
    edges = np.linspace(window.start, window.end, IDLE_BINS + 1)
    times, counts = _counts(window, edges)
    lengths, first = np.diff(times), np.searchsorted(times[:-1], edges[:-1])
    weights = {"desktops": _desktops(counts), "engines": _engines(counts), "trainer": _trainer(counts)}
    populations = {}
    for name, by_cause in weights.items():
        size = window.sizes[name]
        causes = [cause for cause in (AT_WORK, *CAUSES) if cause in by_cause]
        spent = {cause: np.add.reduceat(by_cause[cause] * lengths, first) for cause in causes}
        populations[name] = {
            "size": size,
            "seconds": {cause: round(float(seconds.sum()), 3) for cause, seconds in spent.items() if seconds.any()},
            "shares": {
                cause: np.round(seconds / (np.diff(edges) * size), 4).tolist()
                for cause, seconds in spent.items()
                if seconds.any()
            },
        }
    return {
        "start_seconds": round(window.start, 3),
        "end_seconds": round(window.end, 3),
        "populations": populations,
    }


def _counts(window: Window, edges: Floats) -> tuple[Floats, Counts]:
    """Return ascending times [n + 1], and the number of components in each state between them [states, n].

    The times include the edges and end with the window.
    """
    starts, ends = (np.concatenate([window.stays[name][side] for name in FIRST_ROW]) for side in ("start", "end"))
    rows = np.concatenate([window.stays[name]["state"] + first for name, first in FIRST_ROW.items()])
    times = np.unique(np.concatenate([starts, ends, edges]))
    change = np.zeros((NUM_ROWS, len(times)), dtype=np.int32)
    np.add.at(change, (rows, np.searchsorted(times, starts)), 1)
    np.add.at(change, (rows, np.searchsorted(times, ends)), -1)
    return times, np.cumsum(change, axis=1)[:, :-1]


def _by_state(counts: Counts, population: str) -> ByCause:
    """Return how many components work, and how many are idle for a cause given by their own state."""
    by_cause: ByCause = {}
    for state in POPULATIONS[population].states:
        if state.info.cause is not None:
            _add(by_cause, state.info.cause, counts[FIRST_ROW[population] + state])
    return by_cause


def _add(by_cause: ByCause, cause: str, parts: Counts) -> None:
    """Add components to a cause, if there are any."""
    if parts.any():
        by_cause[cause] = by_cause[cause] + parts if cause in by_cause else parts


def _desktops(counts: Counts) -> ByCause:
    by_cause = _by_state(counts, "desktops")
    _not_admitted(counts, counts[D.WAIT_ADMISSION], by_cause)
    return by_cause


def _not_admitted(counts: Counts, desktops: Counts, by_cause: ByCause) -> None:
    """Add desktops that are not admitted to the cause that the trainer's state determines."""
    for state in TrainerState:
        limited = state in (TrainerState.WAIT_DATA, TrainerState.LENT, TrainerState.OFF)
        cause = D.WAIT_ADMISSION.info.label if limited else state.info.label
        _add(by_cause, cause, desktops * counts[FIRST_ROW["trainer"] + state])


def _engines(counts: Counts) -> ByCause:
    by_cause = _by_state(counts, "engines")
    idle_engines = counts[FIRST_ROW["engines"] + EngineState.IDLE]
    _most_common(counts, idle_engines, (NOT_ASKING,), by_cause, otherwise=NETWORK)
    return by_cause


def _trainer(counts: Counts) -> ByCause:
    by_cause = _by_state(counts, "trainer")
    waits = counts[FIRST_ROW["trainer"] + TrainerState.WAIT_DATA]
    _most_common(counts, waits, (WITH_ATTEMPT, WITHOUT), by_cause, otherwise=D.OFF.info.label)
    return by_cause


def _most_common(
    counts: Counts,
    parts: Counts,
    ranks: Sequence[Sequence[DesktopState]],
    by_cause: ByCause,
    *,
    otherwise: str,
) -> None:
    """Add ``parts`` to the most common desktop state within the first rank of states that has any desktop."""
    left = parts
    for states in ranks:
        among = counts[list(states)]
        most = np.argmax(among, axis=0)  # ties go to the first state
        known = left * (among.max(axis=0) > 0)
        for place, state in enumerate(states):
            here = known * (most == place)
            if state is D.WAIT_ADMISSION:
                _not_admitted(counts, here, by_cause)
            else:
                _add(by_cause, state.info.label, here)
        left = left - known
    _add(by_cause, otherwise, left)
