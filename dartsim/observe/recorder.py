"""``Recorder``: everything a run measures, streaming.

The control plane tells it what happens (state changes, counts); figures are computed from two of its
snapshots by ``dartsim.observe.figures``. Nothing here reads a wall clock or wakes the loop: snapshots are
taken when an attempt or an update ends and one is due.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, field
from operator import attrgetter
from typing import Any

from dartsim.core.types import Batch, Drop, Trajectory, Version
from dartsim.observe.alarm import Alarm
from dartsim.observe.domain_hash import DomainHash
from dartsim.observe.part import Part
from dartsim.observe.states import DesktopState, PhaseState, TrainerState, WorkerState
from dartsim.observe.tracks import Clock, Population, Segment

_VERSIONS = attrgetter("reply.oldest_version", "reply.version")

MAX_BATCHES = 256
"""Newest batches kept for the flows of the Perfetto trace."""

HELD_OUT = "held_out/success_rate"
"""Name of the update metric that evaluations on held-out tasks write."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything counted from the start up to one moment.

    Attributes:
        time: Loop time, seconds since the start of the run.
        desktops: Desktop-seconds by ``DesktopState``.
        workers: Worker-seconds by ``WorkerState``.
        trainer: Seconds by ``TrainerState``.
        phase: Seconds by ``PhaseState``.
        counts: Totals by name.
    """

    time: float
    desktops: tuple[float, ...]
    workers: tuple[float, ...]
    trainer: tuple[float, ...]
    phase: tuple[float, ...]
    counts: Mapping[str, float]


@dataclass(slots=True)
class UpdateRecord:
    """One finished update, as one line of ``metrics.jsonl``."""

    update: int
    time: float
    num_turns: int
    num_trajectories: int
    mean_reward: float
    mean_turns: float
    staleness_mean: float
    staleness_max: int
    metrics: Mapping[str, float] = field(default_factory=dict)


Asked = tuple[int, int, int, int, float, float]
"""One answered request: (desktop, worker, attempt, turn, asked, answered), times in seconds of loop time.

