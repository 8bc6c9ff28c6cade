"""Alarms: rules over a run's measurements.

    trainer waits for a batch too long          trainer_starved
    an engine is down, or loads, too long       engine_down
    faults mask almost all attempts             attempts_masked
    learner and engines disagree                mismatch
    a batch cannot change the weights           untrainable
    the disk is nearly full                     disk_near_full

A rule returns when its condition began to hold, with a sentence about it, or None. Nothing here schedules anything: a
snapshot or the progress display calls ``look``, so watching a run does not change it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from itertools import pairwise
from statistics import median
from typing import NamedTuple

from dartsim.core.types import Drop
from dartsim.observe import EngineState, Recorder, TrainerState
from dartsim.observe.alarm import Alarm, hours
from dartsim.observe.recorder import MAX_REASON
from dartsim.observe.records import MISMATCH_ALARM, UNTRAINABLE

MAX_ALARMS = 200
"""Maximum number of alarms of a run."""
STARVED_TIMES, STARVED_SECONDS = 5.0, 3600.0
"""A batch may take this many times the median between updates, but always at least this long."""
INTERVALS = 33
"""Number of newest updates whose median spacing is the expected one."""
ENGINE_DOWN_SECONDS = 1800.0
"""Longest time for which an engine may be down."""
MASKED_BATCHES, MASKED_SHARE = 4, 0.95
"""Bounds on attempts lost to faults since the last batch: in batches, and as a share of the attempts that ended."""
DISK_FREE_GIB = 0.5
"""Minimum free space on the run's disk."""
GIB = 2**30


class Finding(NamedTuple):
    """When a rule's condition began to hold, and a sentence about it."""

    since: float
    text: str


