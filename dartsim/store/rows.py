"""Trajectories as rows of the database, and rows as trajectories."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

import numpy as np

from dartsim.core.errors import TornRecord
from dartsim.core.types import (
    Attempt,
    Ending,
    MetricRecord,
    Observation,
    Reply,
    Score,
    ScoreRecord,
    Task,
    Trajectory,
    Turn,
    Turns,
)
from dartsim.store.blobs import BlobStore

_ARRAYS = ("<i4", "<f4", "<f4")
"""Types of tokens, log-probabilities and entropies."""
_HEAD = struct.Struct("<II")
"""CRC-32 of the rest, and length of its JSON."""


def task_row(task: Task) -> tuple[str, ...]:
    """Return a task as a row; texts as JSON, because SQLite cannot store half a surrogate pair."""
    return task.id, json.dumps(task.instruction), task.domain, json.dumps(task.spec, default=_plain)


def trajectory_row(trajectory: Trajectory, screens: Sequence[str | None], state: str) -> tuple[Any, ...]:
    """Return a trajectory as a row, in the order of the table's columns; ``screens``: the files of its screenshots."""
    attempt, reward = trajectory.attempt, trajectory.reward
    return (
        attempt.id,
        attempt.task.id,
        attempt.group,
        attempt.index,
        attempt.seed,
        attempt.turn_limit,
        attempt.version,
        trajectory.ending.value,
        None if trajectory.cause is None else json.dumps(trajectory.cause),
        None if reward is None else float(reward),
        json.dumps(asdict(reward.record)) if isinstance(reward, Score) else None,
        len(trajectory.turns),
        trajectory.oldest_version,
        trajectory.newest_version,
        trajectory.started,
        trajectory.finished,
        pack_turns(trajectory, screens),
        state,
        *(None, None, None),
    )


def trajectory_of(row: Mapping[str, Any], task: Task, blobs: BlobStore | None) -> Trajectory:
    """Return the trajectory of a row.

    Raises:
        TornRecord: If its turns were not kept or are damaged.
        TornFile: If a screenshot is missing or damaged.
    """
    attempt = Attempt(row["attempt"], task, row["group"], row["index"], row["seed"], row["turn_limit"], row["version"])
    return Trajectory(
        attempt=attempt,
        turns=Turns(_turns(row["turns"], task.instruction, blobs)),
        ending=Ending(row["ending"]),
        reward=row["reward"] if row["score"] is None else Score(row["reward"], score_record(row["score"])),
        cause=None if row["cause"] is None else json.loads(row["cause"]),
        started=row["started"],
        finished=row["finished"],
    )


def task_of(row: Sequence[str]) -> Task:
    """Return the task of a row."""
    return Task(row[0], json.loads(row[1]), row[2], json.loads(row[3]))


def score_record(text: str) -> ScoreRecord:
    """Return how a reward was computed, from the column ``score``."""
    data = json.loads(text)
    metrics = tuple(MetricRecord(**{**metric, "inputs": tuple(metric["inputs"])}) for metric in data.pop("metrics"))
    return ScoreRecord(**data, metrics=metrics)


def pack_turns(trajectory: Trajectory, screens: Sequence[str | None]) -> bytes:
    """Return turns as a checksum, JSON, and arrays, whose lengths are in the JSON."""
    task_instruction = trajectory.attempt.task.instruction
    turns: list[Sequence[Any]] = []
    arrays: list[bytes] = []
    for turn, screen in zip(trajectory.turns, screens, strict=True):
        reply, instruction = turn.reply, turn.observation.instruction
        values = (reply.tokens, reply.logprobs, reply.entropies)
        turns.append((
            *reply[:6],
            [None if value is None else len(value) for value in values],
            screen,
            None if instruction == task_instruction else instruction,
        ))  # fmt: skip
        arrays += [_pack_array(value, dtype) for value, dtype in zip(values, _ARRAYS, strict=True) if value is not None]
    text = json.dumps(turns, separators=(",", ":")).encode()
    body = text + b"".join(arrays)
    return _HEAD.pack(zlib.crc32(body), len(text)) + body


def _pack_array(values: Any, dtype: str) -> bytes:
    array = np.asarray(values)
    packed = array.astype(dtype)
    if dtype == "<i4" and (packed != array).any():
        raise ValueError(f"a token is a number below 2**31, got {array.max()}")
    return packed.tobytes()


def unpack_turns(data: bytes | None) -> tuple[list[Any], bytes]:
    """Return the turns' JSON and the bytes of their arrays.

    Raises:
        TornRecord: If the data is missing or damaged.
    """
    if not isinstance(data, bytes):
        raise TornRecord("its turns are not kept")
    try:
        checksum, length = _HEAD.unpack_from(data)
    except struct.error:
        checksum, length = -1, 0
    body = data[_HEAD.size :]
    if zlib.crc32(body) != checksum:
        raise TornRecord("its turns are not what was recorded: their checksum differs")
    return json.loads(body[:length]), body[length:]


def screens_of(data: bytes) -> Iterator[str]:
    """Yield the names of the screenshots that packed turns refer to."""
    return filter(None, (turn[7] for turn in unpack_turns(data)[0]))


class UnpackedTurn(NamedTuple):
    """A stored turn with plain numbers, and without its files."""

    action: str
    version: int
    worker: int
    prompt_tokens: int
    response_tokens: int
    tokens: list[int] | None
    logprobs: list[float] | None
    entropies: list[float] | None
    screenshot: str | None


def unpacked_turns(data: bytes | None) -> Iterator[UnpackedTurn]:
    """Yield stored turns for display; numbers that are not finite are None.

    Raises:
        TornRecord: If the turns are missing or damaged.
    """
    turns, arrays = unpack_turns(data)
    at = 0
    for action, version, _, worker, prompt_tokens, response_tokens, lengths, screenshot, _ in turns:
        values: list[Any] = []
        for length, dtype in zip(lengths, _ARRAYS, strict=True):
            array = None if length is None else np.frombuffer(arrays, dtype, length, at)
            at += 4 * (length or 0)
            shown = None if array is None else np.round(array.astype(np.float64), 4) if dtype == "<f4" else array
            values.append(None if shown is None else [x if np.isfinite(x) else None for x in shown.tolist()])
        tokens, logprobs, entropies = values
        numbers = (action, version, worker, prompt_tokens, response_tokens)
        yield UnpackedTurn(*numbers, tokens, logprobs, entropies, screenshot)


def _turns(data: bytes | None, instruction: str, blobs: BlobStore | None) -> Iterable[Turn]:
    turns, arrays = unpack_turns(data)
    at = 0
    for *numbers, lengths, screenshot, shown in turns:
        if blobs is None and screenshot:
            raise TornRecord("its screenshots are in another place")
        values: list[Any] = []
        for length, dtype in zip(lengths, _ARRAYS, strict=True):
            values.append(None if length is None else np.frombuffer(arrays, dtype, length, at).copy())
            at += 4 * (length or 0)
        observation = Observation(
            blobs.get(screenshot) if blobs and screenshot else None,
            instruction if shown is None else shown,
        )
        yield Turn(observation, Reply(*numbers, *values))


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, (tuple, set, frozenset)):
        return list(value)
    return repr(value)  # an object in a gymnasium environment's own task
