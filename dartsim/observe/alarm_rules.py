"""Alarms: rules over a run's measurements.

A rule returns since when its condition holds, with a sentence about it, or None. Nothing here schedules anything: a
snapshot or the progress display calls ``look``, so watching a run does not change it.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping
from itertools import pairwise
from statistics import median
from typing import NamedTuple

from typing_extensions import override

from dartsim.config.schema import AlarmsConfig
from dartsim.core.types import Drop, Trajectory
from dartsim.observe import EngineState, Instrument, Recorder, TrainerState
from dartsim.observe.alarm import Alarm, hours
from dartsim.observe.recorder import MAX_REASON
from dartsim.observe.records import MISMATCH_ALARM, UNTRAINABLE

MAX_ALARMS = 200
"""A run with so many alarms raises no more."""
CHECKS_PER_WINDOW = 12
INTERVALS = 33
"""Newest updates whose median spacing is the expected one."""
NOT_BY_GROUP_RULE = (Drop.STALE, Drop.UNUSED, Drop.REPLACED)
DROPPED, LOAD_CAUSE = "dropped/", "load_cause/"
GIB = 2**30
HYSTERESIS = 0.9
"""Share of its bound at which an alarm is cleared, so that a value that oscillates about the bound is one alarm."""


class Finding(NamedTuple):
    """Since when a rule's condition holds, and a sentence about it."""

    since: float
    text: str


class Totals(NamedTuple):
    """Counts at one time."""

    time: float
    counts: Mapping[str, float]


