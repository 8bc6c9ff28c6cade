"""``GuiEnv``: a desktop as a gymnasium environment, with a screenshot, an instruction and actions as text.

It is synchronous: it defines *what* happens, not how long it takes. Besides gymnasium's ``reset`` and ``step`` it has
the same steps as plain methods without dictionaries (``begin``, ``act``, ``observe``, ``evaluate``), for adapters that
call it many thousand times per second.
"""

from __future__ import annotations

import string
from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.error import ResetNeeded

from dartsim.core.errors import ScoreUnavailable
from dartsim.core.types import Observation, Task

WAIT = "WAIT"
"""Action: do nothing for a moment."""
DONE = "DONE"
"""Action: the agent declares the task done."""
FAIL = "FAIL"
"""Action: the agent declares the task infeasible."""

MAX_ACTION_CHARACTERS = 100_000
MAX_INSTRUCTION_CHARACTERS = 100_000
MAX_TREE_CHARACTERS = 100_000_000
"""Longest accessibility tree; that of a LibreOffice Calc window alone has a million characters."""


def is_infeasible(task: Task) -> bool:
    """Whether a task cannot be done, so that only FAIL is right (OSWorld's evaluator ``infeasible``)."""
    evaluator = task.spec.get("evaluator")
    return evaluator is not None and evaluator.get("func") == "infeasible"


def task_steps(task: Task) -> list[Mapping[str, Any]]:
    """Return the steps of a task's set-up and of its scoring."""
    evaluator = task.spec.get("evaluator") or {}
    return [*(task.spec.get("config") or ()), *(evaluator.get("postconfig") or ())]


def task_getters(task: Task) -> list[Mapping[str, Any]]:
    """Return what a task's scoring reads: its results, and what they are compared with."""
    evaluator = task.spec.get("evaluator") or {}
    found = [evaluator.get(name) for name in ("result", "expected")]
    return [getter for each in found for getter in (each if isinstance(each, list) else [each]) if getter]


class UnicodeText(spaces.Text):
    """A text space that contains any Unicode string up to a length; it samples short printable ASCII."""

    MAX_SAMPLE = 64

    def __init__(self, max_length: int, *, min_length: int = 0, seed: int | None = None) -> None:
        super().__init__(max_length, min_length=min_length, charset=string.printable, seed=seed)

    def contains(self, x: Any) -> bool:
        """Whether ``x`` is a string of an allowed length."""
        return isinstance(x, str) and self.min_length <= len(x) <= self.max_length

    def sample(self, mask: Any = None, probability: Any = None) -> str:
        """Return random printable ASCII of up to 64 characters, or text that fits gymnasium's mask."""
        if mask is None and probability is None:
            length = self.np_random.integers(self.min_length, min(self.max_length, self.MAX_SAMPLE) + 1)
            mask = (int(length), None)
        return str(super().sample(mask, probability))

    def __repr__(self) -> str:
        return f"UnicodeText({self.min_length}, {self.max_length})"


