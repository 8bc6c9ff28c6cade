"""``Recorder`` collects everything that a run measures; an ``Instrument`` listens to it.

The control plane reports state changes and counts; ``dartsim.observe.figures`` computes figures from two snapshots. A
recorder never reads a wall clock and never wakes the loop: if a snapshot is due, it takes one when an attempt or update
ends.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from math import inf, isfinite

from dartsim.core.rewards import all_equal
from dartsim.core.types import Batch, Drop, Group, Score, Trajectory
from dartsim.core.words import clean
from dartsim.observe.alarm import Alarm
from dartsim.observe.records import (
    Clock,
    DomainHash,
    HotCounts,
    Population,
    Snapshot,
    UpdateRecord,
)
from dartsim.observe.states import DesktopState, EngineState, PhaseState, TrainerState
from dartsim.observe.status import ComponentStatus, StatusSource, component_statuses

MAX_REASON = 500
"""Length to which reasons are cut."""


class Instrument:
    """Listens to a run; methods that a subclass does not override do nothing.

    Instruments are called in the order in which they were added. They must not influence the run.

    Attributes:
        period_seconds: Longest time between two calls of ``time_advanced``, seconds of the run's time; the shortest
            period of all instruments counts.
    """

    period_seconds: float = inf

    def preparing(self, what: str, done: int, total: int) -> None:
        """Report progress before the run (engines starting, a warm start)."""

    def run_started(self, recorder: Recorder) -> None:
        """The run is built but has not started."""

    def time_advanced(self, now: float) -> None:
        """Time moves on to this loop time, seconds."""

    def attempt_ended(self, trajectory: Trajectory) -> None:
        """An attempt ended."""

    def attempts_dropped(self, attempts: Sequence[int], reason: str) -> None:
        """Attempts, by id, will not be trained on."""

    def groups_trained(self, update: int, groups: Sequence[Group]) -> None:
        """An update of these groups finished; they contain the stored successes that were added to them."""

    def update_finished(self, record: UpdateRecord) -> None:
        """An update finished."""

    def snapshot_taken(self) -> None:
        """The recorder has a new snapshot; the last one of a run is not reported."""

    def state_saved(self) -> None:
        """The recorder's state is about to be stored."""


class Listener(Instrument):
    """Calls a function for each named method: ``Listener(update_finished=records.append)``."""

    def __init__(self, period_seconds: float = inf, **calls: Callable[..., object]) -> None:
        unknown = [name for name in calls if not hasattr(Instrument, name)]
        if unknown:
            raise TypeError(f"an instrument has no {', '.join(unknown)}")
        self.period_seconds = period_seconds
        vars(self).update(calls)


def ticker(call: Callable[[float], object], period_seconds: float = 60.0) -> Instrument:
    """Return an instrument that calls a function with the loop time, seconds, when time advances."""
    return Listener(period_seconds, time_advanced=call)


def shortest_period(instruments: Iterable[Instrument]) -> float:
    """Return the shortest ``period_seconds`` of any instrument."""
    return min((instrument.period_seconds for instrument in instruments), default=inf)


def report_preparing(instruments: Iterable[Instrument]) -> Callable[[str, int, int], None]:
    """Return a function that reports progress before the run to all instruments."""

    def report(what: str, done: int, total: int) -> None:
        for instrument in instruments:
            instrument.preparing(what, done, total)

    return report