class Alarms(Instrument):
    """The alarms of one run; raised ones are in ``recorder.alarms``.

    Args:
        recorder: The run's measurements.
        limits: Bounds of the alarms.
        batch_attempts: Attempts of the smallest batch.
        mismatch_bound: Bound of the difference of log-probabilities, nats; None: not checked.
        free_bytes: Returns what the run's disk has free; None: not checked.
    """

    def __init__(
        self,
        recorder: Recorder,
        limits: AlarmsConfig,
        *,
        batch_attempts: int,
        mismatch_bound: float | None = None,
        free_bytes: Callable[[], int | None] | None = None,
    ) -> None:
        self._recorder = recorder
        self._limits = limits
        self._batch_attempts = batch_attempts
        self._mismatch_bound = mismatch_bound
        self._free_bytes = free_bytes
        self._rules: Mapping[str, Callable[[], Finding | None]] = {
            "trainer_starved": self._trainer_starved,
            "no_trajectory": self._no_trajectory,
            "engine_down": self._engine_down,
            "stale_drops": self._stale_drops,
            "nothing_to_train": self._nothing_to_train,
            "mismatch": self._mismatch,
            "disk_near_full": self._disk_near_full,
            "desktops_failing": self._desktops_failing,
            "attempts_masked": self._attempts_masked,
            "untrainable": self._untrainable,
        }
        # Alarms that were open when the run crashed are cleared or kept at the first check.
        self._open = {alarm.name: alarm for alarm in recorder.alarms if alarm.cleared is None}
        self._now = recorder.now
        self._ended_at = recorder.now
        self._down_since: dict[int, float] = {}
        self._mismatches = float(recorder.counts[MISMATCH_ALARM])
        self._untrained = float(recorder.counts[UNTRAINABLE])
        self._leased = Totals(recorder.now, dict(recorder.counts))
        """As of the last batch."""
        self._kept = recorder.kept.total()
        """Attempts of groups that passed the group rule, as of the last batch."""
        self._window: deque[Totals] = deque([self._leased])

    def look(self, now: float | None = None) -> list[Alarm]:
        """Check every rule, and return the alarms that are new; ``now``: loop time, by default the present."""
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

    @override
    def attempt_ended(self, trajectory: Trajectory) -> None:
        self._ended_at = self._recorder.now

    def _remember(self) -> None:
        recorder, window = self._recorder, self._limits.window_seconds
        now, counts = self._now, recorder.counts
        if counts["admitted_turns"] != self._leased.counts.get("admitted_turns", 0):
            self._leased, self._kept = Totals(now, dict(counts)), recorder.kept.total()
        if now - self._window[-1].time >= window / CHECKS_PER_WINDOW:
            self._window.append(Totals(now, dict(counts)))
        while len(self._window) > 1 and self._window[1].time <= now - window:
            self._window.popleft()
        for track in recorder.engines.tracks:
            if track.state in (EngineState.DOWN, EngineState.LOADING):
                self._down_since.setdefault(track.index, track.since - recorder.started)
            else:
                self._down_since.pop(track.index, None)

    def _recent(self, name: str) -> float:
        """Return the increase of a count within the window."""
        return self._increase(name, self._window[0])

    def _increase(self, name: str, start: Totals) -> float:
        return self._recorder.counts[name] - start.counts.get(name, 0)

    def _drops_since(self, start: Totals) -> dict[str, int]:
        """Return the drops by reason since a time, the most frequent first."""
        counts = self._recorder.counts
        since = {
            name.removeprefix(DROPPED): int(number - start.counts.get(name, 0))
            for name, number in counts.items()
            if name.startswith(DROPPED)
        }
        return {name: number for name, number in sorted(since.items(), key=lambda item: (-item[1], item[0])) if number}

    def _trainer_starved(self) -> Finding | None:
        recorder, limits = self._recorder, self._limits
        track = recorder.trainer.tracks[0]
        if track.state != TrainerState.WAIT_DATA:
            return None
        waited = self._now - (track.since - recorder.started)
        times = [record.time for record in list(recorder.updates)[-INTERVALS:]]
        usual = median(b - a for a, b in pairwise(times)) if len(times) > 2 else None
        bound = max(limits.starved_seconds, limits.starved_times * (usual or 0.0))
        if waited <= bound:
            return None
        ended = int(recorder.counts["trajectories"] - self._leased.counts.get("trajectories", 0))
        drops = ", ".join(f"{number} {reason}" for reason, number in self._drops_since(self._leased).items())
        expected = "no update was finished yet" if usual is None else f"the median between updates is {hours(usual)}"
        return Finding(
            track.since - recorder.started,
            f"the trainer has had no batch for {hours(waited)} (bound {hours(bound)}; {expected}); {ended} attempts "
            f"ended meanwhile, dropped: {drops or 'none'}; {self._detail('trainer', 0)}{self._refusals()}",
        )

    def _no_trajectory(self) -> Finding | None:
        quiet, bound = self._now - self._ended_at, self._limits.no_trajectory_seconds
        if quiet <= bound:
            return None
        population = self._recorder.desktops
        states = [population.states(track.state).info.label for track in population.tracks]
        doing = ", ".join(
            f"{states.count(name)} {name}" for name in sorted(set(states), key=states.count, reverse=True)
        )
        return Finding(
            self._ended_at, f"no attempt has ended for {hours(quiet)} (bound {hours(bound)}); slots: {doing}"
        )

    def _engine_down(self) -> Finding | None:
        now, bound = self._now, self._limits.engine_down_seconds
        down = {index: since for index, since in self._down_since.items() if now - since > bound}
        if not down:
            return None
        index = min(down, key=lambda number: down[number])
        more = f" and {len(down) - 1} more" if len(down) > 1 else ""
        others = len(self._recorder.engines) - len(down)
        return Finding(
            down[index],
            f"worker {index}{more} has not served for {hours(now - down[index])} (bound {hours(bound)}); "
            f"{self._detail('engines', index)}; the other {others} serve{self._refusals()}{self._engine_fault(index)}",
        )

    def _stale_drops(self) -> Finding | None:
        stale, trained = self._recent("dropped/stale"), self._recent("trained_trajectories")
        bound = self._limits.stale_share
        if stale + trained < 2 * self._batch_attempts or stale <= bound * (stale + trained):
            return None
        return Finding(
            self._window[0].time,
            f"{stale:.0f} trajectories were dropped as stale and {trained:.0f} trained, "
            f"{stale / (stale + trained):.0%} (bound {bound:.0%}), since {hours(self._window[0].time)}"
            f"{self._refusals()}",
        )

    def _nothing_to_train(self) -> Finding | None:
        return self._dropped("nothing_to_train", by_faults=False)

    def _attempts_masked(self) -> Finding | None:
        return self._dropped("attempts_masked", by_faults=True)

    def _dropped(self, name: str, *, by_faults: bool) -> Finding | None:
        """Return that almost all attempts since the last batch were dropped, if most were, or were not, by faults."""
        drops = Counter(self._drops_since(self._leased))
        # What was canceled, by the run's end or with its group, is masked too.
        drops[Drop.MASKED] -= int(self._increase("ending/cancelled", self._leased))
        lost = sum(number for reason, number in drops.items() if reason not in NOT_BY_GROUP_RULE)
        bound = self._limits.dropped_batches * self._batch_attempts
        judged = lost + self._recorder.kept.total() - self._kept
        if lost < bound or lost < self._bound_of(name, self._limits.dropped_share) * judged:
            return None
        if (2 * (drops[Drop.MASKED] + drops[Drop.TOO_SMALL]) > lost) is not by_faults:
            return None
        reasons = ", ".join(f"{number} {reason}" for reason, number in drops.items() if number)
        by = f"faults ({self._causes(self._leased)})" if by_faults else "the group rule"
        return Finding(
            self._leased.time,
            f"of {judged} attempts judged since the last batch, {lost} were dropped by {by} (bound {bound:.0f} and "
            f"{self._limits.dropped_share:.0%}): {reasons}",
        )

    def _mismatch(self) -> Finding | None:
        seen, self._mismatches = self._mismatches, self._recorder.counts[MISMATCH_ALARM]
        if self._mismatch_bound is None or self._mismatches <= seen:
            return None
        last = self._recorder.updates[-1] if self._recorder.updates else None
        value = last.metrics.get("importance/mismatch_mean") if last else None
        said = "" if value is None else f", {value:.3g} nats in the last one"
        return Finding(
            last.time if last else self._now,
            f"worker and learner disagree at equal weights in {self._mismatches:.0f} updates{said} "
            f"(bound trainer.mismatch_bound = {self._mismatch_bound:g} nats)",
        )

    def _untrainable(self) -> Finding | None:
        seen, self._untrained = self._untrained, self._recorder.counts[UNTRAINABLE]
        if self._untrained <= seen:
            return None
        attempts = self._recorder.counts[f"{DROPPED}{Drop.UNTRAINABLE}"]
        return Finding(
            self._now,
            f"{self._untrained:.0f} batches could not change the weights; their {attempts:.0f} attempts were dropped",
        )

    def _disk_near_full(self) -> Finding | None:
        free = None if self._free_bytes is None else self._free_bytes()
        bound = self._limits.disk_free_gib
        if free is None or free >= bound * GIB:
            return None
        return Finding(self._now, f"{free / GIB:.2f} GiB are free on the run's disk (bound {bound:g} GiB)")

    def _desktops_failing(self) -> Finding | None:
        starts, broken = self._recent("fault/start"), self._recent("ending/broken")
        tries = self._recent("trajectories") + starts
        failed, bound = starts + broken, self._limits.failing_share
        if tries < self._limits.failing_least or failed <= bound * tries:
            return None
        return Finding(
            self._window[0].time,
            f"{failed:.0f} of {tries:.0f} starts and attempts failed, {failed / tries:.0%} (bound {bound:.0%}), since "
            f"{hours(self._window[0].time)}; causes: {self._causes(self._window[0])}{self._reasons()}",
        )

    def _causes(self, start: Totals) -> str:
        """Return how often starts and attempts failed since a time, by cause."""
        causes = {
            name.partition("/")[2]: self._increase(name, start)
            for name in sorted(self._recorder.counts)
            if name.startswith(("start_cause/", "cause/"))
        }
        return ", ".join(f"{number:.0f} {cause}" for cause, number in causes.items() if number) or "unknown"

    def _reasons(self) -> str:
        """Return the newest message of each cause of recently failed starts and attempts."""
        reasons = self._recorder.fault_reasons.items()
        recent = [
            f"{cause}: {reason}"
            for cause, reason in reasons
            if self._recent(f"start_cause/{cause}") or self._recent(f"cause/{cause}")
        ]
        return f"; the last ones said: {'; '.join(recent)}" if recent else ""

    def _refusals(self) -> str:
        """Return how many loads of weights failed recently, and why."""
        causes = {
            name.removeprefix(LOAD_CAUSE): self._recent(name)
            for name in sorted(self._recorder.counts)
            if name.startswith(LOAD_CAUSE)
        }
        said = ", ".join(f"{number:.0f} {cause}" for cause, number in causes.items() if number)
        return f"; loads of weights that failed since {hours(self._window[0].time)}: {said}" if said else ""

    def _engine_fault(self, index: int) -> str:
        reason = self._recorder.engine_faults.get(index)
        return f"; its last fault: {reason[:MAX_REASON]}" if reason else ""

    def _bound_of(self, name: str, bound: float) -> float:
        return bound * (HYSTERESIS if name in self._open else 1.0)

    def _detail(self, population: str, index: int) -> str:
        return self._recorder.status_source.detail(population, index)
