"""Files that a run writes while it is going, and from which its page is drawn.

    attempts.jsonl   every attempt that ended, and what became of it
    states.bin       time of desktops, engines and trainer in each state, in small steps over the whole run
    segments.bin     the newest stays of each desktop, engine and the trainer

Nothing here wakes the loop or grows with the run in memory. A resumed run keeps what was written up to the time at
which it continues.
"""

from __future__ import annotations

import json
import logging
import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from struct import Struct
from typing import Any, NamedTuple

from typing_extensions import override

from dartsim.core.types import Group, Trajectory
from dartsim.observe.metrics import Writer, json_lines, replace_lines
from dartsim.observe.recorder import Recorder
from dartsim.observe.states import POPULATIONS

ATTEMPTS, STATES, SEGMENTS = "attempts.jsonl", "states.bin", "segments.bin"

FINEST_SECONDS = 0.2
"""Shortest step of ``states.bin``."""
STEPS, EARLY_STEPS, EARLY_WRITES = 2560, 512, 20
"""A step is at most this share of the run's hours, and at first this share of the time that has passed: few runs end as
late as they may. Steps are written together, at first whenever this share of the time has passed."""

ENCODER = json.JSONEncoder(separators=(",", ":"))
logger = logging.getLogger(__name__)


class RecordingLog(Writer):
    """Writes what has gathered: after ``spacing_seconds`` of the run's time, before transactions, and at the end.

    A disk that is full does not end the run here; the store finds out.
    """

    def __init__(self, path: Path, *, spacing_seconds: float) -> None:
        self.path = path
        self.spacing_seconds = self.period_seconds = spacing_seconds
        self._due = -math.inf

    def write(self) -> None:
        """Write what has gathered."""
        raise NotImplementedError

    @override
    def time_advanced(self, now: float) -> None:
        if now >= self._due:
            self._due = now + self.spacing_seconds
            self._write()

    @override
    def state_saved(self) -> None:
        self._write()

    def _write(self) -> None:
        try:
            self.write()
        except OSError as fault:
            logger.warning("%s could not be written: %s", self.path, fault.strerror)

    @override
    def close(self) -> None:
        self._write()


class AttemptColumns(NamedTuple):
    """An attempt as ``attempts.jsonl`` has it; times are seconds since the start of the run.

    Attributes:
        attempt: Its id.
        task: Its task's id.
        group: Its group.
        place: Its place in the group.
        version: Newest published version when it was admitted.
        oldest: Oldest version that generated a part of it.
        newest: Newest one.
        ending: How it ended.
        cause: Why it is masked; None if it is not.
        reward: None if it is masked.
        num_turns: Its turns.
        started: When it was admitted.
        finished: When its last activity ended.
        slot: The desktop slot that it had; None if it got none.
    """

    attempt: int
    task: str
    group: int
    place: int
    version: int
    oldest: int
    newest: int
    ending: str
    cause: str | None
    reward: float | None
    num_turns: int
    started: float
    finished: float
    slot: int | None


TurnFacts = Callable[[Group], tuple[Sequence[Sequence[float]], Sequence[Sequence[bool]]]]
"""Returns the advantage of each turn of a group's trajectories, and whether selection kept it."""