class GuiEnv(gymnasium.Env[dict[str, Any], str], ABC):
    """A desktop and a task on it.

    Observations are dictionaries: ``screenshot`` (uint8 [height, width, 3]), ``instruction``, and
    ``accessibility_tree`` (XML) if asked for. An action is a string: pyautogui code, or ``WAIT``, ``DONE``,
    ``FAIL``; a malformed one changes nothing. The reward is 0 until the episode ends, then its score.

    States: *fresh* until the first ``reset``, *running*, *over* after DONE or FAIL; actions need *running*.

    Subclasses implement ``_begin``, ``_act``, ``_observe`` and ``_score``. An array that a subclass returns
    repeatedly should be read-only: gymnasium's callers get copies of such arrays.

    Args:
        width: Pixels.
        height: Pixels.
        accessibility: Observe the accessibility tree too.
        task: Task of ``reset`` without ``options={"task": …}``.
        score_on_end: Score in the ``step`` that ends the episode. Off for callers that call ``evaluate``.
        turn_limit: ``truncated`` is set after that many turns; by default the caller limits turns.
        render_mode: ``rgb_array`` or None.
    """

    seeded: ClassVar[bool] = True
    """Whether episodes use ``np_random``; if not, ``begin`` creates no generator."""
    metadata: dict[str, Any] = {  # noqa: RUF012 - gymnasium's attribute
        "render_modes": ["rgb_array"],
        "render_fps": 1,
    }

    def __init__(
        self,
        *,
        width: int = 1920,
        height: int = 1080,
        accessibility: bool = False,
        task: Task | None = None,
        score_on_end: bool = True,
        turn_limit: int | None = None,
        render_mode: str | None = None,
    ) -> None:
        if width < 1 or height < 1:
            raise ValueError(f"a screen has at least 1 × 1 pixels, got {width} × {height}")
        if render_mode not in (None, "rgb_array"):
            raise ValueError(f"render_mode must be 'rgb_array' or None, got {render_mode!r}")
        self.width = width
        self.height = height
        self.accessibility = accessibility
        self.score_on_end = score_on_end
        self.turn_limit = turn_limit
        self.render_mode = render_mode
        self.task: Task | None = None
        self.turns = 0
        self.last_action: str | None = None
        self._default_task = task
        self._running = False

    # Spaces are created on demand, because a simulated cluster has thousands of desktops whose spaces are never read.
    @cached_property
    def observation_space(self) -> spaces.Dict:  # type: ignore[override]
        """The space of the observations that ``reset`` and ``step`` return."""
        shown: dict[str, spaces.Space[Any]] = {
            "screenshot": spaces.Box(0, 255, (self.height, self.width, 3), np.uint8),
            "instruction": UnicodeText(MAX_INSTRUCTION_CHARACTERS),
        }
        if self.accessibility:
            shown["accessibility_tree"] = UnicodeText(MAX_TREE_CHARACTERS)
        return spaces.Dict(shown)

    @cached_property
    def action_space(self) -> UnicodeText:  # type: ignore[override]
        """Any string."""
        return UnicodeText(MAX_ACTION_CHARACTERS)

    @abstractmethod
    def _begin(self, task: Task) -> None:
        """Set the desktop up for a task."""

    @abstractmethod
    def _act(self, action: str) -> None:
        """Carry out an action that is neither DONE nor FAIL; ignore a malformed one."""

    @abstractmethod
    def _observe(self) -> Observation:
        """Return what the desktop shows now."""

    @abstractmethod
    def _score(self) -> float:
        """Return the current score of a feasible task, in [0, 1]."""

    def begin(self, task: Task, seed: int | None = None) -> None:
        """Begin an episode: ``reset`` without an observation."""
        if self.seeded:
            super().reset(seed=seed)
        self._start(task)

    def _start(self, task: Task) -> None:
        self._note_start(task)
        self._begin(task)

    def _note_start(self, task: Task) -> None:
        self.task = task
        self.turns = 0
        self.last_action = None
        self._running = True

    def copy_state(self) -> Any:
        """Return a copy of the desktop's state, for ``resume`` of any desktop of its kind.

        Raises:
            NotImplementedError: If a subclass does not copy its state.
        """
        raise NotImplementedError(f"{type(self).__name__} does not copy its state")

    def _load(self, state: Any) -> None:
        """Load a copied state without sharing mutable parts with it."""
        raise NotImplementedError(f"{type(self).__name__} does not copy its state")

    def resume(self, state: Any, task: Task, seed: int | None = None) -> None:
        """Begin an episode in a copied state, in place of ``begin``, without a set-up."""
        if self.seeded:
            super().reset(seed=seed)
        self._note_start(task)
        self._load(state)

    def act(self, action: str) -> bool:
        """Carry out an action and return whether it was the last: ``step`` without an observation.

        Raises:
            ResetNeeded: If no episode runs.
        """
        if not self._running:
            raise ResetNeeded("the episode is over or has not begun; call reset() first")
        self.turns += 1
        self.last_action = action
        if action in (DONE, FAIL):
            self._running = False
            return True
        self._act(action)
        return False

    def observe(self) -> Observation:
        """Return what the desktop shows now."""
        return self._observe()

    def evaluate(self) -> float:
        """Return the score of the current state, in [0, 1]; may be called at any time and repeatedly.

        An infeasible task scores 1 if the last action was FAIL, and 0 otherwise; FAIL on a feasible task
        scores 0 in any state (OSWorld's rules).

        Raises:
            ResetNeeded: If no episode has begun.
            ScoreUnavailable: If the evaluator returned no number in [0, 1].
        """
        if self.task is None:
            raise ResetNeeded("there is no task to score yet; call reset() first")
        failed = self.last_action == FAIL
        if is_infeasible(self.task):
            return 1.0 if failed else 0.0
        if failed:
            return 0.0
        score = float(self._score())
        if not 0.0 <= score <= 1.0:
            raise ScoreUnavailable(f"task {self.task.id}: the evaluator gave {score}, wanted a number in [0, 1]")
        return score

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Begin an episode of ``options["task"]``, or of the constructor's task.

        Raises:
            ValueError: If there is no task, or an unknown option.
        """
        options = dict(options or {})
        task = options.pop("task", self._default_task)
        if options:
            raise ValueError(f"reset knows the option 'task' only, found {', '.join(map(repr, options))}")
        if not isinstance(task, Task):
            raise ValueError(f"reset wants options={{'task': Task(…)}}, found {task!r}")
        super().reset(seed=seed)
        self._start(task)
        return self._as_dict(self.observe()), {"task_id": task.id}

    def step(self, action: str) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        """Carry out an action; see the class for the result.

        Raises:
            ResetNeeded: If no episode runs.
            ScoreUnavailable: If the episode ended and its evaluator failed.
        """
        terminated = self.act(action)
        truncated = not terminated and self.turn_limit is not None and self.turns >= self.turn_limit
        if truncated:
            self._running = False
        ended = terminated or truncated
        reward = self.evaluate() if ended and self.score_on_end else 0.0
        return self._as_dict(self.observe()), reward, terminated, truncated, {"turn": self.turns}

    def render(self) -> Any:
        """Return the screen as uint8 [height, width, 3], in render mode ``rgb_array``."""
        return None if self.render_mode is None else _own(self.observe().screenshot)

    def _as_dict(self, observation: Observation) -> dict[str, Any]:
        shown = {"screenshot": _own(observation.screenshot), "instruction": observation.instruction}
        if self.accessibility:
            shown["accessibility_tree"] = observation.accessibility_tree or ""
        return shown


def _own(screenshot: Any) -> Any:
    """Return a screenshot as an array that the caller may keep and change."""
    array = np.asarray(screenshot)
    return array if array.flags.writeable else array.copy()
