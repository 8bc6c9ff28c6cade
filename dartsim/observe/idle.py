"""Why idle: every second of every desktop, worker and of the trainer, at work or with one cause.

At work are a desktop that acts, a worker with a request, a trainer in an update. This is stricter than environment
utilization, which counts the wait for a reply as use of the desktop: here that is idle, for the cause ``model``.

Most states name their cause. Three do not, and take it from what the rest of the system does at that moment:

- a desktop that is *not admitted* waits for the trainer while that runs an update, for the publication or the sync
  while the trainer waits for it, and for the admission limit else;
- an *idle worker* waits for what most desktops do that do not ask for a reply; if all of them ask, the request is
  on its way;
- a trainer that *waits for data* waits for what most desktops do that have an attempt; if none has, for what most of
  the others wait for.

A tie goes to the state that comes first in ``DesktopState``. Causes of a population, with its work, add up to its
parts times the window.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dartsim.observe.recorder import Recorder
from dartsim.observe.states import DesktopState, TrainerState, WorkerState
from dartsim.observe.timeline import Window, recorded_window

Floats = NDArray[np.float64]

AT_WORK = "at work"
WORK: Mapping[str, str] = {"desktops": "acting", "workers": "busy", "trainer": "training"}
"""What work is, by population: the state that it is called and drawn as."""

CAUSES: Mapping[str, str] = {
    "model": "a reply is awaited: queue, prefill and decoding of the workers, and the way there and back",
    "way": "no worker has a request, although all desktops ask: hops, encoding, preprocessing",
    "acting": "actions are carried out on desktops, until the next observation",
    "boots": "desktops boot",
    "teardown": "desktops are torn down",
    "set-up": "tasks are being set up",
    "scoring": "attempts are scored",
    "lock step": "turns wait for the slowest desktop of a lock-step turn",
    "sampling unit": "slots wait for the other attempts of their task or batch",
    "admission limit": "the admission rule lets no further attempt start, while the trainer waits for data",
    "update": "an update runs, and nothing more may be admitted before it ends",
    "weight sync": "weights are being changed",
    "publication": "new weights are held back until the attempts that run have ended, and none begins",
    "failed starts": "a desktop failed to start, and the next try is due later",
    "spare": "a spare desktop is booted and not needed",
    "fault": "a worker or the trainer is down",
    "not provisioned": "before its start or after the run's end",
}
"""Every cause with its meaning, in the order in which they are drawn."""

D = DesktopState
DESKTOP_CAUSE: Mapping[DesktopState, str] = {
    D.STARTING: "boots",
    D.SETUP: "set-up",
    D.GENERATING: "model",
    D.SYNC_WAIT: "weight sync",
    D.TURN_WAIT: "lock step",
    D.ACTING: "acting",
    D.EVALUATING: "scoring",
    D.CLOSING: "teardown",
    D.WAIT_UNIT: "sampling unit",
    D.WAIT_START: "failed starts",
    D.OFF: "not provisioned",
    D.READY: "spare",
}
"""What a desktop's state stands for; ``WAIT_ADMISSION`` depends on the trainer."""

TRAINER_CAUSE: Mapping[TrainerState, str] = {
    TrainerState.WAIT_DATA: "admission limit",
    TrainerState.TRAINING: "update",
    TrainerState.WAIT_SYNC: "weight sync",
    TrainerState.WAIT_PUBLISH: "publication",
    TrainerState.DOWN: "fault",
    TrainerState.OFF: "admission limit",
}
"""Why a desktop is not admitted, by what the trainer does."""

WITH_ATTEMPT = (
    D.STARTING,
    D.SETUP,
    D.GENERATING,
    D.SYNC_WAIT,
    D.TURN_WAIT,
    D.ACTING,
    D.EVALUATING,
    D.CLOSING,
)
WITHOUT = (D.WAIT_ADMISSION, D.WAIT_UNIT, D.WAIT_START, D.OFF, D.READY)
NOT_ASKING = tuple(state for state in D if state not in (D.GENERATING, D.OFF))

COLUMNS: Mapping[str, int] = {"desktops": 0, "workers": len(D), "trainer": len(D) + len(WorkerState)}
"""First column of each population's states in the table of how many parts are in which state."""
NUM_COLUMNS = len(D) + len(WorkerState) + len(TrainerState)


def idle(recorder: Recorder, *, num_bins: int = 120) -> dict[str, Any] | None:
    """Return what ``attribute`` finds in the recorded window, as written to ``idle.json``; None without segments."""
    window = recorded_window(recorder)
    return None if window is None else attribute(window, num_bins=num_bins)


def attribute(window: Window, *, num_bins: int = 120) -> dict[str, Any]:
    """Return the seconds at work and the seconds by cause of each population, in all and over time.

    Args:
        window: What every part did.
        num_bins: Stretches of equal length that the window is cut into.
    """
    edges = np.linspace(window.start, window.end, num_bins + 1)
    times, counts = _counts(window, edges)
    lengths = np.diff(times)
    weights = {
        "desktops": _desktops(counts),
        "workers": _workers(counts),
        "trainer": _trainer(counts),
    }
    first = np.searchsorted(times[:-1], edges[:-1], side="left")
    populations = {}
    for name, by_cause in weights.items():
        size = len(window.stays[name])
        spent = {cause: np.add.reduceat(parts * lengths, first) for cause, parts in by_cause.items()}
        kept = {cause: seconds for cause, seconds in spent.items() if seconds.sum() > 0.0}
        whole = np.diff(edges) * size
        populations[name] = {
            "size": size,
            "seconds": {cause: round(float(seconds.sum()), 3) for cause, seconds in kept.items()},
            "shares": {cause: [round(float(x), 6) for x in seconds / whole] for cause, seconds in kept.items()},
        }
    return {
        "start_seconds": round(window.start, 3),
        "end_seconds": round(window.end, 3),
        "hours": [round(float(edge) / 3600.0, 6) for edge in edges],
        "populations": populations,
    }


