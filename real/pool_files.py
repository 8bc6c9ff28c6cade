"""Files of stored successes, which a run or ``dartsim eval --keep-successes`` writes and another run starts with.

    POOL/pool.json            schema, source, and the meaning of its tokens
    POOL/rows.jsonl           a success a line: task, attempt, origin, and the reply of every turn
    POOL/screens/ab/ab….png   screenshots, each once, by the hash of its pixels (``BlobStore``)

A pool contains no code. It appears whole or not at all, and is refused if a byte changed, if it has another schema, or
if its tokens have another meaning than the model's. A success without log-probabilities (an oracle's) is scored by the
model that starts with it.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dartsim.core.errors import ConfigError, TornFile
from dartsim.core.types import Attempt, Ending, Observation, Reply, Task, Trajectory, Turn, Turns
from dartsim.store.blobs import BlobStore

if TYPE_CHECKING:
    from dartsim.real.vlm.model import ReplyWriter, Vlm

SCHEMA = 3
"""Version of the format; others are refused."""

ABOUT, ROWS, SCREENS = "pool.json", "rows.jsonl", "screens"


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolFile:
    """A pool that was read."""

    successes: tuple[Trajectory, ...]
    unknown: tuple[str, ...]
    writes: Mapping[str, Any]
    source: Mapping[str, Any]


def token_meaning(vlm: Vlm | ReplyWriter, screen: int) -> dict[str, Any]:
    """Return what must be equal for a model to be trained on another's successes.

    Sizes, family and prompts may differ: log-probabilities are those of the model that acted. ``screen`` is the width
    and height of its desktops, pixels, to which clicks refer.
    """
    config = vlm.config
    tokens = json.dumps(sorted(vlm.vocabulary.tokenizer.get_vocab().items()))
    meaning: dict[str, Any] = {
        "vocabulary": sha256(tokens.encode()).hexdigest()[:16],
        "grammar": config.decoding.grammar,
        "screen": screen,
    }
    if config.decoding.grammar == "actions":
        meaning["actions"] = sha256(json.dumps(config.actions).encode()).hexdigest()[:16]
        meaning["num_actions"] = len(config.actions)
    return meaning


def _row(trajectory: Trajectory, blobs: BlobStore) -> dict[str, Any]:
    attempt = trajectory.attempt
    return {
        "task": {"id": attempt.task.id, "digest": task_digest(attempt.task)},
        "attempt": {
            "seed": attempt.seed,
            "index": attempt.index,
            "turn_limit": attempt.turn_limit,
            "version": attempt.version,
        },
        "ending": trajectory.ending.value,
        "reward": trajectory.reward,
        "turns": [_turn(turn, attempt.task, blobs) for turn in trajectory.turns],
    }


def _turn(turn: Turn, task: Task, blobs: BlobStore) -> dict[str, Any]:
    observation, reply = turn
    if reply.tokens is None:
        raise ValueError(f"a success of task {task.id!r} has no tokens; only a model's or an oracle's has some")
    row: dict[str, Any] = {
        "screen": blobs.put(observation.screenshot),
        "action": reply.action,
        "version": reply.version,
        "oldest_version": reply.oldest_version,
        "prompt_tokens": reply.prompt_tokens,
        "tokens": np.asarray(reply.tokens).tolist(),
        "logprobs": None if reply.logprobs is None else np.asarray(reply.logprobs).tolist(),
        "entropies": None if reply.entropies is None else np.asarray(reply.entropies).tolist(),
    }
    if observation.instruction != task.instruction:
        row["instruction"] = observation.instruction
    return row


def write_pool(
    folder: Path,
    successes: Iterable[Trajectory],
    *,
    writes: Mapping[str, Any],
    source: Mapping[str, Any],
    origins: Mapping[int, Mapping[str, str]] | None = None,
) -> int:
    """Write successes and return their number.

    Args:
        folder: The pool's folder; an existing one is replaced once the new one is complete.
        successes: Trajectories of a model, or of an agent whose actions were written as a model's tokens. They are
            taken one by one; if that raises, nothing is left of the new pool.
        writes: The meaning of the tokens (``token_meaning``).
        source: Their source, JSON-serializable; read after all are written.
        origins: Origin of individual successes, by the number of their attempt.

    Raises:
        ValueError: If a trajectory has no tokens, or a screenshot is not one.
        ConfigError: If the folder cannot be made.
        StoreFault: If a picture cannot be written.
    """
    partial = folder.with_name(folder.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        partial.mkdir(parents=True)
    except OSError as error:
        raise ConfigError(f"{folder} cannot be made a pool's folder: {error.strerror}") from None
    blobs, rows = BlobStore(partial / SCREENS), []
    try:
        for success in successes:
            row = _row(success, blobs)
            if origins is not None:
                row["origin"] = origins[success.attempt.id]
            rows.append(json.dumps(row, separators=(",", ":"), allow_nan=False))
    except BaseException:
        shutil.rmtree(partial)
        raise
    (partial / ROWS).write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")
    about = {
        "schema": SCHEMA,
        "successes": len(rows),
        "writes": dict(writes),
        "source": dict(source),
        "sha256": _file_hash(partial / ROWS),
    }
    (partial / ABOUT).write_text(json.dumps(about, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    shutil.rmtree(folder, ignore_errors=True)
    partial.rename(folder)
    return len(rows)


def read_pool(
    folder: Path, tasks: Sequence[Task], *, writes: Mapping[str, Any] | None = None, vocabulary: int | None = None
) -> PoolFile:
    """Read the successes of tasks.

    Args:
        folder: The pool's folder.
        tasks: Wanted tasks; successes of others are left out.
        writes: The meaning of the reader's tokens; None takes any.
        vocabulary: Number of the reader's tokens; None takes any.

    Raises:
        ConfigError: If it is no pool, is damaged, has another schema or other tokens, a wrong row, or another task with
            the id of a wanted one.
    """
    about = _about(folder)
    if writes is not None:
        check_meaning(folder, about["writes"], writes)
    reader = _Reader(folder, {task.id: task for task in tasks}, vocabulary)
    successes: list[Trajectory] = []
    unknown: dict[str, None] = {}
    for number, line in enumerate((folder / ROWS).read_text(encoding="utf-8").splitlines(), 1):
        try:
            row = json.loads(line)
            success = reader.success(row)
        except (ValueError, KeyError, TypeError, IndexError, RecursionError) as error:
            raise ConfigError(f"{folder / ROWS}, row {number}, is no success: {error!r}; collect them again") from None
        if success is None:
            unknown[row["task"]["id"]] = None
        else:
            successes.append(success)
    return PoolFile(
        successes=tuple(successes), unknown=tuple(unknown), writes=about["writes"], source=about.get("source", {})
    )


def pool_source(folder: Path) -> dict[str, Any]:
    """Return the source of a pool's successes.

    Raises:
        ConfigError: If it is no pool, or damaged.
    """
    return dict(_about(folder).get("source", {}))


def _about(folder: Path) -> dict[str, Any]:
    """Return a pool's description, after checking the hash of its rows."""
    if not (folder / ABOUT).is_file():
        raise ConfigError(
            f"{folder} is no pool of successes: it has no {ABOUT}; wanted a folder of "
            "`dartsim eval --keep-successes`, or successes/ of a run"
        )
    try:
        about: dict[str, Any] = json.loads((folder / ABOUT).read_text(encoding="utf-8"))
        schema, wanted = about["schema"], about["sha256"]
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{folder / ABOUT} cannot be read ({error!r}); collect the successes again") from None
    if schema != SCHEMA:
        raise ConfigError(f"{folder} has schema {schema}, this version reads {SCHEMA}; collect the successes again")
    digest = _file_hash(folder / ROWS) if (folder / ROWS).is_file() else "nothing"
    if digest != wanted:
        raise ConfigError(f"{folder / ROWS} is not what was written: its hash is {digest}; collect it again")
    return about


