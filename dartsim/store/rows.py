"""Trajectories as rows, and rows as trajectories."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
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
)

NO_ROOM = ""
"""Name of the file of a screenshot or tree that was not kept because there was no room."""
ROW_BYTES = 64
"""Size of a turn's numbers, without texts and arrays."""


class TurnFiles(NamedTuple):
    """The files of what a turn's observation showed; None where it showed nothing of the kind."""

    screenshot: str | None = None
    tree: str | None = None


NO_FILES = TurnFiles()
_NOTHING = (None,) * 6
_NUMBERS = struct.Struct("<7q")
_ESCAPED = "\x1b!"
"""Prefix of a text that databases do not accept unescaped."""


def task_row(task: Task) -> dict[str, Any]:
    """Return a task as a row."""
    spec = json.dumps(task.spec, default=_plain)
    return {"task": task.id, "instruction": storable(task.instruction), "domain": task.domain, "spec": spec}


def trajectory_row(trajectory: Trajectory, state: str) -> dict[str, Any]:
    """Return a trajectory as a row, without its turns."""
    attempt, reward = trajectory.attempt, trajectory.reward
    return {
        "attempt": attempt.id,
        "task": attempt.task.id,
        "group": attempt.group,
        "ending": trajectory.ending.value,
        "cause": None if trajectory.cause is None else storable(trajectory.cause),
        "reward": None if reward is None else float(reward),
        "score": storable(json.dumps(asdict(reward.record))) if isinstance(reward, Score) else None,
        "num_turns": len(trajectory.turns),
        "oldest_version": trajectory.oldest_version,
        "newest_version": trajectory.newest_version,
        "started": trajectory.started,
        "finished": trajectory.finished,
        "state": state,
        "reason": None,
        "update": None,
        "index": attempt.index,
        "seed": attempt.seed,
        "turn_limit": attempt.turn_limit,
        "version": attempt.version,
        "ready": None,
        "kept_bytes": None,
    }


def turn_rows(trajectory: Trajectory, seen: Sequence[TurnFiles]) -> tuple[list[tuple[Any, ...]], int]:
    """Return the turns as tuples in the order of the table's columns, and their size in bytes."""
    attempt, task_instruction = trajectory.attempt.id, trajectory.attempt.task.instruction
    rows, size = [], 0
    for number, (turn, files) in enumerate(zip(trajectory.turns, seen, strict=True)):
        reply = turn.reply
        if reply.tokens is None and files is NO_FILES and turn.observation.instruction == task_instruction:
            row = _plain_row(attempt, number, reply)
            rows.append(row)
            size += ROW_BYTES + len(row[2])
            continue
        arrays = (_int32(reply.tokens), _float32(reply.logprobs), _float32(reply.entropies))
        instruction = turn.observation.instruction
        other = None if instruction == task_instruction else storable(instruction)
        numbers = (reply.version, reply.oldest_version, reply.worker, reply.prompt_tokens, reply.response_tokens)
        action = storable(reply.action)
        filled = (attempt, number, action, *numbers, *arrays, *files, other)
        rows.append((*filled, checksum(filled)))
        size += ROW_BYTES + len(action) + sum(len(array) for array in arrays if array)
    return rows, size


def _plain_row(attempt: int, number: int, reply: Reply) -> tuple[Any, ...]:
    """Return the row of a turn of a simulated model, which has no screenshots or tokens."""
    action, version, oldest, worker, prompt, response, _, logprobs, entropies, _ = reply
    action = storable(action)
    row = (attempt, number, action, version, oldest, worker, prompt, response)
    if logprobs is None and entropies is None:
        crc = zlib.crc32(_NUMBERS.pack(attempt, number, version, oldest, worker, prompt, response) + action.encode())
        return (*row, None, None, None, None, None, None, crc)
    filled = (*row, None, _float32(logprobs), _float32(entropies), *NO_FILES, None)
    return (*filled, checksum(filled))


