"""``EvaluationFolder``: the results of an evaluation, one folder per attempt, in the layout of OSWorld's own runner.

    OUT/evaluation.json, config.toml                      what is evaluated; another evaluation is refused
    OUT/steps-50/attempt-1/                               what OSWorld's show_result.py takes as its result_dir
        pyautogui/screenshot/MODEL/DOMAIN/TASK/
            result.txt                                    the score, for that script; absent if the attempt was masked
            traj.jsonl, step_0.png, step_1.png, …         step_0: the first screen; step_n: the screen after action n
            attempt.json                                  the score, how the attempt ended, and why it was masked
            success/                                      a pool of one, if it is a success and successes are kept

Invariant: a folder appears whole or not at all, so that an interrupted evaluation continues where it stopped.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from dartsim.config import Config, to_toml
from dartsim.core.errors import ConfigError
from dartsim.core.png import png_of
from dartsim.core.rewards import SUCCESS, reaches
from dartsim.core.types import Score, Task, Trajectory
from dartsim.observe.rundir import CONFIG, EVALUATION, LOCK, is_locked, refuse_locked, write_text

SCHEMA = 1
RESULT, TRAJECTORY, ATTEMPT = "result.txt", "traj.jsonl", "attempt.json"
SUCCESS_POOL = "success"
LAYOUT = ("pyautogui", "screenshot")
"""Action space and observation type: folders of OSWorld's layout."""
MEASURED = {
    "backend": ("desktops",),
    "rollout": ("fail_at_limit",),
    "endpoint": ("model", "options"),
    "policy": (
        *("screen", "grid", "grammar", "actions", "family", "prompt", "language", "instructions"),
        *("malformed", "malformed_tries"),
        *("max_new_tokens", "temperature", "call_user_waits", "max_images", "images_after_cut", "max_texts"),
    ),
    "desktop": (
        *("width", "height", "settle", "max_settle_seconds", "wait_seconds", "ready", "evaluate_wait_seconds"),
        "typing",
    ),
}
"""Settings that change what is measured; the others say where it runs. Tasks and weights are compared separately."""


class AttemptKey(NamedTuple):
    """One attempt of an evaluation; ``attempt`` counts from 1, ``steps`` is its budget."""

    steps: int
    attempt: int
    domain: str
    task: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptResult:
    """How an attempt ended."""

    score: float | None
    ending: str
    cause: str | None
    turns: int
    seconds: float
    scorer: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationPlan:
    """The tasks, step budgets and attempts of an evaluation, in a run or of its own."""

    tasks: Sequence[Task]
    steps: Sequence[int]
    attempts: int = 1
    tries: int = 2

    def planned(self) -> Iterator[tuple[AttemptKey, Task, int]]:
        """Yield all attempts with their seeds: every task once before any task again."""
        for budget, steps in enumerate(self.steps):
            for index in range(self.attempts):
                for number, task in enumerate(self.tasks):
                    seed = budget * 10**12 + number * self.attempts + index
                    yield AttemptKey(steps, index + 1, task.domain, task.id), task, seed


class EvaluationFolder:
    """The results in a folder.

    Args:
        path: The folder.
        model: Name of the evaluated model.
        token_meaning: What the model's tokens mean (``pool_files.token_meaning``), if successes are kept.
    """

    def __init__(self, path: Path, model: str, token_meaning: Mapping[str, Any] | None = None) -> None:
        self.path = path
        self.model = file_name(model)
        self._token_meaning = token_meaning

    def check(self, identity: Mapping[str, Any]) -> None:
        """Refuse a folder with anything but this evaluation; write nothing.

        Raises:
            ConfigError: If the folder contains something else, or another process evaluates into it.
        """
        if is_locked(self.path):
            refuse_locked(self.path)
        if (self.path / EVALUATION).is_file():
            _refuse_other(self.path, identity)
            return
        others = [each.name for each in self.path.iterdir() if each.name != LOCK] if self.path.is_dir() else []
        if others:
            raise ConfigError(
                f"{self.path} holds {', '.join(sorted(others)[:3])} and no {EVALUATION}: it is no evaluation to go on "
                "with; name another folder with --out"
            )

    def claim(self, identity: Mapping[str, Any], config: Config) -> None:
        """Begin this evaluation in the folder, unless it has begun."""
        if not (self.path / EVALUATION).is_file():
            self.path.mkdir(parents=True, exist_ok=True)
            write_text(self.path / CONFIG, to_toml(config))
            write_text(self.path / EVALUATION, json.dumps(identity, indent=1) + "\n")

    def folder(self, key: AttemptKey) -> Path:
        result_dir = self.path / f"steps-{key.steps}" / f"attempt-{key.attempt}"
        return result_dir.joinpath(*LAYOUT, self.model, file_name(key.domain), file_name(key.task))

    def read(self, key: AttemptKey) -> AttemptResult | None:
        """Return how an attempt ended; None if it has no result yet.

        Raises:
            ConfigError: If its files do not have the expected form.
        """
        folder = self.folder(key)
        try:
            found = AttemptResult(**json.loads((folder / ATTEMPT).read_text(encoding="utf-8")))
            if found.score is not None and not 0.0 <= found.score <= 1.0:
                raise ValueError(found.score)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, RecursionError):
            raise ConfigError(
                f"{folder / ATTEMPT} is not as `dartsim eval` writes it; remove {folder}, and the attempt is made again"
            ) from None
        if self._keeps(found.score) and not (folder / SUCCESS_POOL).is_dir():
            raise ConfigError(f"{folder} is a success that was not kept; evaluate again in another folder with --out")
        return found

    def write(
        self, key: AttemptKey, trajectory: Trajectory, screens: Sequence[Any], code_of: Callable[[str], str]
    ) -> AttemptResult:
        """Write an attempt's folder, replacing that of an earlier masked attempt; may run in a thread.

        Args:
            key: The attempt.
            trajectory: Its trajectory.
            screens: Screenshots: the first one, and the one after each action.
            code_of: Returns the code of a turn's text in the form of OSWorld's traj.jsonl.
        """
        target = self.folder(key)
        part = target.with_name(f".{target.name}.part")
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        write_attempt(part, trajectory, screens, code_of)
        result = AttemptResult(
            score=None if trajectory.reward is None else float(trajectory.reward),
            ending=trajectory.ending.value,
            cause=trajectory.cause,
            turns=len(trajectory.turns),
            seconds=round(trajectory.finished - trajectory.started, 3),
            scorer=trajectory.reward.record.scorer if isinstance(trajectory.reward, Score) else None,
        )
        write_text(part / ATTEMPT, json.dumps(asdict(result)) + "\n")
        if self._keeps(result.score):
            self._write_pool(part / SUCCESS_POOL, [trajectory], {})
        shutil.rmtree(target, ignore_errors=True)
        part.replace(target)
        return result

    def _keeps(self, score: float | None) -> bool:
        return self._token_meaning is not None and score is not None and reaches(score, SUCCESS)

    def write_pool(self, pool: Path, planned: Iterable[tuple[AttemptKey, Task, int]], source: Mapping[str, Any]) -> int:
        """Write the kept successes as one pool, in the plan's order, and return their number."""
        from dartsim.real.pool_files import read_pool

        pools = ((self.folder(key) / SUCCESS_POOL, task) for key, task, _ in planned)
        found = (read_pool(folder, [task]).successes for folder, task in pools if folder.is_dir())
        return self._write_pool(pool, chain.from_iterable(found), source)

    def _write_pool(self, pool: Path, successes: Iterable[Trajectory], source: Mapping[str, Any]) -> int:
        # Imported here: it needs the extra `train`.
        from dartsim.real.pool_files import write_pool

        assert self._token_meaning is not None
        return write_pool(pool, successes, writes=self._token_meaning, source=source)


