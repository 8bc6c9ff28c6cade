"""Attempts of other agents in OSWorld's result directories, as trajectories in our model's grammar.

    RESULTS/ACTION_SPACE/OBSERVATION_TYPE/MODEL/DOMAIN/TASK/
        traj.jsonl     an object for each executed action: step_num, action, response, screenshot_file
        step_N_….png   the screen after it; step_0….png before the first one
        result.txt     the score

OSWorld's runner writes no ``step_0``: attempts without one are refused, because their first turn cannot be shown.
Actions with the same ``step_num`` are one reply. The executed action counts, not the reply's text: the reply is kept if
our grammar reads the same actions in it, and is otherwise rewritten from them, with its thought. The files are not
trusted: names must stay inside the attempt's folder, sizes are limited, and code is read, never run.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from dartsim.config import Config
from dartsim.core.errors import ConfigError
from dartsim.core.png import Screenshot, check_png, decode_png
from dartsim.core.rewards import reaches
from dartsim.core.types import Attempt, Ending, Observation, Reply, Task, Trajectory, Turn, Turns
from dartsim.envs.actions import ending, make_grammar
from dartsim.envs.actions import model as act
from dartsim.envs.actions.computer_13 import read_dictionary
from dartsim.envs.actions.grammar import ActionGrammar, Inexpressible, MalformedAction
from dartsim.envs.actions.ui_tars import SCROLL_NOTCHES, UiTars
from dartsim.envs.base import FAIL
from dartsim.real.vlm.model import ReplyWriter
from dartsim.real.vlm.ui_tars import shown_reply

TRAJECTORY, RESULT = "traj.jsonl", "result.txt"
MAX_TRAJECTORY_BYTES = 64 * 2**20
MAX_PICTURE_BYTES = 64 * 2**20
MAX_RESULT_BYTES = 256
MAX_THOUGHT = 1_000
"""Characters of a thought that are kept when a reply is rewritten."""
TOLERANCE = 3
"""Largest distance between a written and the executed position, pixels, because agents round differently."""
MIN_DEPTH, MAX_DEPTH = 2, 7
"""Folder levels from the given one to an attempt's files: for a model's folder, and for all of ``dartsim eval``."""
_NAME = re.compile(r"[\w@.:+-]{1,200}")
_FIRST = re.compile(r"step_0([_.].*)?\.png")
_THOUGHT = re.compile(r"Thought:\s*(.*?)\s*(?:\n\s*Action:|\Z)", re.DOTALL)


class Refused(Exception):
    """An attempt that is left out; ``reason`` is counted."""

    def __init__(self, reason: str, why: str) -> None:
        super().__init__(why)
        self.reason = reason


@dataclass
class ImportCounts:
    """Counts of imported and refused attempts."""

    found: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)
    unknown: dict[str, None] = field(default_factory=dict)
    models: Counter[str] = field(default_factory=Counter)
    origins: dict[int, Mapping[str, str]] = field(default_factory=dict)


def attempt_folders(results: Path) -> list[Path]:
    """Return the folders of attempts, in order.

    Raises:
        ConfigError: If there are none.
    """
    if not results.is_dir():
        raise ConfigError(f"{results} is not a folder; wanted a result directory of OSWorld")
    found = []
    for root, folders, files in os.walk(results):
        folder = Path(root)
        depth = len(folder.relative_to(results).parts)
        if TRAJECTORY in files and depth >= MIN_DEPTH:
            found.append(folder)
        if depth == MAX_DEPTH:
            folders.clear()
    if not found:
        raise ConfigError(
            f"{results} holds no DOMAIN/TASK/{TRAJECTORY}; wanted a result directory of OSWorld "
            "(ACTION_SPACE/OBSERVATION_TYPE/MODEL/DOMAIN/TASK), or the folder of one model in it"
        )
    return sorted(found)


def import_attempts(
    results: Sequence[Path],
    config: Config,
    tasks: Sequence[Task],
    writer: ReplyWriter,
    counts: ImportCounts,
    *,
    min_score: float,
    on_step: Callable[[int, int], None] | None = None,
) -> Iterator[Trajectory]:
    """Yield the attempts of result directories at known tasks, one in memory at a time; each content once.

    Raises:
        ConfigError: If a directory holds no attempts.
    """
    folders = [folder for directory in results for folder in attempt_folders(directory)]
    wanted = {task.id: task for task in tasks}
    reader = _AttemptReader(config, writer, min_score)
    seen: set[str] = set()
    for number, folder in enumerate(folders):
        counts.found += 1
        try:
            task = wanted.get(folder.name)
            if task is None:
                counts.unknown[folder.name] = None
                raise Refused("unknown_task", "the configuration has no such task")
            trajectory, digest = reader.read(folder, task, number)
            if digest in seen:
                raise Refused("read_twice", "the same files were read before")
        except Refused as refused:
            counts.refused[refused.reason] += 1
            counts.examples.setdefault(refused.reason, f"{folder}: {refused}")
        else:
            seen.add(digest)
            model = folder.parent.parent.name
            counts.models[model] += 1
            counts.origins[number] = {"model": model, "directory": str(folder.resolve()), "sha256": digest}
            yield trajectory
        if on_step is not None:
            on_step(number + 1, len(folders))


@dataclass(frozen=True, slots=True)
class _Step:
    """The executed actions of one reply, its text, and the file of the screen after it."""

    actions: tuple[act.Action, ...]
    response: str | None
    screen: str


class _AttemptReader:
    """Reads attempts; every method raises ``Refused`` where one cannot be used."""

    def __init__(self, config: Config, writer: ReplyWriter, min_score: float) -> None:
        desktop, mock = config.desktop, config.tasks.source == "mock"
        self._size = (config.policy.screen,) * 2 if mock else (desktop.width, desktop.height)
        self._max_turns = config.rollout.max_turns
        self._max_tokens = config.policy.max_new_tokens
        self._min_score = min_score
        self._writer = writer
        self._code = make_grammar("pyautogui", *self._size)
        name, options = config.policy.action_grammar
        self._grammar: ActionGrammar = make_grammar(name, *self._size, **options)

    def read(self, folder: Path, task: Task, number: int) -> tuple[Trajectory, str]:
        digest = sha256()
        result = _bytes(folder, RESULT, MAX_RESULT_BYTES, "no_score")
        score = _score(result)
        digest.update(result)
        if not reaches(score, self._min_score):
            raise Refused("score_below_minimum", f"its score is {score:g}, wanted {self._min_score:g}")
        data = _bytes(folder, TRAJECTORY, MAX_TRAJECTORY_BYTES, "bad_trajectory")
        digest.update(data)
        steps = self._steps(_rows(data))
        if len(steps) > self._max_turns:
            raise Refused("too_long", f"it has {len(steps)} turns, rollout.max_turns is {self._max_turns}")
        over = ending(action for step in steps for action in step.actions)
        names = [_first_screen(folder), *(step.screen for step in steps[:-1])]
        turns: list[Turn] = []
        for step, name in zip(steps, names, strict=True):
            picture = _bytes(folder, name, MAX_PICTURE_BYTES, "missing_screenshot")
            digest.update(sha256(picture).digest())
            text, tokens = self._reply(step)
            reply = Reply(text, 0, 0, -1, 0, len(tokens), tokens)
            turns.append(Turn(Observation(self._screenshot(picture, name), task.instruction), reply))
        identity = digest.hexdigest()
        attempt = Attempt(number, task, -1, number, int(identity[:12], 16), len(turns), 0)
        end = Ending.TURN_LIMIT if over is None else Ending.FAIL if over == FAIL else Ending.DONE
        return Trajectory(attempt, Turns(turns), end, score, None, 0.0, 0.0), identity

    def _steps(self, rows: Sequence[Mapping[str, Any]]) -> list[_Step]:
        """Return the replies of the last attempt in the file, because a restarted runner appends to it."""
        numbers = [number for row in rows if type(number := row.get("step_num")) is int]
        if len(numbers) < len(rows):
            raise Refused("bad_trajectory", f"a line of {TRAJECTORY} has no step_num; is it of another runner?")
        start = max(at for at, number in enumerate(numbers) if at == 0 or number < numbers[at - 1])
        steps: list[_Step] = []
        for row, number in zip(rows[start:], numbers[start:], strict=True):
            response = row.get("response")
            file = row.get("screenshot_file", f"step_{number}_{row.get('action_timestamp')}.png")
            step = _Step(self._executed(row, number), response if isinstance(response, str) else None, str(file))
            if steps and number == len(steps):
                step = replace(step, actions=steps.pop().actions + step.actions)
            elif number != len(steps) + 1:
                raise Refused("bad_trajectory", f"step {number} follows step {len(steps)}; lines are missing")
            steps.append(step)
        return steps

    def _executed(self, row: Mapping[str, Any], number: int) -> tuple[act.Action, ...]:
        """Return the actions of a line: pyautogui code, a word, a dictionary of computer_13, or one with code."""
        action = row.get("action")
        if isinstance(action, Mapping):
            # OSWorld's runners of Claude and of OpenAI.
            action = next((code for key in ("command", "action") if isinstance(code := action.get(key), str)), action)
        try:
            if isinstance(action, Mapping):
                return read_dictionary(action)
            if isinstance(action, str):
                return self._code.parse(action)
        except (MalformedAction, RecursionError, MemoryError) as error:
            raise Refused("unreadable_action", f"the action of step {number} cannot be read: {error}") from None
        raise Refused("unreadable_action", f"step {number} has {type(action).__name__} for an action")

    def _reply(self, step: _Step) -> tuple[str, list[int]]:
        response = step.response
        text = response.strip() if response is not None and self._means(response, step.actions) else self._written(step)
        if self._writer.config.prompts.box_tokens:
            text = shown_reply(text)
        try:
            tokens = self._writer.grammar.tokens(text)
        except ValueError as error:
            raise Refused("not_expressible", f"the model's grammar cannot write {text[:80]!r}: {error}") from None
        if isinstance(self._grammar, UiTars) and len(tokens) > self._max_tokens:
            raise Refused(
                "reply_too_long", f"a reply has {len(tokens)} tokens, policy.max_new_tokens is {self._max_tokens}"
            )
        return text, tokens

    def _means(self, said: str, executed: Sequence[act.Action]) -> bool:
        """Return whether our grammar reads in a reply what was executed."""
        if isinstance(self._grammar, UiTars) and not self._grammar.readable(said):
            return False
        try:
            read = _plain(self._grammar.parse(said))
        except (MalformedAction, RecursionError, MemoryError):
            return False
        done = _plain(executed)
        return len(read) == len(done) and all(map(_near, read, done))

    def _written(self, step: _Step) -> str:
        actions = _plain(step.actions)
        try:
            if not isinstance(self._grammar, UiTars):
                return self._grammar.format(step.actions)
            found = _THOUGHT.search(step.response or "")
            # "Action:" would separate a thought from its action.
            thought = found[1][:MAX_THOUGHT].replace("Action:", "Action -") if found else ""
            return self._grammar.format(actions, thought)
        except Inexpressible as error:
            raise Refused("not_expressible", str(error)) from None

    def _screenshot(self, picture: bytes, name: str) -> Screenshot:
        try:
            size = check_png(picture)
            if size != self._size:
                found, wanted = (f"{width} x {height}" for width, height in (size, self._size))
                raise Refused("screen_size", f"{name} is {found} pixels, the desktop is {wanted}")
            return Screenshot(picture, decode_png(picture).shape)
        except ValueError as error:
            raise Refused("bad_screenshot", f"{name} is no whole PNG: {error}") from None


def _rows(data: bytes) -> list[Mapping[str, Any]]:
    rows: list[Mapping[str, Any]] = []
    for number, line in enumerate(data.splitlines(), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            raise Refused("bad_trajectory", f"line {number} of {TRAJECTORY} is no JSON; was it cut off?") from None
        if not isinstance(row, dict):
            raise Refused("bad_trajectory", f"line {number} of {TRAJECTORY} is no object")
        rows.append(row)
    if not rows:
        raise Refused("bad_trajectory", f"{TRAJECTORY} is empty")
    return rows


def _score(data: bytes) -> float:
    try:
        score = float(data)
    except ValueError:
        raise Refused("no_score", f"{RESULT} holds {data[:40]!r}, wanted a number") from None
    if not 0.0 <= score <= 1.0 or not math.isfinite(score):
        raise Refused("no_score", f"{RESULT} holds {score:g}, wanted 0 to 1")
    return score


def _first_screen(folder: Path) -> str:
    """Return the newest screenshot from before the first action."""
    found = sorted(file.name for file in folder.glob("step_0*.png") if _FIRST.fullmatch(file.name))
    if not found:
        raise Refused("no_first_screenshot", "it has no step_0*.png, the screen before its first action")
    return found[-1]


def _bytes(folder: Path, name: str, limit: int, reason: str) -> bytes:
    """Return the content of a file right in a folder."""
    file = folder / name
    if not _NAME.fullmatch(name) or file.resolve().parent != folder.resolve() or not file.is_file():
        raise Refused(reason, f"it has no file {name[:80]!r}")
    with file.open("rb") as opened:
        data = opened.read(limit + 1)
    if len(data) > limit:
        raise Refused(reason, f"{name} has {file.stat().st_size:,} bytes, at most {limit:,} are read")
    return data


def _plain(actions: Sequence[act.Action]) -> list[act.Action]:
    """Return actions as UI-TARS writes them: keys as hotkeys, Enter as the end of a text, scrolls of 5 notches."""
    plain: list[act.Action] = []
    for action in actions:
        last = plain[-1] if plain else None
        match action:
            case act.Press("enter") | act.Hotkey(("enter",)) if isinstance(last, act.TypeText):
                plain[-1] = act.TypeText(f"{last.text}\n")
            case act.Press(key):
                plain.append(act.Hotkey((key,)))
            case act.KeyUp(key) if last == act.KeyDown(key):
                plain[-1] = act.Hotkey((key,))
            case act.Scroll(dx, dy):
                for way, notches in ((act.Scroll(_sign(dx), 0), dx), (act.Scroll(0, _sign(dy)), dy)):
                    times = max(1, round(abs(notches) / SCROLL_NOTCHES)) if notches else 0
                    plain += [way] * min(times, act.MAX_ACTIONS)
            case _:
                plain.append(action)
    return plain


def _sign(notches: int) -> int:
    return SCROLL_NOTCHES if notches > 0 else -SCROLL_NOTCHES


def _near(one: act.Action, other: act.Action) -> bool:
    """Return whether two actions are the same but for a few pixels."""
    if type(one) is not type(other):
        return False
    match one, other:
        case (act.Move(x, y), act.Move(u, v)) | (act.Drag(x, y), act.Drag(u, v)):
            return max(abs(x - u), abs(y - v)) <= TOLERANCE
        case act.Click(int() as x, int() as y), act.Click(int() as u, int() as v):
            return max(abs(x - u), abs(y - v)) <= TOLERANCE and replace(one, x=u, y=v) == other
    return one == other