class Alarms:
    """The alarms of one run; raised ones are in ``recorder.alarms``.

    Args:
        recorder: The run's measurements.
        batch_attempts: Attempts of the smallest batch.
        free_bytes: Returns the free space on the run's disk; None: not checked.
    """

    def __init__(
        self, recorder: Recorder, *, batch_attempts: int, free_bytes: Callable[[], int | None] | None = None
    ) -> None:
        self._recorder = recorder
        self._batch_attempts = batch_attempts
        self._free_bytes = free_bytes
        self._rules: Mapping[str, Callable[[], Finding | None]] = {
            "trainer_starved": self._trainer_starved,
            "engine_down": self._engine_down,
            "attempts_masked": self._attempts_masked,
            "mismatch": self._mismatch,
            "untrainable": self._untrainable,
            "disk_near_full": self._disk_near_full,
        }
        # Alarms that were open when the run crashed are cleared or kept at the first check.
        self._open = {alarm.name: alarm for alarm in recorder.alarms if alarm.cleared is None}
        self._now = recorder.now
        self._down_since: dict[int, float] = {}
        self._seen = {name: recorder.counts[name] for name in (MISMATCH_ALARM, UNTRAINABLE)}
        self._leased_at = recorder.now
        """When the last batch was leased."""
        self._leased = dict(recorder.counts)
        """Counts at that time."""

    def look(self, now: float | None = None) -> list[Alarm]:
        """Check every rule and return new alarms; ``now`` is the loop time, by default the present."""
        self._now = now = self._recorder.now if now is None else now - self._recorder.started
        self._remember()
        new: list[Alarm] = []
        for name, rule in self._rules.items():
            finding, known = rule(), self._open.get(name)
            if finding is None:
                if known is not None:
                    known.cleared = now
                    del self._open[name]
            elif known is not None:
                known.found = finding.text
            elif len(self._recorder.alarms) < MAX_ALARMS:
                self._open[name] = alarm = Alarm(name=name, found=finding.text, since=finding.since, raised=now)
                self._recorder.alarms.append(alarm)
                new.append(alarm)
        return new

    def _remember(self) -> None:
        recorder = self._recorder
        if recorder.counts["admitted_turns"] != self._leased.get("admitted_turns", 0):
            self._leased_at, self._leased = self._now, dict(recorder.counts)
        for track in recorder.engines.tracks:
            if track.state in (EngineState.DOWN, EngineState.LOADING):
                self._down_since.setdefault(track.index, track.since - recorder.started)
            else:
                self._down_since.pop(track.index, None)

    def _increase(self, name: str) -> int:
        """Return the increase of a count since the last batch."""
        return int(self._recorder.counts[name] - self._leased.get(name, 0))

    def _causes(self, *prefixes: str) -> dict[str, int]:
        """Return the increase of counts since the last batch, by cause."""
        counts = self._recorder.counts
        return {name.partition("/")[2]: self._increase(name) for name in counts if name.startswith(prefixes)}

    def _trainer_starved(self) -> Finding | None:
        recorder = self._recorder
        track = recorder.trainer.tracks[0]
        if track.state not in (TrainerState.WAIT_DATA, TrainerState.LENT):
            return None
        since = track.since - recorder.started
        times = [record.time for record in list(recorder.updates)[-INTERVALS:]]
        usual = median(b - a for a, b in pairwise(times)) if len(times) > 2 else None
        bound = max(STARVED_SECONDS, STARVED_TIMES * (usual or 0.0))
        if self._now - since <= bound:
            return None
        expected = "no update was finished yet" if usual is None else f"the median between updates is {hours(usual)}"
        dropped = _counts_text(self._causes("dropped/")) or "none"
        desktops = Counter(recorder.desktops.states(track.state).info.label for track in recorder.desktops.tracks)
        return Finding(
            since,
            f"the trainer has had no batch for {hours(self._now - since)} (bound {hours(bound)}; {expected}); "
            f"{self._increase('trajectories')} attempts ended meanwhile, dropped: {dropped}; "
            f"desktops: {_counts_text(desktops)}; {self._detail('trainer', 0)}{self._faults()}",
        )

    def _engine_down(self) -> Finding | None:
        down = {index: since for index, since in self._down_since.items() if self._now - since > ENGINE_DOWN_SECONDS}
        if not down:
            return None
        index = min(down, key=lambda number: down[number])
        more = f" and {len(down) - 1} more" if len(down) > 1 else ""
        reason = self._recorder.engine_faults.get(index)
        said = f"; its last fault: {reason[:MAX_REASON]}" if reason else ""
        return Finding(
            down[index],
            f"worker {index}{more} has not served for {hours(self._now - down[index])} (bound "
            f"{hours(ENGINE_DOWN_SECONDS)}); {self._detail('engines', index)}; the other "
            f"{len(self._recorder.engines) - len(down)} serve{self._faults()}{said}",
        )

    def _attempts_masked(self) -> Finding | None:
        # Attempts canceled at the run's end or with their group are masked too, but are not faults.
        canceled = self._increase("ending/cancelled")
        lost = self._increase(f"dropped/{Drop.MASKED}") - canceled + self._increase(f"dropped/{Drop.TOO_SMALL}")
        ended = self._increase("trajectories") - canceled
        bound = MASKED_BATCHES * self._batch_attempts
        if lost < max(bound, MASKED_SHARE * ended):
            return None
        return Finding(
            self._leased_at,
            f"of {ended} attempts that ended since the last batch, faults cost {lost} (bound {bound} and "
            f"{MASKED_SHARE:.0%}){self._faults()}",
        )

    def _mismatch(self) -> Finding | None:
        if not (number := self._new(MISMATCH_ALARM)):
            return None
        last = self._recorder.updates[-1] if self._recorder.updates else None
        value = last.metrics.get("importance/mismatch_mean") if last else None
        said = "" if value is None else f", {value:.3g} nats in the last one"
        return Finding(
            last.time if last else self._now,
            f"engine and learner disagree at equal weights in {number} updates{said}, by more than "
            "trainer.mismatch_bound",
        )

    def _untrainable(self) -> Finding | None:
        if not (number := self._new(UNTRAINABLE)):
            return None
        attempts = int(self._recorder.counts[f"dropped/{Drop.UNTRAINABLE}"])
        return Finding(
            self._now, f"{number} batches could not change the weights; their {attempts} attempts were dropped"
        )

    def _new(self, name: str) -> int:
        """Return a count if it has risen since the last check, otherwise 0."""
        seen, self._seen[name] = self._seen[name], self._recorder.counts[name]
        return int(self._seen[name]) if self._seen[name] > seen else 0

    def _disk_near_full(self) -> Finding | None:
        free = None if self._free_bytes is None else self._free_bytes()
        if free is None or free >= DISK_FREE_GIB * GIB:
            return None
        return Finding(self._now, f"{free / GIB:.2f} GiB are free on the run's disk (bound {DISK_FREE_GIB:g} GiB)")

    def _faults(self) -> str:
        """Return the faults of starts, attempts and weight loads since the last batch, as text."""
        said = ""
        if causes := _counts_text(self._causes("start_cause/", "cause/")):
            reasons = [f"{cause}: {why}" for cause, why in self._recorder.fault_reasons.items() if cause in causes]
            said = f"; starts and attempts that failed: {'; '.join([causes, *reasons])}"
        loads = _counts_text(self._causes("load_cause/"))
        return f"{said}; loads of weights that failed: {loads}" if loads else said

    def _detail(self, population: str, index: int) -> str:
        return self._recorder.status_source.detail(population, index)


def _counts_text(numbers: Mapping[str, int]) -> str:
    """Return counts as text, the largest first."""
    wanted = sorted(numbers.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{number} {name}" for name, number in wanted if number)
