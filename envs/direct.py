"""``DirectEnv``: a gymnasium GUI environment called inline, on the event loop of the caller, for runs in real time.

A step of the mock desktop takes a tenth of a millisecond, less than handing it to a thread.

This module is compiled in wheels: classes used at every turn inherit only from compiled classes and have no decorated
methods.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium.error import ResetNeeded

from dartsim.core.answers import score_of
from dartsim.core.compiled import mypyc_attr
from dartsim.core.errors import DartsimError, EnvBroken, EnvStartFailed, ScoreUnavailable
from dartsim.core.plugin_errors import describe
from dartsim.core.types import Observation, StepResult, Task, new_step_result
from dartsim.envs.base import DONE, FAIL, GuiEnv
from dartsim.envs.copied_states import CopiedStates, HostStates


@mypyc_attr(allow_interpreted_subclasses=True)
class DirectEnv:
    """One running desktop; implements ``dartsim.core.ports.AsyncEnv``.

    Args:
        desktop: A ``GuiEnv``, or anything with its plain methods; or any other gymnasium environment, wrapped or not,
            whose action is a string and whose observation is a screenshot or a dictionary with one. Without
            ``evaluate`` it is scored by the reward of its last step.
        states: The saved states of its host, if it can save its state; only a ``GuiEnv`` with ``copy_state`` can.

    Attributes:
        snapshots: ``dartsim.core.snapshots.Snapshots``; None without ``states``.
    """

    def __init__(self, desktop: Any, states: HostStates | None = None) -> None:
        foreign = isinstance(desktop, gymnasium.Env) and not isinstance(desktop, GuiEnv)
        self._desktop = WrappedDesktop(desktop) if foreign else desktop
        self.snapshots = None if states is None else CopiedStates(self._desktop, states)

    async def reset(self, task: Task, *, seed: int) -> Observation:
        return self.reset_now(task, seed)

    async def step(self, action: str) -> StepResult:
        return self.step_now(action)

    async def evaluate(self) -> float:
        return self.evaluate_now()

    def reset_now(self, task: Task, seed: int) -> Observation:
        """``reset``, synchronously."""
        try:
            if self.snapshots is None:
                self._desktop.begin(task, seed)
            else:
                self.snapshots.begin(task, seed)
            observation: Observation = self._desktop.observe()
            return observation
        except (DartsimError, ResetNeeded):
            raise
        except Exception as exc:
            raise EnvBroken(f"the desktop failed in reset for task {task.id}: {describe(exc)}") from exc

    def step_now(self, action: str) -> StepResult:
        """``step``, synchronously."""
        try:
            over = self._desktop.act(action)
            return new_step_result((self._desktop.observe(), over))
        except (DartsimError, ResetNeeded):
            raise
        except Exception as exc:
            raise EnvBroken(f"the desktop failed in step {action!r:.200}: {describe(exc)}") from exc

    def evaluate_now(self) -> float:
        """``evaluate``, synchronously."""
        try:
            return score_of(self._desktop.evaluate())
        except (DartsimError, ResetNeeded):
            raise
        except Exception as exc:
            raise ScoreUnavailable(f"the evaluator failed: {describe(exc)}") from exc

    async def close(self) -> None:
        self._desktop.close()


@mypyc_attr(allow_interpreted_subclasses=True)
class DirectProvider:
    """Starts desktops immediately; with ``forks`` they save their states. Implements ``core.ports.EnvProvider``."""

    def __init__(self, make_env: Callable[[], Any], *, forks: bool = False) -> None:
        self._make_env = make_env
        self._states = HostStates("this process") if forks else None

    async def start(self, slot: int) -> DirectEnv:
        try:
            return DirectEnv(self._make_env(), self._states)
        except Exception as exc:
            raise EnvStartFailed(f"the desktop of slot {slot} could not be made: {describe(exc)}") from exc


@mypyc_attr(allow_interpreted_subclasses=True)
class WrappedDesktop:
    """A gymnasium environment behind its dictionaries, with ``GuiEnv``'s plain calls."""

    def __init__(self, env: gymnasium.Env[Any, str]) -> None:
        self._env = env
        self._shown = Observation(None, "")
        self._reward: Any = 0.0
        self._evaluate: Callable[[], float] | None = getattr(env.unwrapped, "evaluate", None)
        if isinstance(env.unwrapped, GuiEnv):
            env.unwrapped.score_on_end = False  # scoring is a separate call that takes time

    def begin(self, task: Task, seed: int) -> None:
        observation, _ = self._env.reset(seed=seed, options={"task": task})
        self._reward = 0.0
        self._shown = _as_observation(observation, task.instruction)

    def act(self, action: str) -> bool:
        observation, reward, terminated, truncated, _ = self._env.step(action)
        self._reward = reward
        self._shown = _as_observation(observation, self._shown.instruction)
        return bool(terminated) or bool(truncated) or action in (DONE, FAIL)

    def observe(self) -> Observation:
        return self._shown

    def evaluate(self) -> float:
        return score_of(self._reward if self._evaluate is None else self._evaluate())

    def close(self) -> None:
        self._env.close()


def _as_observation(shown: Any, instruction: str) -> Observation:
    """Read a screenshot, or a dictionary with one; a missing instruction is the task's."""
    shown = shown if isinstance(shown, dict) else {"screenshot": shown}
    screen = shown["screenshot"]
    if screen is None:
        raise EnvBroken("the environment shows no screenshot")
    if isinstance(screen, np.ndarray) and screen.flags.writeable:
        screen = screen.copy()  # the environment may reuse it for the next turn
    return Observation(screen, shown.get("instruction", instruction), shown.get("accessibility_tree"))
