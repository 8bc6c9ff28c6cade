"""Alarms: rules over a run's measurements that say when it suffers, looked at now and then.

A rule returns since when, and what was found; or None. Nothing here schedules anything: whoever has a reason to look
(a snapshot, the progress display) calls ``look``, so a run that is watched does exactly what it does unwatched.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from itertools import pairwise
from statistics import median
from typing import NamedTuple

from typing_extensions import override

from dartsim.config.schema import AlarmsConfig
from dartsim.core.types import Trajectory
from dartsim.observe import EngineState, Instrument, Recorder, TrainerState
from dartsim.observe.alarm import Alarm, hours
from dartsim.observe.records import MISMATCH_ALARM

MOST = 200
"""Alarms of a run that are kept; a cause that comes and goes raises no more."""
LOOKS_A_WINDOW = 12
INTERVALS = 33
"""Newest updates whose spacing is the usual one."""
DROPPED, LOAD_CAUSE = "dropped/", "load_cause/"
GIB = 2**30
EASED = 0.9
"""Of its bound: where an alarm that was raised is over, so that what goes up and down about it is one alarm."""


class DiskUse(NamedTuple):
    """How full a run's disk is, bytes.

    Attributes:
        free: Left on the disk.
        used: What the run's store takes.
        quota: Most that it may take; None: no bound but the disk's.
    """

    free: int
    used: int = 0
    quota: int | None = None


class Found(NamedTuple):
    """What a rule found."""

    since: float
    text: str


class Look(NamedTuple):
    """Totals at one moment."""

    time: float
    counts: Mapping[str, float]


class Alarms(Instrument):
    """The alarms of one run; raised ones are in ``recorder.alarms``.

    Args:
        recorder: What is measured.
        limits: When an alarm is raised.
        batch_attempts: Attempts that a smallest batch is made of.
        mismatch_bound: Of the difference of log-probabilities, nats, for the message; None: not looked at.
        disk: Tells how full the disk is; None: not looked at.
    """

    def __init__(
        self,
        recorder: Recorder,
        limits: AlarmsConfig,
        *,
        batch_attempts: int,
        mismatch_bound: float | None = None,
        disk: Callable[[], DiskUse | None] | None = None,
    ) -> None:
        self._recorder = recorder
        self._limits = limits
        self._batch_attempts = batch_attempts
        self._mismatch_bound = mismatch_bound
        self._disk = disk
        self._rules: Mapping[str, Callable[[], Found | None]] = {
            "trainer_starved": self._trainer_starved,
            "no_trajectory": self._no_trajectory,
            "engine_down": self._engine_down,
            "stale_drops": self._stale_drops,
            "nothing_to_train": self._nothing_to_train,
            "mismatch": self._mismatch,
            "disk_near_full": self._disk_near_full,
            "desktops_failing": self._desktops_failing,
        }
        # What a run suffered from when it crashed is over, or goes on, once it is looked at again.
        self._open = {alarm.name: alarm for alarm in recorder.alarms if alarm.cleared is None}
        self._now = recorder.now
        self._ended_at = recorder.now
        self._down_since: dict[int, float] = {}
        self._mismatches = float(recorder.counts[MISMATCH_ALARM])
        self._leased = Look(recorder.now, dict(recorder.counts))
        """As of the last batch."""
        self._looks: deque[Look] = deque([self._leased])

    def look(self, now: float | None = None) -> list[Alarm]:
        """Judge the run, and return the alarms that are new.

        Args:
            now: Loop time until which everything stays as it is; by default the present.
        """
        self._now = now = self._recorder.now if now is None else now - self._recorder.started
        self._remember()
        new: list[Alarm] = []
        for name, rule in self._rules.items():
            found, known = rule(), self._open.get(name)
            if found is None:
                if known is not None:
                    known.cleared = now
                    del self._open[name]
            elif known is not None:
                known.found = found.text
            elif len(self._recorder.alarms) < MOST:
                self._open[name] = alarm = Alarm(name=name, found=found.text, since=found.since, raised=now)
                self._recorder.alarms.append(alarm)
                new.append(alarm)
        return new

    @property
    def standing(self) -> list[Alarm]:
        """Those that held at the last look, whichever life of the run raised them; the oldest first."""
        return list(self._open.values())

    # -- what is remembered -----------------------------------------------------------------------

    @override
    def attempt_ended(self, trajectory: Trajectory) -> None:
        self._ended_at = self._recorder.now

    def _remember(self) -> None:
        recorder, window = self._recorder, self._limits.window_seconds
        now, counts = self._now, recorder.counts
        if counts["admitted_turns"] != self._leased.counts.get("admitted_turns", 0):
            self._leased = Look(now, dict(counts))
        if now - self._looks[-1].time >= window / LOOKS_A_WINDOW:
            self._looks.append(Look(now, dict(counts)))
        while len(self._looks) > 1 and self._looks[1].time <= now - window:
            self._looks.popleft()
        for track in recorder.engines.tracks:
            if track.state in (EngineState.DOWN, EngineState.LOADING):
                self._down_since.setdefault(track.index, track.since - recorder.started)
            else:
                self._down_since.pop(track.index, None)

    def _recent(self, name: str) -> float:
        """Return how much of something was counted within the window."""
        return self._recorder.counts[name] - self._looks[0].counts.get(name, 0)

    def _drops_since(self, look: Look) -> dict[str, int]:
        """Return the drop reasons since a look, the most frequent first."""
        counts = self._recorder.counts
        since = {
            name.removeprefix(DROPPED): int(number - look.counts.get(name, 0))
            for name, number in counts.items()
            if name.startswith(DROPPED)
        }
        return {name: number for name, number in sorted(since.items(), key=lambda item: (-item[1], item[0])) if number}

    # -- the rules --------------------------------------------------------------------------------

    def _trainer_starved(self) -> Found | None:
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
        return Found(
            track.since - recorder.started,
            f"the trainer has had no batch for {hours(waited)} (bound {hours(bound)}; {expected}); {ended} attempts "
            f"ended meanwhile, dropped: {drops or 'none'}; {self._detail('trainer', 0)}{self._refusals()}",
        )

    def _no_trajectory(self) -> Found | None:
        quiet, bound = self._now - self._ended_at, self._limits.no_trajectory_seconds
        if quiet <= bound:
            return None
        population = self._recorder.desktops
        states = [population.states(track.state).info.label for track in population.tracks]
        doing = ", ".join(
            f"{states.count(name)} {name}" for name in sorted(set(states), key=states.count, reverse=True)
        )
        return Found(self._ended_at, f"no attempt has ended for {hours(quiet)} (bound {hours(bound)}); slots: {doing}")

    def _engine_down(self) -> Found | None:
        now, bound = self._now, self._limits.engine_down_seconds
        down = {index: since for index, since in self._down_since.items() if now - since > bound}
        if not down:
            return None
        index = min(down, key=lambda one: down[one])
        more = f" and {len(down) - 1} more" if len(down) > 1 else ""
        others = len(self._recorder.engines) - len(down)
        return Found(
            down[index],
            f"worker {index}{more} has not served for {hours(now - down[index])} (bound {hours(bound)}); "
            f"{self._detail('engines', index)}; the other {others} serve{self._refusals()}",
        )

    def _stale_drops(self) -> Found | None:
        stale, trained = self._recent("dropped/stale"), self._recent("trained_trajectories")
        bound = self._limits.stale_share
        if stale + trained < 2 * self._batch_attempts or stale <= bound * (stale + trained):
            return None
        return Found(
            self._looks[0].time,
            f"{stale:.0f} trajectories were dropped as stale and {trained:.0f} trained, "
            f"{stale / (stale + trained):.0%} (bound {bound:.0%}), since {hours(self._looks[0].time)}"
            f"{self._refusals()}",
        )

    def _nothing_to_train(self) -> Found | None:
        drops = self._drops_since(self._leased)
        lost = sum(number for reason, number in drops.items() if reason not in ("stale", "unused", "replaced"))
        bound = self._limits.dropped_batches * self._batch_attempts
        ended = self._recorder.counts["trajectories"] - self._leased.counts.get("trajectories", 0)
        # Attempts of open groups have ended and are not dropped yet: that is no reason to say that it is over.
        if lost < bound or lost < self._eased("nothing_to_train", self._limits.dropped_share) * ended:
            return None
        reasons = ", ".join(f"{number} {reason}" for reason, number in drops.items())
        return Found(
            self._leased.time,
            f"of {ended:.0f} attempts since the last batch, {lost} were dropped by the group rule (bound {bound:.0f} "
            f"and {self._limits.dropped_share:.0%}): {reasons}",
        )

    def _mismatch(self) -> Found | None:
        seen, self._mismatches = self._mismatches, self._recorder.counts[MISMATCH_ALARM]
        if self._mismatch_bound is None or self._mismatches <= seen:
            return None
        last = self._recorder.updates[-1] if self._recorder.updates else None
        value = last.metrics.get("importance/mismatch_mean") if last else None
        said = "" if value is None else f", {value:.3g} nats in the last one"
        return Found(
            last.time if last else self._now,
            f"worker and learner disagree at equal weights in {self._mismatches:.0f} updates{said} "
            f"(bound trainer.mismatch_bound = {self._mismatch_bound:g} nats)",
        )

    def _disk_near_full(self) -> Found | None:
        use = None if self._disk is None else self._disk()
        if use is None:
            return None
        free, bound = use.free / GIB, self._limits.disk_free_gib
        if free < bound:
            return Found(self._now, f"{free:.2f} GiB are free on the run's disk (bound {bound:g} GiB)")
        # A store that makes room goes up and down below its quota: that is one alarm, not many.
        share = self._eased("disk_near_full", self._limits.disk_share)
        if use.quota is None or use.used <= share * use.quota:
            return None
        return Found(
            self._now,
            f"the store takes {use.used / GIB:.2f} of its {use.quota / GIB:.2f} GiB "
            f"(bound {self._limits.disk_share:.0%}); what ended first is forgotten to make room",
        )

    def _desktops_failing(self) -> Found | None:
        starts, broken = self._recent("fault/start"), self._recent("ending/broken")
        tries = self._recent("trajectories") + starts
        failed, bound = starts + broken, self._limits.failing_share
        if tries < self._limits.failing_least or failed <= bound * tries:
            return None
        causes = {
            name.partition("/")[2]: self._recent(name)
            for name in sorted(self._recorder.counts)
            if name.startswith(("start_cause/", "cause/"))
        }
        said = ", ".join(f"{number:.0f} {cause}" for cause, number in causes.items() if number)
        return Found(
            self._looks[0].time,
            f"{failed:.0f} of {tries:.0f} starts and attempts failed, {failed / tries:.0%} (bound {bound:.0%}), since "
            f"{hours(self._looks[0].time)}; causes: {said or 'unknown'}",
        )

    def _refusals(self) -> str:
        """Say how many loads of weights failed of late, and why; nothing if none did."""
        causes = {
            name.removeprefix(LOAD_CAUSE): self._recent(name)
            for name in sorted(self._recorder.counts)
            if name.startswith(LOAD_CAUSE)
        }
        said = ", ".join(f"{number:.0f} {cause}" for cause, number in causes.items() if number)
        return f"; loads of weights that failed since {hours(self._looks[0].time)}: {said}" if said else ""

    def _eased(self, name: str, bound: float) -> float:
        return bound * (EASED if name in self._open else 1.0)

    def _detail(self, population: str, index: int) -> str:
        return self._recorder.status_source.detail(population, index)