A plain tuple, for the reason of ``dartsim.observe.tracks.Segment``.
"""


@dataclass(slots=True)
class Gathered:
    """One batch, for the flows of the Perfetto trace.

    Attributes:
        update: Its update.
        leased: Loop time at which the trainer took it, seconds.
        attempts: When each of its attempts ended, loop time in seconds, by the attempt's number.
        trained: Loop time at which its update was finished; None as long as it is not.
    """

    update: int
    leased: float
    attempts: Mapping[int, float]
    trained: float | None = None


@dataclass(slots=True)
class Counts:
    """Totals counted on the hot path; plain attributes, because a dictionary costs twice as much.

    Attributes:
        generated_turns: Turns that were answered.
        prompt_tokens: Of their prompts.
        response_tokens: Of the answers.
        cached_tokens: Of the prompts, found in a worker's prefix cache.
        looked_up_tokens: Of the prompts of workers that say how much they found.
    """

    generated_turns: int = 0
    prompt_tokens: int = 0
    response_tokens: int = 0
    cached_tokens: int = 0
    looked_up_tokens: int = 0


class Recorder:
    """The measurements of one run.

    Args:
        clock: Returns the loop's time, seconds.
        num_envs: Desktop slots.
        num_workers: Inference workers.
        max_segments: Newest state segments to keep for each population; 0 keeps none.
        max_snapshots: Snapshots to keep; when full, every other one is dropped and their spacing doubled.
        first_spacing_seconds: Smallest spacing of snapshots.
        max_requests: Newest answered requests to keep for the flows of the Perfetto trace; 0 keeps none.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        num_envs: int,
        num_workers: int,
        max_segments: int = 0,
        max_snapshots: int = 400,
        first_spacing_seconds: float = 60.0,
        max_requests: int = 0,
    ) -> None:
        if max_snapshots < 2:
            raise ValueError(f"max_snapshots must be at least 2, got {max_snapshots}")
        self.clock = clock
        self.started = clock()
        self.desktops = Population("desktops", DesktopState, num_envs, clock, max_segments)
        self.workers = Population("workers", WorkerState, num_workers, clock, max_segments)
        self.trainer = Population("trainer", TrainerState, 1, clock, max_segments)
        self.phase = Population("phase", PhaseState, 1, clock, max_segments)
        self.hot = Counts()
        self.domain_hash = DomainHash()
        self.counts: Counter[str] = Counter()
        self.staleness: Counter[tuple[int, int]] = Counter()
        """Trained turns by (versions behind of their oldest weights, of their newest weights)."""
        self.staleness_trajectories: Counter[tuple[int, int]] = Counter()
        """Trained trajectories by the same of all of their turns."""
        self.offered: Counter[str] = Counter()
        self.judged: Counter[str] = Counter()
        """Trajectories by task whose whole group was looked at for a signal; ``kept``: those of groups with one."""
        self.kept: Counter[str] = Counter()
        self.trained: Counter[str] = Counter()
        self.trained_groups: Counter[str] = Counter()
        self.staleness_max = 0
        """Largest (version trained on, less oldest that generated any part) of a trained trajectory."""
        self.updates: deque[UpdateRecord] = deque(maxlen=4096)
        self.sinks: list[Callable[[UpdateRecord], None]] = []
        """Called with every finished update, in order."""
        self.watchers: list[Callable[[Trajectory], None]] = []
        """Called with every ended attempt, in order."""
        self.on_snapshot: list[Callable[[], None]] = []
        """Called after every snapshot."""
        self.on_state: list[Callable[[], None]] = []
        """Called before ``state`` is kept, for what is kept beside it."""
        self.details: dict[str, Callable[[int], str]] = {}
        """By population: the particulars of what one of its parts waits for; see ``dartsim.observe.waits``."""
        self.tellers: list[Callable[[], Part]] = []
        """Tell of parts without a track what they wait for."""
        self.alarms: list[Alarm] = []
        """Raised so far, in order."""
        self.end: Callable[[], None] = _go_on
        """Ends the run before its time; the system sets it."""
        self.requests: deque[Asked] | None = deque(maxlen=max_requests) if max_requests else None
        self.batches: deque[Gathered] = deque(maxlen=MAX_BATCHES if max_requests else 0)
        self.snapshots: list[Snapshot] = []
        self._max_snapshots = max_snapshots
        self._spacing = first_spacing_seconds
        self._next = self.started
        self._running = 0
        self.tick()

    # -- what the control plane reports ---------------------------------------------------------

    def attempt_started(self) -> None:
        """An attempt was given to a slot."""
        self.counts["attempts"] += 1
        self._running += 1
        if self._running == 1:
            self.phase.tracks[0].enter(PhaseState.ROLLOUT)

    def attempt_finished(self, trajectory: Trajectory) -> None:
        """An attempt ended, one way or another."""
        self.domain_hash.attempt_ended(trajectory)
        counts = self.counts
        counts["trajectories"] += 1
        counts["trajectory_turns"] += len(trajectory.turns)
        counts[f"ending/{trajectory.ending}"] += 1
        self.offered[trajectory.attempt.task.id] += 1
        if trajectory.reward is not None:
            counts["rewarded"] += 1
            counts["reward"] += trajectory.reward  # type: ignore[assignment]
        else:
            counts[f"cause/{trajectory.cause}"] += 1
        self._running -= 1
        if self._running == 0:
            self.phase.tracks[0].enter(PhaseState.QUIET)
        for watch in self.watchers:
            watch(trajectory)
        self.tick()

    def group_judged(self, trajectories: tuple[Trajectory, ...], reason: Drop | None) -> None:
        """A group had all its attempts; it may be trained on, or not for this reason."""
        if reason is Drop.TOO_SMALL:
            return  # by faults: nothing was said of its rewards
        for trajectory in trajectories:
            self.judged[trajectory.attempt.task.id] += 1
            self.kept[trajectory.attempt.task.id] += reason is None

    def dropped(self, trajectories: tuple[Trajectory, ...], reason: Drop) -> None:
        """Trajectories will not be trained."""
        self.domain_hash.dropped(trajectories, reason, self.clock())
        num_turns = sum(len(trajectory.turns) for trajectory in trajectories)
        self.counts[f"dropped/{reason}"] += len(trajectories)
        self.counts[f"dropped_turns/{reason}"] += num_turns

    def batch_leased(self, batch: Batch) -> None:
        """A batch was given to the trainer."""
        self.counts["admitted_turns"] += batch.num_turns
        if self.requests is not None:
            ended = {trajectory.attempt.id: trajectory.finished for trajectory in batch.trajectories}
            self.batches.append(Gathered(batch.update, self.clock(), ended))

    def batch_released(self, batch: Batch) -> None:
        """A batch came back untrained."""
        self.counts["admitted_turns"] -= batch.num_turns
        self.counts["failed_updates"] += 1
        if self.batches:
            self.batches.pop()

    def update_finished(self, batch: Batch, metrics: Mapping[str, float], *, rescued: Batch | None = None) -> None:
        """An update was finished; its turns count as trained from now on.

        Args:
            batch: What was attempted for it.
            metrics: What the learner says of it.
            rescued: The same with the stored successes, without which some of its groups had no signal.
        """
        self.domain_hash.updated(batch, self.clock())
        trajectories = batch.trajectories
        worst = total = num_turns = 0
        for trajectory in trajectories:
            self.trained[trajectory.attempt.task.id] += 1
            behind = batch.version - trajectory.oldest_version
            worst = max(worst, behind)
            for (oldest, newest), times in Counter(map(_VERSIONS, trajectory.turns)).items():
                total += (batch.version - oldest) * times
                self.staleness[batch.version - oldest, batch.version - newest] += times
            self.staleness_trajectories[behind, batch.version - trajectory.newest_version] += 1
            num_turns += len(trajectory.turns)
        self.trained_groups.update(group.task.id for group in batch.groups)
        if self.batches:
            self.batches[-1].trained = self.clock()
        self.counts["updates"] += 1
        self.counts["trained_turns"] += num_turns
        self.counts["signal_turns"] += sum(
            own.num_turns
            for own, group in zip(batch.groups, (rescued or batch).groups, strict=True)
            if _has_signal(group.trajectories)
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
        for sink in self.sinks:
            sink(record)
        self.tick()

    # -- snapshots --------------------------------------------------------------------------------

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
        snapshot = self.measure()
        self.snapshots.append(snapshot)
        if len(self.snapshots) > self._max_snapshots:
            del self.snapshots[1:-1:2]  # never the first or the last
            self._spacing *= 2
        self._next = self.clock() + self._spacing
        for told in self.on_snapshot:
            told()
        return snapshot

    def measure(self) -> Snapshot:
        """Return everything counted up to now."""
        counts = {**self.counts, **asdict(self.hot)}
        return Snapshot(
            time=self.now,
            desktops=self.desktops.seconds(),
            workers=self.workers.seconds(),
            trainer=self.trainer.seconds(),
            phase=self.phase.seconds(),
            counts=counts,
        )

    # -- going on after a crash -------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Return everything counted up to now, as JSON can say it; series and single segments are kept apart."""
        for keep in self.on_state:
            keep()
        now = self.measure()
        return {
            "time": now.time,
            "domain_hash": self.domain_hash.digest,
            "desktops": now.desktops,
            "workers": now.workers,
            "trainer": now.trainer,
            "phase": now.phase,
            "counts": dict(self.counts),
            "hot": astuple(self.hot),
            "staleness": [[*versions, number] for versions, number in self.staleness.items()],
            "staleness_trajectories": [[*versions, number] for versions, number in self.staleness_trajectories.items()],
            "staleness_max": self.staleness_max,
            "offered": dict(self.offered),
            "judged": dict(self.judged),
            "kept": dict(self.kept),
            "trained": dict(self.trained),
            "trained_groups": dict(self.trained_groups),
            "running": self._running,
            "alarms": [asdict(alarm) for alarm in self.alarms],
            "states": [[track.state for track in population.tracks] for population in self.populations()],
        }

    def restore(
        self,
        state: Mapping[str, Any],
        *,
        snapshots: Sequence[Snapshot] = (),
        updates: Sequence[UpdateRecord] = (),
        segments: Sequence[Sequence[Segment]] = (),
    ) -> None:
        """Go on counting from what ``state`` returned, before anything happened here.

        Args:
            state: What was counted; the time of the run goes on from its time.
            snapshots: Those of then, oldest first.
            updates: Likewise.
            segments: Of each population, in order of their ends, seconds of the run's time.
        """
        self.started = self.clock() - state["time"]
        self.domain_hash = DomainHash(state["domain_hash"])
        for population in (*self.populations(), self.phase):
            before = state[population.name]
            population.totals = [a + b for a, b in zip(population.totals, before, strict=True)]
        self.counts = Counter(state["counts"])
        self.hot = Counts(*state["hot"])
        self.staleness = Counter({(oldest, newest): number for oldest, newest, number in state["staleness"]})
        whole = state["staleness_trajectories"]
        self.staleness_trajectories = Counter({(oldest, newest): number for oldest, newest, number in whole})
        self.staleness_max = state["staleness_max"]
        self.offered, self.trained = Counter(state["offered"]), Counter(state["trained"])
        self.judged, self.kept = Counter(state["judged"]), Counter(state["kept"])
        self.trained_groups = Counter(state["trained_groups"])
        self.updates.extend(updates)
        self._running = state["running"]
        self.alarms = [Alarm(**alarm) for alarm in state["alarms"]]
        for population, past in zip(self.populations(), segments, strict=False):
            if population.segments is not None:
                population.segments.extend(
                    (part, what, start + self.started, end + self.started) for part, what, start, end in past
                )
        if self._running:
            self.phase.tracks[0].enter(PhaseState.ROLLOUT)
        self.snapshots = list(snapshots) or self.snapshots[:1]
        while len(self.snapshots) >= self._max_snapshots:
            del self.snapshots[1:-1:2]
            self._spacing *= 2
        self.snapshot()

    def untrain(self, trajectories: Sequence[Trajectory], version: Version) -> None:
        """Take back what was counted of a finished update, whose weights are lost.

        Signals are those of groups without stored successes, which are not given back and tell nothing here.

        Args:
            trajectories: Those that were in it and may be trained again.
            version: The weights that it was trained with.
        """
        num_turns = 0
        groups: dict[int, list[Trajectory]] = {}
        for trajectory in trajectories:
            groups.setdefault(trajectory.attempt.group, []).append(trajectory)
        self.trained_groups.subtract(members[0].attempt.task.id for members in groups.values())
        again = (members for members in groups.values() if _has_signal(members))
        self.counts["signal_turns"] -= sum(len(trajectory.turns) for members in again for trajectory in members)
        for trajectory in trajectories:
            self.trained[trajectory.attempt.task.id] -= 1
            for (oldest, newest), times in Counter(map(_VERSIONS, trajectory.turns)).items():
                self.staleness[version - oldest, version - newest] -= times
            self.staleness_trajectories[version - trajectory.oldest_version, version - trajectory.newest_version] -= 1
            num_turns += len(trajectory.turns)
        self.staleness, self.staleness_trajectories = +self.staleness, +self.staleness_trajectories  # without zeros
        self.staleness_max = max((behind for behind, _ in self.staleness_trajectories), default=0)
        self.counts["updates"] -= 1
        self.counts["undone_updates"] += 1
        for name in ("trained_turns", "admitted_turns"):
            self.counts[name] -= num_turns
        self.counts["trained_trajectories"] -= len(trajectories)

    def populations(self) -> tuple[Population, ...]:
        """The populations that have a timeline, in drawing order."""
        return (self.desktops, self.workers, self.trainer)

    def close(self) -> None:
        """Take the last snapshot and close the timelines."""
        self.on_snapshot.clear()  # whoever looks on is to see what was going on, not its end
        for population in (*self.populations(), self.phase):
            population.flush()
        self.snapshot()


def _has_signal(group: Sequence[Trajectory]) -> bool:
    """Return whether rewards of a group differ: where they are equal, every advantage is 0."""
    return len({trajectory.reward for trajectory in group}) > 1


def _go_on() -> None:
    """Nothing to end: the recorder belongs to no system."""
