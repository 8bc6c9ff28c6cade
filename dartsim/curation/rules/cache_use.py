"""How many attempts may run at once, given how full the engines' caches are: prime-rl's controller.

The bound is raised by a factor while caches have space and the bound is binding, and lowered at once when they fill up.
Additive rules react too slowly, because an admitted attempt stays for minutes.

Source: prime-rl 559b447, ``concurrency.py`` and ``dispatcher.py``. Departures: this controller runs when attempts end,
not once a second; the original meters dispatch, this one the growth of the bound; and nothing is ever preempted here
(the engine model reserves what a request may need), so there are no cuts after preemptions.
"""

from __future__ import annotations

from math import ceil

from typing_extensions import override

from dartsim.config.sections.curation import AdmissionConfig
from dartsim.core.registry import register
from dartsim.curation.rules.admission import AdmissionRule, EngineCaches

GROWTH = 1.25
"""Factor by which the bound is raised."""
GROW_BELOW = 0.6
"""Use of the fullest cache below which the bound may be raised."""
BINDING = 0.9
"""Share of the bound that must be running for it to be raised; below, something else is limiting."""
SOFT_ABOVE, HARD_ABOVE = 0.8, 0.9
"""Use above which the bound is lowered, and above which the youngest groups are withdrawn too."""
TARGET = 0.7
"""Use that a lowered bound aims for."""
QUEUE_RATIO, QUEUE_CUT = 0.5, 0.9
"""Ratio of waiting to running requests that is too high if seen ``LOOKS`` times in a row, and the cut that follows."""
LOOKS = 6
"""Number of looks after a cut at which nothing is done."""
LOOK_SECONDS = 1.0
"""Shortest time between two looks."""
GATE_SECONDS = 15.0
"""Time after which the bound may be raised again, unless as many attempts as it allows have ended sooner."""
BURST_SECONDS = 5.0
"""Time in which the bound may rise by a tenth or by a group, whichever is more."""
MIN_ATTEMPTS, MAX_ATTEMPTS = 1, 1024
"""Range of the bound."""


@register("admission", "cache_use")
class CacheUse(AdmissionRule):
    """The bounds on groups, and as many attempts as fit into the engines' caches (prime-rl).

    States: *growing* toward a goal, *resting* after a cut, or *steady*.
    Invariant: ``MIN_ATTEMPTS`` <= ``max_running`` <= ``MAX_ATTEMPTS``.
    """

    max_running: int

    def __init__(
        self, parameters: AdmissionConfig, *, batch_groups: int, group_size: int, caches: EngineCaches | None = None
    ) -> None:
        super().__init__(parameters, batch_groups=batch_groups, group_size=group_size, caches=caches)
        if caches is None:
            raise ValueError("cache_use needs the engines' caches, and these engines do not report them")
        self._group_size = group_size
        self._read = caches.read
        self.max_running = self._goal = self._clamp(caches.first)
        self._looked = self._rose = self._raised = float("-inf")
        self._ended = 0
        self._queued = 0
        self._rest = 0

    @override
    def attempt_ended(self) -> None:
        self._ended += 1

    @override
    def adjust(self, now: float, running: int) -> bool:
        if now - self._looked < LOOK_SECONDS:
            return False
        self._looked, pressure = now, self._read()
        crowded = pressure.waiting > QUEUE_RATIO * max(1, pressure.running)
        self._queued = self._queued + 1 if crowded else 0
        if self._rest:
            self._rest -= 1
        elif pressure.share > SOFT_ABOVE:
            self._cut(min(self.max_running, running) * TARGET / pressure.share)
            return pressure.share > HARD_ABOVE
        elif self._queued >= LOOKS:
            self._cut(min(self.max_running, running) * QUEUE_CUT)
        elif pressure.share < GROW_BELOW:
            self._grow(now, running)
        return False

    def _cut(self, bound: float) -> None:
        self.max_running = self._goal = self._clamp(bound)
        self._rest, self._queued, self._ended = LOOKS, 0, 0

    def _grow(self, now: float, running: int) -> None:
        turned_over = self._ended >= self.max_running or now - self._raised >= GATE_SECONDS
        if self.max_running >= self._goal and turned_over and running >= BINDING * self.max_running:
            self._goal = self._clamp(ceil(GROWTH * self.max_running))
            self._raised, self._ended = now, 0
        if self.max_running < self._goal and now - self._rose >= BURST_SECONDS:
            self.max_running = min(self._goal, self.max_running + max(self._group_size, self.max_running // 10))
            self._rose = now

    def _clamp(self, bound: float) -> int:
        return int(min(max(bound, MIN_ATTEMPTS), MAX_ATTEMPTS))