def identity_of(config: Config, tasks: Sequence[Task], model: str, weights: str) -> dict[str, Any]:
    """Return what two equal evaluations have in common, JSON-serializable."""
    settings = {
        f"{section}.{name}": getattr(getattr(config, section), name)
        for section, names in MEASURED.items()
        for name in names
    }
    listed = sorted((task.domain, task.id, json.dumps(task.spec, sort_keys=True, default=str)) for task in tasks)
    return {
        "schema": SCHEMA,
        "model": model,
        "weights": weights,
        "tasks": sha256(json.dumps(listed).encode()).hexdigest(),
        "settings": settings,
    }


def file_name(name: str) -> str:
    """Return a name with only letters, digits, dots, dashes and underscores."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", name).strip(".-") or "unnamed"


def _refuse_other(path: Path, ours: Mapping[str, Any]) -> None:
    """Refuse results of another evaluation; the error names what differs."""
    try:
        found: dict[str, Any] = dict(json.loads((path / EVALUATION).read_text(encoding="utf-8")))
        before = dict(found["settings"])
        if found["schema"] != SCHEMA:
            raise ValueError(found["schema"])
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        raise ConfigError(
            f"{path / EVALUATION} is damaged or of another version (this one writes schema {SCHEMA}); name another "
            "folder with --out"
        ) from None
    now = ours["settings"]
    changed = [f"with {key} = {before.get(key)!r}, now {now[key]!r}" for key in now if before.get(key) != now[key]]
    for name, text in (("model", "of another model"), ("weights", "of other weights"), ("tasks", "of other tasks")):
        if found.get(name) != ours[name]:
            changed.insert(0, text)
    if changed:
        more = f" and {len(changed) - 3} more" if len(changed) > 3 else ""
        raise ConfigError(
            f"{path} holds results {'; '.join(changed[:3])}{more}; name another folder with --out, or evaluate as "
            "before"
        )


def write_attempt(folder: Path, trajectory: Trajectory, screens: Sequence[Any], code_of: Callable[[str], str]) -> None:
    """Write what OSWorld's own runner writes of an attempt; arguments as of ``EvaluationFolder.write``."""
    for number, screen in enumerate(screens):
        if screen is not None:
            (folder / _screen(number)).write_bytes(png_of(screen))
    rows = [json.dumps(row) for row in _rows(trajectory, len(screens), code_of)]
    write_text(folder / TRAJECTORY, "".join(f"{row}\n" for row in rows))
    if trajectory.reward is not None:
        write_text(folder / RESULT, f"{float(trajectory.reward)}\n")


def _screen(number: int) -> str:
    return f"step_{number}.png"


def _rows(trajectory: Trajectory, num_screens: int, code_of: Callable[[str], str]) -> list[dict[str, Any]]:
    """Return the lines of traj.jsonl: OSWorld's fields, with the reply's text as ``response``."""
    last = len(trajectory.turns)
    over = trajectory.ending.value in ("done", "fail")
    rows = []
    for number, turn in enumerate(trajectory.turns, 1):
        done = number == last and over
        row = {
            "step_num": number,
            "action": code_of(turn.reply.action),
            "response": turn.reply.action,
            "reward": float(trajectory.reward or 0.0) if done else 0.0,
            "done": done,
            "info": {},
        }
        rows.append(row | ({"screenshot_file": _screen(number)} if number < num_screens else {}))
    return rows
