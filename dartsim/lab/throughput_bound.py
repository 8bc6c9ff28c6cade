"""The bottleneck law over time: what is not made cannot be trained, and what was not trained then is not caught up.

A mean over a run says too little where the limit moves. In the first pass over the tasks about half of the groups
carry no signal, and desktops limit; later the task filter passes those over, and the trainer limits. The least of two
means lies above both stretches. So the law is taken moment by moment: with S(s) the usable turns that desktops and
engines can have made by s, and m turns a minute that the trainer takes, it has trained at most S(s) + m (T - s) by T,
for every s (Reich's formula for a queue that is fed and served).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf

import numpy as np
from numpy.typing import NDArray

from dartsim.core.types import Drop
from dartsim.observe.figures import after_warmup
from dartsim.observe.records import Snapshot

Floats = NDArray[np.float64]

NO_SIGNAL = (Drop.ALL_FAILED, Drop.ALL_SOLVED, Drop.NO_SIGNAL)
"""Why a group is dropped that no scheduler could have trained on."""


def supply_bound(by_part: Mapping[str, float], snapshots: Sequence[Snapshot], warmup_share: float) -> float:
    """Return the most turns a minute that could be trained between warm-up and end.

    Which of what is made is usable is taken from the run: its groups in the order in which it made them, however fast.
    Beyond what it made, the rest is as its second half.

    Args:
        by_part: Turns a minute that ``trainer``, ``desktops`` and ``engines`` allow, as ``dartsim.lab.bounds`` says;
            a part that is missing allows any number.
        snapshots: Of the run, oldest first.
        warmup_share: Share of the run before what is measured.
    """
    first, last = after_warmup(snapshots, warmup_share), snapshots[-1]
    makes = min((rate for part, rate in by_part.items() if part != "trainer"), default=inf)
    takes = by_part.get("trainer", inf)
    minutes = (last.time - first.time) / 60.0
    if makes == inf or minutes <= 0.0:
        return takes
    before = first.counts.get("trained_turns", 0)
    seconds = np.array([snapshot.time for snapshot in snapshots if snapshot.time >= first.time])
    supplied = _of_first(makes * seconds / 60.0, *_usable(snapshots)) - before
    left = (last.time - seconds) / 60.0
    trained = supplied + np.multiply(takes, left, out=np.zeros_like(left), where=left > 0.0)
    return min(takes * minutes, float(trained.min())) / minutes


def _usable(snapshots: Sequence[Snapshot]) -> tuple[list[float], list[float]]:
    """Return, snapshot by snapshot, the turns that had been made, and how many of them were not dropped for good."""
    made, usable, most = [0.0], [0.0], 0.0
    for snapshot in snapshots:
        turns = float(snapshot.counts.get("generated_turns", 0))
        most = max(most, turns - sum(snapshot.counts.get(f"dropped_turns/{reason}", 0) for reason in NO_SIGNAL))
        if turns > made[-1]:
            made.append(turns)
            usable.append(most)
        else:
            usable[-1] = most
    return made, usable


def _of_first(turns: Floats, made: Sequence[float], usable: Sequence[float]) -> Floats:
    """Return how many of the first so many turns are usable, for each number of turns."""
    half = float(np.interp(made[-1] / 2.0, made, usable))
    rest = (usable[-1] - half) / (made[-1] / 2.0) if made[-1] else 1.0
    return np.interp(turns, made, usable) + rest * np.maximum(turns - made[-1], 0.0)