class AttemptLog(RecordingLog):
    """Writes what happens to attempts, one JSON object a line.

        {"attempt": [see AttemptColumns]}
        {"dropped": [attempt, …], "reason": "stale", "time": 81.2}
        {"update": 3, "time": 90.1, "trained": [attempt, …], "advantages": [[per turn, …], …], "kept": [[…], …]}

    Args:
        path: The file.
        turn_facts: What the update knows of each turn; called once for each group of a finished update.
        spacing_seconds: See ``RecordingLog``.
        keep: Of the existing lines: the time of the run up to which they count, seconds, and the last update that does;
            None: a new file.
    """

    def __init__(
        self, path: Path, *, turn_facts: TurnFacts, spacing_seconds: float, keep: tuple[float, int] | None = None
    ) -> None:
        super().__init__(path, spacing_seconds=spacing_seconds)
        self._turn_facts = turn_facts
        self._lines: list[str] = []
        replace_lines(path, [] if keep is None else [line for line in json_lines(path) if _counts(line, *keep)])

    @override
    def run_started(self, recorder: Recorder) -> None:
        self._recorder = recorder

    @override
    def attempt_ended(self, trajectory: Trajectory) -> None:
        attempt, start = trajectory.attempt, self._recorder.started
        row = AttemptColumns(
            attempt=attempt.id,
            task=attempt.task.id,
            group=attempt.group,
            place=attempt.index,
            version=attempt.version,
            oldest=trajectory.oldest_version,
            newest=trajectory.newest_version,
            ending=trajectory.ending,
            cause=trajectory.cause,
            reward=None if trajectory.reward is None else float(trajectory.reward),
            num_turns=len(trajectory.turns),
            started=round(trajectory.started - start, 3),
            finished=round(trajectory.finished - start, 3),
            slot=self._recorder.slots.get(attempt.id),
        )
        self._add({"attempt": row})

    @override
    def attempts_dropped(self, attempts: Sequence[int], reason: str) -> None:
        self._add({"dropped": attempts, "reason": reason, "time": round(self._recorder.now, 3)})

    @override
    def groups_trained(self, update: int, groups: Sequence[Group]) -> None:
        trained: list[int] = []
        advantages: list[Sequence[float]] = []
        kept: list[Sequence[bool]] = []
        for group in groups:
            for trajectory, *facts in zip(group.trajectories, *self._turn_facts(group), strict=True):
                if trajectory.attempt.group == group.id:
                    trained.append(trajectory.attempt.id)
                    advantages.append(_short([round(value, 4) for value in facts[0]]))
                    kept.append(_short(facts[1]))
        time = round(self._recorder.now, 3)
        self._add({"update": update, "time": time, "trained": trained, "advantages": advantages, "kept": kept})

    @override
    def write(self) -> None:
        if self._lines:
            lines, self._lines = self._lines, []
            with self.path.open("a", encoding="utf-8") as file:
                file.write("".join(lines))

    def _add(self, line: Mapping[str, Any]) -> None:
        self._lines.append(ENCODER.encode(line) + "\n")


def _short(values: Sequence[Any]) -> Sequence[Any]:
    """Return one value in place of equal ones; readers repeat it."""
    return values[:1] if len(set(values)) == 1 else values


def _counts(line: Mapping[str, Any], until: float, last: int) -> bool:
    """Return whether a line belongs to the run up to a time and an update."""
    if "attempt" in line:
        return float(AttemptColumns(*line["attempt"]).finished) <= until
    return float(line["time"]) <= until and int(line.get("update", 0)) <= last


def _columns() -> Iterator[tuple[str, slice]]:
    first = 1
    for name, info in POPULATIONS.items():
        yield name, slice(first, first + len(info.states))
        first += len(info.states)


STATE_COLUMNS: Mapping[str, slice] = dict(_columns())
"""Where the states of each population are in a row of ``states.bin``; the time comes first."""


class StateLog(RecordingLog):
    """Writes the time that components spent in each state, in steps: a row is all of it up to one moment.

        <time f64> <component-seconds f64> * states of desktops, engines and trainer       little-endian

    So the differences of two rows add up to components times the time between them.
    """

    ROW = Struct(f"<{max(columns.stop for columns in STATE_COLUMNS.values())}d")

    def __init__(self, path: Path, *, hours: float, gather_seconds: float, until: float | None = None) -> None:
        """Continue the rows up to a time of the run, seconds; None: a new file. Rows are written together."""
        self._gather_seconds = gather_seconds
        self._rows: list[bytes] = []
        self._longest = max(FINEST_SECONDS, hours * 3600.0 / STEPS)
        super().__init__(path, spacing_seconds=max(FINEST_SECONDS, self._longest / 4))
        kept = [row for row in read_state_rows(path) if until is not None and row[0] <= until]
        path.write_bytes(b"".join(self.ROW.pack(*row) for row in kept))
        self._last = self._written = kept[-1][0] if kept else -1.0
        self._recorder: Recorder | None = None

    @override
    def run_started(self, recorder: Recorder) -> None:
        self._recorder = recorder

    @override
    def state_saved(self) -> None:
        pass  # the next step comes soon

    @override
    def write(self) -> None:
        recorder = self._recorder
        if recorder is not None and recorder.now > self._last:
            self._last = recorder.now
            self.spacing_seconds = min(self._longest, max(self.period_seconds, self._last / EARLY_STEPS))
            desktops, engines, trainer = (population.seconds() for population in recorder.populations())
            self._rows.append(self.ROW.pack(self._last, *desktops, *engines, *trainer))
        if self._rows and self._last - self._written >= min(self._gather_seconds, self._last / EARLY_WRITES):
            rows, self._rows, self._written = self._rows, [], self._last
            with self.path.open("ab") as file:
                file.write(b"".join(rows))

    @override
    def close(self) -> None:
        self._gather_seconds = 0.0
        super().close()