def checksum(row: Sequence[Any]) -> int:
    """Return the CRC-32 of a turn's row, whose last column it becomes."""
    attempt, number, action, *numbers = row[:8]
    crc = zlib.crc32(_NUMBERS.pack(attempt, number, *numbers))
    crc = zlib.crc32(action.encode(), crc)
    rest = row[8:14]
    if rest == _NOTHING:  # of a simulated model
        return crc
    for value in rest:
        if value is None:
            crc = zlib.crc32(b"-", crc)
            continue
        data = value.encode() if isinstance(value, str) else value
        crc = zlib.crc32(data, zlib.crc32(len(data).to_bytes(8, "little"), crc))
    return crc


def task_of(row: Any) -> Task:
    """Return the task of a row."""
    return Task(row["task"], original(row["instruction"]), row["domain"], json.loads(row["spec"]))


def score_record(text: str) -> ScoreRecord:
    """Return how a reward was computed, from the column ``score``."""
    data = json.loads(text)
    metrics = tuple(MetricRecord(**{**metric, "inputs": tuple(metric["inputs"])}) for metric in data.pop("metrics"))
    return ScoreRecord(**data, metrics=metrics)


def trajectory_of(row: Any, task: Task, turns: Sequence[Turn]) -> Trajectory:
    """Return the trajectory of a row."""
    attempt = Attempt(
        id=row["attempt"],
        task=task,
        group=row["group"],
        index=row["index"],
        seed=row["seed"],
        turn_limit=row["turn_limit"],
        version=row["version"],
    )
    return Trajectory(
        attempt=attempt,
        turns=tuple(turns),
        ending=Ending(row["ending"]),
        reward=row["reward"] if row["score"] is None else Score(row["reward"], score_record(original(row["score"]))),
        cause=None if row["cause"] is None else original(row["cause"]),
        started=row["started"],
        finished=row["finished"],
    )


def turn_of(row: Sequence[Any], instruction: str, screenshot: Any, tree: str | None) -> Turn:
    """Return the turn of a row.

    Raises:
        TornRecord: If the row is not what was recorded.
    """
    if checksum(row) != row[-1]:
        raise TornRecord(f"turn {row[1]} of attempt {row[0]} is not what was recorded: its checksum differs")
    shown = instruction if row[13] is None else original(row[13])
    reply = Reply(
        original(row[2]),
        version=row[3],
        oldest_version=row[4],
        worker=row[5],
        prompt_tokens=row[6],
        response_tokens=row[7],
        tokens=_array(row[8], "<i4"),
        logprobs=_array(row[9], "<f4"),
        entropies=_array(row[10], "<f4"),
    )
    return Turn(Observation(screenshot, shown, tree), reply)


def storable(text: str) -> str:
    """Return a text that every database accepts: a model may generate NUL, or half of a character."""
    if "\x00" not in text and text[:2] != _ESCAPED:
        if text.isascii():
            return text
        with suppress(UnicodeEncodeError):
            text.encode()
            return text
    return _ESCAPED + text.encode("unicode_escape").decode("ascii")


def original(text: str) -> str:
    """Return the text that ``storable`` escaped."""
    if not text.startswith(_ESCAPED):
        return text
    return text.removeprefix(_ESCAPED).encode("ascii").decode("unicode_escape")


def _int32(values: Any) -> bytes | None:
    if values is None:
        return None
    array = np.asarray(values, dtype=np.int64)
    narrow = array.astype("<i4")
    if (narrow != array).any():
        raise ValueError(f"a token is a number below 2**31, got {array.max()}")
    return narrow.tobytes()


def _float32(values: Any) -> bytes | None:
    return None if values is None else np.asarray(values, dtype="<f4").tobytes()


def _array(data: bytes | None, dtype: str) -> Any:
    return None if data is None else np.frombuffer(data, dtype=dtype).copy()


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, (tuple, set, frozenset)):
        return list(value)
    return repr(value)  # of a gymnasium environment's own task