def _counts(window: Window, edges: Floats) -> tuple[Floats, NDArray[np.int32]]:
    """Return moments, and how many parts are in which state from each moment to the next; [n + 1] and [n, states].

    The edges are among the moments, the last of which is the window's end.
    """
    starts, ends, columns = _stays(window)
    when = np.concatenate([starts, ends, edges])
    order = np.argsort(when, kind="stable")
    times = when[order]
    change = np.zeros((len(when), NUM_COLUMNS), dtype=np.int32)
    rows = np.empty(len(when), dtype=np.int64)
    rows[order] = np.arange(len(when))
    number = len(starts)
    np.add.at(change, (rows[:number], columns), 1)
    np.add.at(change, (rows[number : 2 * number], columns), -1)
    return times, np.cumsum(change, axis=0)[:-1]


def _stays(window: Window) -> tuple[Floats, Floats, NDArray[np.int64]]:
    found: list[tuple[float, float, int]] = [
        (stay.start, stay.end, first + stay.state)
        for name, first in COLUMNS.items()
        for part in window.stays[name]
        for stay in part
    ]
    table = np.array(found, dtype=np.float64).reshape(-1, 3)
    return table[:, 0], table[:, 1], table[:, 2].astype(np.int64)


def _desktops(counts: NDArray[np.int32]) -> dict[str, Floats]:
    """Return how many desktops are at work and how many idle for each cause, from each moment to the next."""
    found = _zeros(len(counts))
    for state, cause in DESKTOP_CAUSE.items():
        found[AT_WORK if state is D.ACTING else cause] += counts[:, state]
    _not_admitted(counts, counts[:, D.WAIT_ADMISSION].astype(np.float64), found)
    return found


def _not_admitted(counts: NDArray[np.int32], parts: Floats, found: dict[str, Floats]) -> None:
    """Add parts that wait for admission to the cause that the trainer gives."""
    for state, cause in TRAINER_CAUSE.items():
        found[cause] += parts * counts[:, COLUMNS["trainer"] + state]


def _workers(counts: NDArray[np.int32]) -> dict[str, Floats]:
    found = _zeros(len(counts))
    first = COLUMNS["workers"]
    for state, cause in {
        WorkerState.BUSY: AT_WORK,
        WorkerState.DRAINING: AT_WORK,
        WorkerState.LOADING: "weight sync",
        WorkerState.DOWN: "fault",
        WorkerState.OFF: "not provisioned",
    }.items():
        found[cause] += counts[:, first + state]
    idle_parts = counts[:, first + WorkerState.IDLE].astype(np.float64)
    _most(counts, idle_parts, (NOT_ASKING,), found, else_="way")
    return found


def _trainer(counts: NDArray[np.int32]) -> dict[str, Floats]:
    found = _zeros(len(counts))
    first = COLUMNS["trainer"]
    for state, cause in {
        TrainerState.TRAINING: AT_WORK,
        TrainerState.WAIT_SYNC: "weight sync",
        TrainerState.WAIT_PUBLISH: "publication",
        TrainerState.DOWN: "fault",
        TrainerState.OFF: "not provisioned",
    }.items():
        found[cause] += counts[:, first + state]
    waits = counts[:, first + TrainerState.WAIT_DATA].astype(np.float64)
    _most(counts, waits, (WITH_ATTEMPT, WITHOUT), found, else_="not provisioned")
    return found


def _most(
    counts: NDArray[np.int32],
    parts: Floats,
    ranks: Sequence[Sequence[DesktopState]],
    found: dict[str, Floats],
    *,
    else_: str,
) -> None:
    """Add ``parts`` to the cause of the state that most desktops are in, among those of the first rank with any."""
    left = parts.copy()
    for states in ranks:
        among = counts[:, list(states)]
        most = np.argmax(among, axis=1)  # the first of equals
        known = among.max(axis=1) > 0
        for place, state in enumerate(states):
            here = np.where(known & (most == place), left, 0.0)
            if state is D.WAIT_ADMISSION:
                _not_admitted(counts, here, found)
            else:
                found[DESKTOP_CAUSE[state]] += here
        left = np.where(known, 0.0, left)
    found[else_] += left


def _zeros(number: int) -> dict[str, Floats]:
    return {cause: np.zeros(number) for cause in (AT_WORK, *CAUSES)}


def ranking(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return every cause of every population with its seconds and share, the largest share first.

    Args:
        found: What ``attribute`` returned.
    """
    length = found["end_seconds"] - found["start_seconds"]
    rows = [
        {
            "population": name,
            "cause": cause,
            "seconds": seconds,
            "share": seconds / (length * population["size"]),
        }
        for name, population in found["populations"].items()
        for cause, seconds in population["seconds"].items()
        if cause != AT_WORK
    ]
    return sorted(rows, key=lambda row: (-row["share"], row["population"], row["cause"]))