class Recorder:
    """The measurements of one run.

    Args:
        clock: Returns the loop's time, seconds.
        num_envs: Desktop slots.
        num_engines: Inference engines.
        max_segments: Number of state segments to keep for each population, the newest; 0 keeps none.
        max_snapshots: Number of snapshots to keep; when full, every other one is dropped and their spacing doubled.
        first_spacing_seconds: Initial spacing of snapshots.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        num_envs: int,
        num_engines: int,
        max_segments: int = 0,
        max_snapshots: int = 400,
        first_spacing_seconds: float = 60.0,
    ) -> None:
        if max_snapshots < 2:
            raise ValueError(f"max_snapshots must be at least 2, got {max_snapshots}")
        self.clock = clock
        self.started = clock()
        self.desktops = Population("desktops", DesktopState, num_envs, clock, max_segments)
        self.engines = Population("engines", EngineState, num_engines, clock, max_segments)
        self.trainer = Population("trainer", TrainerState, 1, clock, max_segments)
        self.phase = Population("phase", PhaseState, 1, clock, max_segments)
        self.hot = HotCounts()
        self.domain_hash = DomainHash()
        self.counts: Counter[str] = Counter()
        self.fault_reasons: dict[str, str] = {}
        """The newest message for each cause of failed desktop starts and masked attempts; it names the host."""
        self.engine_faults: dict[int, str] = {}
        """The newest message of each engine that went down or failed to load, by index; it names the address."""
        self.staleness: Counter[tuple[int, int]] = Counter()
        """Trained turns by the staleness of (their oldest weights, their newest weights)."""
        self.staleness_trajectories: Counter[tuple[int, int]] = Counter()
        """Trained trajectories by the staleness of (the oldest, the newest weights of any of their turns)."""
        self.offered: Counter[str] = Counter()
        self.judged: Counter[str] = Counter()
        """Trajectories, by task, whose group was checked for a signal."""
        self.kept: Counter[str] = Counter()
        """Trajectories, by task, whose group had a signal."""
        self.trained: Counter[str] = Counter()
        self.trained_groups: Counter[str] = Counter()
        self.staleness_max = 0
        """Largest staleness of the oldest weights of a trained trajectory."""
        self.updates: deque[UpdateRecord] = deque(maxlen=4096)
        self.slots: dict[int, int] = {}
        """The slot of each running attempt that got one, by attempt id."""
        self.instruments: list[Instrument] = []
        self.status_source = StatusSource()
        self.alarms: list[Alarm] = []
        """Alarms raised so far, in order."""
        self.snapshots: list[Snapshot] = []
        self._max_snapshots = max_snapshots
        self._spacing = first_spacing_seconds
        self._next = self.started
        self.running = 0
        """Number of running attempts."""
        self.tick()

    def start(self, instruments: Sequence[Instrument]) -> None:
        """Add instruments, and report the start of the run to them."""
        self.instruments += instruments
        for instrument in instruments:
            instrument.run_started(self)

    def time_advanced(self, now: float) -> None:
        """Time moves on to this loop time, seconds."""
        for instrument in self.instruments:
            instrument.time_advanced(now)

    def attempt_started(self) -> None:
        self.counts["attempts"] += 1
        self.running += 1
        if self.running == 1:
            self.phase.tracks[0].enter(PhaseState.ROLLOUT)

    def start_failed(self, cause: str, reason: str) -> None:
        self.counts["fault/start"] += 1
        self.counts[f"start_cause/{cause}"] += 1
        self.attempt_failed(cause, reason)

    def attempt_failed(self, cause: str, reason: str) -> None:
        self.fault_reasons[cause] = clean(reason[:MAX_REASON])

    def engine_failed(self, index: int, reason: str) -> None:
        self.engine_faults[index] = clean(reason[:MAX_REASON])

    def attempt_finished(self, trajectory: Trajectory) -> None:
        self.domain_hash.attempt_ended(trajectory)
        counts = self.counts
        counts["trajectories"] += 1
        counts["trajectory_turns"] += len(trajectory.turns)
        counts[f"ending/{trajectory.ending}"] += 1
        self.offered[trajectory.attempt.task.id] += 1
        if trajectory.reward is not None:
            counts["rewarded"] += 1
            counts["reward"] += trajectory.reward  # type: ignore[assignment]
            if isinstance(trajectory.reward, Score):
                counts[f"scorer/{trajectory.reward.record.scorer}"] += 1
        else:
            counts[f"cause/{trajectory.cause}"] += 1
        self.running -= 1
        if self.running == 0:
            self.phase.tracks[0].enter(PhaseState.QUIET)
        for instrument in self.instruments:
            instrument.attempt_ended(trajectory)
        self.slots.pop(trajectory.attempt.id, None)
        self.tick()

    def group_judged(self, trajectories: tuple[Trajectory, ...], reason: Drop | None) -> None:
        """Count a complete group as trainable, or as dropped for a reason."""
        if reason is Drop.TOO_SMALL:
            return  # because of faults; its rewards were not judged
        for trajectory in trajectories:
            self.judged[trajectory.attempt.task.id] += 1
            self.kept[trajectory.attempt.task.id] += reason is None

    def dropped(self, trajectories: tuple[Trajectory, ...], reason: Drop) -> None:
        self.domain_hash.dropped(trajectories, reason, self.clock())
        num_turns = sum(len(trajectory.turns) for trajectory in trajectories)
        self.counts[f"dropped_turns/{reason}"] += num_turns
        self.lost([trajectory.attempt.id for trajectory in trajectories], reason)

    def lost(self, attempts: Sequence[int], reason: Drop) -> None:
        """Count dropped attempts, whose trajectories may no longer exist."""
        self.counts[f"dropped/{reason}"] += len(attempts)
        for instrument in self.instruments:
            instrument.attempts_dropped(attempts, reason)

    def batch_leased(self, batch: Batch) -> None:
        self.counts["admitted_turns"] += batch.num_turns

    def batch_released(self, batch: Batch) -> None:
        self.counts["admitted_turns"] -= batch.num_turns
        self.counts["failed_updates"] += 1

    def update_finished(self, batch: Batch, metrics: Mapping[str, float], *, rescued: Batch | None = None) -> None:
        self.domain_hash.updated(batch, self.clock())
        trajectories = batch.trajectories
        worst = total = num_turns = 0
        for trajectory in trajectories:
            self.trained[trajectory.attempt.task.id] += 1
            behind = batch.version - trajectory.oldest_version
            worst = max(worst, behind)
            turns = trajectory.turns
            for (oldest, newest), times in Counter(zip(turns.oldest_versions, turns.versions, strict=True)).items():
                total += (batch.version - oldest) * times
                self.staleness[batch.version - oldest, batch.version - newest] += times
            self.staleness_trajectories[behind, batch.version - trajectory.newest_version] += 1
            num_turns += len(trajectory.turns)
        self.trained_groups.update(group.task.id for group in batch.groups)
        self.counts["updates"] += 1
        self.counts["trained_turns"] += num_turns
        computed_tokens = metrics.get("computed_tokens", metrics.get("learner/computed_tokens", 0))
        self.counts["computed_tokens"] += int(computed_tokens) if isfinite(computed_tokens) else 0
        self.counts["signal_turns"] += sum(
            own.num_turns
            for own, group in zip(batch.groups, (rescued or batch).groups, strict=True)
            if has_signal(group.trajectories)
        )
        self.counts["trained_trajectories"] += len(trajectories)
        self.staleness_max = max(self.staleness_max, worst)
        record = UpdateRecord(
            update=batch.update,
            time=self.now,
            num_turns=num_turns,
            num_trajectories=len(trajectories),
            mean_reward=sum(t.reward or 0.0 for t in trajectories) / len(trajectories),
            mean_turns=num_turns / len(trajectories),
            staleness_mean=total / num_turns if num_turns else 0.0,
            staleness_max=worst,
            metrics=dict(metrics),
        )
        self.updates.append(record)
        for instrument in self.instruments:
            instrument.groups_trained(batch.update, (rescued or batch).groups)
            instrument.update_finished(record)
        self.tick()

    @property
    def now(self) -> float:
        """Seconds since the start of the run."""
        return self.clock() - self.started

    def tick(self) -> None:
        """Take a snapshot if one is due."""
        if self.clock() >= self._next:
            self.snapshot()

    def snapshot(self) -> Snapshot:
        """Take a snapshot now and keep it."""
        snapshot = self._keep_snapshot()
        for instrument in self.instruments:
            instrument.snapshot_taken()
        return snapshot

    def continue_snapshots(self, earlier: Sequence[Snapshot]) -> None:
        """Prepend the earlier snapshots of a resumed run, and take one."""
        self.snapshots = list(earlier) or self.snapshots[:1]
        while len(self.snapshots) >= self._max_snapshots:
            self._thin()
        self.snapshot()

    def _keep_snapshot(self) -> Snapshot:
        snapshot = self.measure()
        self.snapshots.append(snapshot)
        if len(self.snapshots) > self._max_snapshots:
            self._thin()
        self._next = self.clock() + self._spacing
        return snapshot

    def _thin(self) -> None:
        del self.snapshots[1:-1:2]  # keeps the first and the last
        self._spacing *= 2

    def measure(self) -> Snapshot:
        """Return all counts up to now."""
        counts = {**self.counts, **asdict(self.hot)}
        return Snapshot(
            time=self.now,
            desktops=self.desktops.seconds(),
            engines=self.engines.seconds(),
            trainer=self.trainer.seconds(),
            phase=self.phase.seconds(),
            counts=counts,
        )

    def populations(self) -> tuple[Population, ...]:
        return (self.desktops, self.engines, self.trainer)

    def component_statuses(self) -> list[ComponentStatus]:
        return component_statuses(self.populations(), self.status_source, self.started)

    def close(self) -> None:
        """Take the last snapshot and close the timelines."""
        for population in (*self.populations(), self.phase):
            population.flush()
        self._keep_snapshot()  # not reported to instruments


def has_signal(group: Sequence[Trajectory]) -> bool:
    """Return whether the rewards of a group differ; otherwise every advantage is 0."""
    return not all_equal(t.reward for t in group if t.reward is not None)