def read_state_rows(path: Path) -> list[tuple[float, ...]]:
    """Return the rows of ``states.bin``, without a truncated one."""
    data = path.read_bytes() if path.is_file() else b""
    size = StateLog.ROW.size
    return list(StateLog.ROW.iter_unpack(data[: len(data) // size * size]))


SEGMENT_FIELDS = (("population", "u1"), ("component", "<u4"), ("state", "u1"), ("start", "<f8"), ("end", "<f8"))
"""A row of ``segments.bin``, as numpy has it."""
KEPT_FIELDS = (("component", "i4"), ("state", "i4"), ("start", "f8"), ("end", "f8"))
"""A row of ``Population.segments``."""
Stays = Any
"""A numpy array of rows with ``KEPT_FIELDS``; not named as one, because readers of other files do not need numpy."""
Present = Mapping[int, tuple[int, float | None]]
"""The state of each member of a population, and since when, seconds; None: since its last segment ended."""
SAME_SECONDS = 2e-3
"""Times that differ by less are the same: a status has them rounded."""


class SegmentLog(RecordingLog):
    """Writes the newest segments of each population, as many as are kept in memory.

    <population u8> <component u32> <state u8> <start f64> <end f64>     little-endian, seconds of the run's time
    """

    def __init__(self, path: Path, *, spacing_seconds: float) -> None:
        super().__init__(path, spacing_seconds=spacing_seconds)
        self._rows = self._max_rows = 0
        self._recorder: Recorder | None = None

    @override
    def run_started(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._populations = [population.segments for population in recorder.populations()]
        self._written = [0] * len(self._populations)
        """Number of segments of each population when rows were last written."""
        self._max_rows = 2 * sum(segments.maxlen for segments in self._populations if segments is not None)
        self._rewrite()

    @override
    def write(self) -> None:
        if self._recorder is None:
            return
        data, rows = self._take()
        if self._rows + rows > self._max_rows:
            self._rewrite()
        elif rows:
            with self.path.open("ab") as file:
                file.write(data)
            self._rows += rows

    def _rewrite(self) -> None:
        self._written = [0] * len(self._populations)
        data, self._rows = self._take()
        part = self.path.with_name(self.path.name + ".part")
        part.write_bytes(data)
        part.replace(self.path)

    def _take(self) -> tuple[bytes, int]:
        """Return the rows not written yet, and their number."""
        import numpy as np  # readers do not need it

        assert self._recorder is not None
        begun = self._recorder.started
        parts, count = list[bytes](), 0
        for number, segments in enumerate(self._populations):
            if segments is None:
                continue
            kept = np.frombuffer(segments.packed_since(self._written[number]), list(KEPT_FIELDS))
            rows = np.empty(len(kept), list(SEGMENT_FIELDS))
            rows["population"], rows["component"], rows["state"] = number, kept["component"], kept["state"]
            rows["start"], rows["end"] = kept["start"] - begun, kept["end"] - begun
            parts.append(rows.tobytes())
            self._written[number] = segments.total
            count += len(kept)
        return b"".join(parts), count


def read_segments(path: Path, *, until: float) -> list[Stays]:
    """Return the segments of each population up to a time of the run, seconds, without truncated or impossible rows.

    The list is empty if there is no file.
    """
    if not path.is_file() or not (data := path.read_bytes()):
        return []
    import numpy as np

    row = np.dtype(list(SEGMENT_FIELDS))
    rows = np.frombuffer(data, row, len(data) // row.itemsize)
    by_population = []
    for number, info in enumerate(POPULATIONS.values()):
        possible = (rows["state"] < len(info.states)) & (rows["start"] <= rows["end"]) & np.isfinite(rows["end"])
        own = rows[(rows["population"] == number) & possible & (rows["start"] < until)]
        stays = own[[name for name, _ in KEPT_FIELDS]].astype(list(KEPT_FIELDS))
        stays["end"] = np.minimum(stays["end"], until)
        by_population.append(stays)
    return by_population


def with_open_stays(segments: Sequence[Stays], present: Iterable[Present], until: float) -> list[Stays]:
    """Return the segments of each population with those of ``present`` that were going on until a time, seconds.

    What is called present may have ended since, and where its beginning is not the end of the last segment, others are
    missing between: such a stay is left out.
    """
    import numpy as np

    complete = []
    for own, members in zip(segments, present, strict=False):
        ends = dict(zip(own["component"].tolist(), own["end"].tolist(), strict=True))
        rows = []
        for member, (state, since) in members.items():
            end = ends.get(member, since or 0.0)
            begin = end if since is None else since
            if begin < until and abs(begin - end) < SAME_SECONDS:
                rows.append((member, state, begin, until))
        complete.append(np.concatenate([own, np.array(rows, own.dtype)]))
    return complete


class SlotHistory:
    """Which attempt had a slot when."""

    def __init__(self, attempts: Iterable[AttemptColumns]) -> None:
        by_slot: dict[int, list[AttemptColumns]] = defaultdict(list)
        for own in sorted(attempts, key=lambda own: own.started):
            if own.slot is not None:
                by_slot[own.slot].append(own)
        self._by_slot = {slot: ([own.started for own in found], found) for slot, found in by_slot.items()}

    def attempt_at(self, slot: int, time: float) -> AttemptColumns | None:
        """Return the attempt that had a slot at a time, seconds since the start of the run."""
        starts, attempts = self._by_slot.get(slot, ([], []))
        place = bisect_right(starts, time) - 1
        return attempts[place] if place >= 0 and attempts[place].finished >= time else None


class AttemptRow(NamedTuple):
    """An attempt and what became of it."""

    columns: AttemptColumns
    state: str
    reason: str | None
    update: int | None
    advantages: Sequence[float]
    kept: Sequence[bool]


MAX_BYTES = 2 * 2**20
"""About 18,000 attempts, which are read in 0.15 s."""


def read_attempts(path: Path) -> dict[int, AttemptRow]:
    """Return the attempts in the newest ``MAX_BYTES`` of ``attempts.jsonl`` by id, in the order in which they ended.

    Invalid lines are left out.
    """
    attempts: dict[int, AttemptRow] = {}
    for line in json_lines(path, MAX_BYTES):
        with suppress(ValueError, TypeError, KeyError):
            if "attempt" in line:
                columns = AttemptColumns(*line["attempt"])
                attempts.pop(columns.attempt, None)  # an attempt that a resumed run repeated
                attempts[columns.attempt] = AttemptRow(columns, "recorded", None, None, (), ())
            elif "dropped" in line:
                for attempt in line["dropped"]:
                    if attempt in attempts:
                        attempts[attempt] = attempts[attempt]._replace(state="dropped", reason=str(line["reason"]))
            else:
                for attempt, advantages, kept in zip(line["trained"], line["advantages"], line["kept"], strict=True):
                    if attempt in attempts:
                        own = attempts[attempt]
                        number = max(1, own.columns.num_turns)
                        attempts[attempt] = own._replace(
                            state="trained",
                            update=int(line["update"]),
                            advantages=list(advantages) * (number if len(advantages) == 1 else 1),
                            kept=list(kept) * (number if len(kept) == 1 else 1),
                        )
    return attempts