def check_meaning(where: Path, there: Mapping[str, Any], here: Mapping[str, Any]) -> None:
    """Refuse the successes of ``where`` if their tokens (``there``) mean something else than the reader's (``here``).

    Raises:
        ConfigError: Names every difference.
    """
    differ = [name for name in sorted({*there, *here}) if there.get(name) != here.get(name)]
    if differ:
        text = "; ".join(f"{name} is {there.get(name)!r} there and {here.get(name)!r} here" for name in differ)
        raise ConfigError(
            f"the successes of {where} are written in the tokens of another model: {text}. Collect them with a model "
            "of this configuration (`dartsim eval --keep-successes`), or change [policy] to theirs."
        )


class _Reader:
    """Reads rows as trajectories; each screenshot is read once."""

    def __init__(self, folder: Path, tasks: Mapping[str, Task], vocabulary: int | None) -> None:
        self._vocabulary = vocabulary
        self._folder = folder
        self._blobs = BlobStore(folder / SCREENS)
        self._tasks = tasks
        self._screens: dict[str, NDArray[np.uint8]] = {}

    def success(self, row: Mapping[str, Any]) -> Trajectory | None:
        """Return a row's trajectory; None if its task is unknown."""
        task = self._tasks.get(row["task"]["id"])
        if task is None:
            return None
        if row["task"]["digest"] != task_digest(task):
            raise ConfigError(
                f"{self._folder} holds successes of a task {task.id!r} that is another one than this run's task of "
                "that id; collect them again with this configuration"
            )
        raw, reward = row["attempt"], row["reward"]
        if type(reward) not in (int, float) or not 0.0 <= reward <= 1.0:
            raise ValueError(f"reward {reward!r}, wanted a number from 0 to 1")
        attempt = Attempt(-1, task, -1, raw["index"], raw["seed"], raw["turn_limit"], raw["version"])
        turns = tuple(self._turn(turn, task) for turn in row["turns"])
        return Trajectory(attempt, Turns(turns), Ending(row["ending"]), reward, None, 0.0, 0.0)

    def _turn(self, row: Mapping[str, Any], task: Task) -> Turn:
        tokens = np.array(row["tokens"], dtype=np.int64)
        if tokens.ndim != 1 or not tokens.size:
            raise ValueError(f"tokens {row['tokens']!r}, wanted a list")
        if tokens.min() < 0 or (self._vocabulary is not None and tokens.max() >= self._vocabulary):
            raise ValueError(f"a token that is not in a vocabulary of {self._vocabulary}")
        logprobs, entropies = (_numbers(row[name], len(tokens)) for name in ("logprobs", "entropies"))
        observation = Observation(self._screen(row["screen"]), row.get("instruction", task.instruction))
        versions = row["version"], row["oldest_version"]
        reply = Reply(row["action"], *versions, -1, row["prompt_tokens"], len(tokens), tokens, logprobs, entropies)
        return Turn(observation, reply)

    def _screen(self, name: str) -> NDArray[np.uint8]:
        if name not in self._screens:
            try:
                self._screens[name] = self._blobs.get(name)
            except TornFile as error:
                raise ConfigError(f"{error}; collect the successes again") from None
        return self._screens[name]


def _numbers(values: Any, count: int) -> NDArray[np.float32] | None:
    if values is None:
        return None
    numbers = np.array(values, dtype=np.float32)
    if numbers.shape != (count,) or not np.isfinite(numbers).all():
        raise ValueError(f"wanted {count} finite numbers")
    return numbers


def task_digest(task: Task) -> str:
    """Return a hash of a task's content."""
    content = [task.id, task.instruction, task.domain, dict(task.spec)]
    return sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()[:16]


def _file_hash(path: Path) -> str:
    return sha256(path.read_bytes()).hexdigest()
