"""What a recorder keeps: time by state, snapshots, finished updates, and a hash of the facts.

Memory does not grow with the length of the run: totals are kept per population, and only the newest segments
individually.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b

from dartsim.core.types import Batch, Drop, Reply, Trajectory
from dartsim.observe.packed_rows import PackedRows
from dartsim.observe.states import ComponentState

Clock = Callable[[], float]

Segment = tuple[int, int, float, float]
"""A component's stay in one state: (track, state, start, end), loop times in seconds."""
SEGMENT = "iidd"
"""Layout of a segment in ``PackedRows``."""


class Track:
    """One component of a population; it is in exactly one state."""

    __slots__ = ("_population", "index", "since", "state")

    def __init__(self, population: Population, index: int, state: int) -> None:
        self._population = population
        self.index = index
        self.state = state
        self.since = population.clock()

    def enter(self, state: int) -> None:
        """Count the time in the present state, and change the state."""
        population = self._population
        now = population.clock()
        since = self.since
        if now > since:
            old = self.state
            population.totals[old] += now - since
            segments = population.segments
            if segments is not None:
                segments.pack(segments.buffer, segments.place(), self.index, old, since, now)
            self.since = now
        self.state = state


class Population:
    """Components of one kind (desktops, engines, …), and their seconds in each state."""

    def __init__(self, name: str, states: type[ComponentState], size: int, clock: Clock, max_segments: int = 0) -> None:
        self.name = name
        self.states = states
        self.clock = clock
        self.totals = [0.0] * len(states)
        self.segments = PackedRows(SEGMENT, max_segments) if max_segments else None
        first = states(0)
        off = states.__members__.get("OFF", first)
        self.tracks = [Track(self, index, off) for index in range(size)]

    def __len__(self) -> int:
        return len(self.tracks)

    def swap(self, old: int, new: int) -> None:
        """Move every component in state ``old`` to ``new``."""
        for track in self.tracks:
            if track.state == old:
                track.enter(new)

    def seconds(self) -> tuple[float, ...]:
        now = self.clock()
        totals = self.totals.copy()
        for track in self.tracks:
            totals[track.state] += now - track.since
        return tuple(totals)

    def flush(self) -> None:
        """Close the open segments, so that timelines reach the present."""
        for track in self.tracks:
            track.enter(track.state)


HELD_OUT = "held_out/success_rate"
"""Update metric of evaluations on held-out tasks."""
MISMATCH_ALARM = "learner/mismatch_alarm"
"""Update metric: 1 if worker and learner disagree at equal weights by more than the bound, else 0."""
UNTRAINABLE = "untrainable_batches"
"""Count of batches dropped because nothing in them could change the weights."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All counts from the start of the run to one moment.

    Attributes:
        time: Seconds since the start of the run.
        desktops: Desktop-seconds by ``DesktopState``.
        engines: Engine-seconds by ``EngineState``.
        trainer: Seconds by ``TrainerState``.
        phase: Seconds by ``PhaseState``.
        counts: Totals by name.
    """

    time: float
    desktops: tuple[float, ...]
    engines: tuple[float, ...]
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


@dataclass(slots=True)
class HotCounts:
    """Totals counted on the hot path, as plain attributes, because a dictionary is twice as slow.

    ``cached_tokens`` are prompt tokens found in an engine's prefix cache, ``looked_up_tokens`` all prompt tokens of
    engines that report cache hits.
    """

    generated_turns: int = 0
    prompt_tokens: int = 0
    response_tokens: int = 0
    cached_tokens: int = 0
    looked_up_tokens: int = 0

    def count(self, reply: Reply) -> None:
        """Count a turn's reply."""
        prompt_tokens, cached_tokens = reply.prompt_tokens, reply.cached_tokens
        self.generated_turns += 1
        self.prompt_tokens += prompt_tokens
        self.response_tokens += reply.response_tokens
        if cached_tokens is not None:
            self.cached_tokens += cached_tokens
            self.looked_up_tokens += prompt_tokens


DIGEST_BYTES = 8


class DomainHash:
    """Hashes the domain facts of a run, in order.

    The facts are each ended attempt (admission, times, ending, reward), its turns (versions, engine, tokens), each
    dropped trajectory, and each update with its attempts. Unlike the event hash, it ignores callbacks, tasks and
    timers, so it stays equal when the same run is computed differently.

    Each fact is hashed together with the previous digest: a resumed run continues from the stored digest.

    Attributes:
        digest: 16 hexadecimal digits; equal for equal facts.
    """

    def __init__(self, digest: str = "0" * 2 * DIGEST_BYTES) -> None:
        self.digest = digest

    def attempt_ended(self, trajectory: Trajectory) -> None:
        attempt = trajectory.attempt
        reward = None if trajectory.reward is None else float(trajectory.reward)
        self._add(
            "attempt",
            (attempt.id, attempt.task.id, attempt.group, attempt.index, attempt.seed),
            (attempt.turn_limit, attempt.version),
            (trajectory.started, trajectory.finished, str(trajectory.ending), reward),
            hash(tuple(trajectory.turns.numbers())),
        )

    def dropped(self, trajectories: tuple[Trajectory, ...], reason: Drop, time: float) -> None:
        self._add("dropped", str(reason), time, [trajectory.attempt.id for trajectory in trajectories])

    def updated(self, batch: Batch, time: float) -> None:
        attempts = [trajectory.attempt.id for trajectory in batch.trajectories]
        self._add("update", batch.update, batch.version, time, attempts)

    def _add(self, *fact: object) -> None:
        self.digest = blake2b(f"{self.digest}{fact!r}".encode(), digest_size=DIGEST_BYTES).hexdigest()
