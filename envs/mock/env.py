"""``MockDesktop``: the mock desktop as a gymnasium environment, and as the desktops of a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from gymnasium.error import ResetNeeded

from dartsim.config.sections.policy import PolicyConfig
from dartsim.core.types import Observation, Task
from dartsim.envs.actions import ending, make_grammar, read
from dartsim.envs.actions.model import Action, Click
from dartsim.envs.base import GuiEnv
from dartsim.envs.mock.desktop import VirtualDesktop, set_up
from dartsim.envs.mock.evaluators import evaluate
from dartsim.envs.mock.geometry import MAX_HEIGHT, MAX_WIDTH, MIN_SIDE
from dartsim.envs.mock.layout import ScreenLayout
from dartsim.envs.mock.paint import Painter
from dartsim.envs.mock.perform import perform
from dartsim.envs.mock.scene import scene
from dartsim.envs.mock.tree import accessibility_tree


class MockDesktop(GuiEnv):
    """A small deterministic desktop.

    An action is a text in the environment's grammar; every grammar also accepts ``WAIT``, ``DONE``, ``FAIL`` and
    computer_13's dictionaries. The grammar's own words for the end (``finished()``, ``fail``) end the episode as DONE
    and FAIL do. A malformed action changes nothing and is counted.

    Args:
        width: Pixels, 96 to 1920.
        height: Pixels, 96 to 1080.
        grammar: Name of an action grammar, see ``dartsim.envs.actions``.
        grammar_options: Its options, such as ``columns`` and ``rows`` of ``compact``.
        auto_done: Whether the first click ends the episode; by default as the task says.
        task: Task of ``reset`` by default; if not given, a task of the family ``click_button``.
        kwargs: As for ``GuiEnv``.
    """

    seeded: ClassVar[bool] = False

    def __init__(
        self,
        *,
        width: int = 640,
        height: int = 480,
        grammar: str = "pyautogui",
        grammar_options: Mapping[str, Any] | None = None,
        auto_done: bool | None = None,
        task: Task | None = None,
        **kwargs: Any,
    ) -> None:
        if not (MIN_SIDE <= width <= MAX_WIDTH and MIN_SIDE <= height <= MAX_HEIGHT):
            raise ValueError(
                f"wanted a screen of {MIN_SIDE} × {MIN_SIDE} to {MAX_WIDTH} × {MAX_HEIGHT} pixels, "
                f"got {width} × {height}"
            )
        super().__init__(width=width, height=height, task=task or _default_task(), **kwargs)
        self.grammar = make_grammar(grammar, width, height, **(grammar_options or {}))
        self.auto_done = auto_done
        self.malformed = 0
        self.last_actions: tuple[Action, ...] = ()
        self._calls: Counter[str] = Counter()
        self.desktop = VirtualDesktop(ScreenLayout(width, height))
        self._painter = Painter(width, height)
        self._shown: Observation | None = None

    def tasks(self) -> list[Task]:
        """Return tasks for a run that uses this class as a gymnasium environment (``tasks.source = "gym"``)."""
        from dartsim.envs.mock.suites import mock_tasks

        return mock_tasks("click_button", 64)

    def _begin(self, task: Task) -> None:
        self._show(set_up(self.desktop.layout, task))

    def _show(self, desktop: VirtualDesktop) -> None:
        self.malformed = 0
        self.last_actions = ()
        self._calls.clear()
        self.desktop = desktop
        self._shown = None

    def copy_state(self) -> VirtualDesktop:
        return self.desktop.copy(self.desktop.layout)

    def _load(self, state: VirtualDesktop) -> None:
        self._show(state.copy(self.desktop.layout))

    def act(self, action: str | Mapping[str, Any]) -> bool:
        if not self._running:
            raise ResetNeeded("the episode is over or has not begun; call reset() first")
        actions = read(self.grammar, action, self._calls)
        self.last_actions = actions or ()
        if actions is None:
            self.malformed += 1
        else:
            perform(self.desktop, actions)
            self._shown = None
        end = ending(self.last_actions)
        self.turns += 1
        self.last_action = end or str(action)
        clicked = any(isinstance(action, Click) for action in self.last_actions)
        self._running = end is None and not (clicked and self._ends_on_click())
        return not self._running

    def read(self, action: str | Mapping[str, Any]) -> tuple[Action, ...] | None:
        """Return the actions of a text, or None if it is malformed."""
        return read(self.grammar, action)

    def step(self, action: Any) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = super().step(action)
        return observation, reward, terminated, truncated, {**info, "malformed": self.malformed}

    def _ends_on_click(self) -> bool:
        if self.auto_done is not None:
            return self.auto_done
        return self.task is not None and bool(self.task.spec.get("auto_done", False))

    def _act(self, action: str) -> None:
        raise NotImplementedError("act does all the work")

    def _observe(self) -> Observation:
        if self._shown is None:
            assert self.task is not None
            frame = self._painter.paint(scene(self.desktop))
            tree = accessibility_tree(self.desktop) if self.accessibility else None
            self._shown = Observation(frame, self.task.instruction, tree)
        return self._shown

    def _score(self) -> float:
        assert self.task is not None
        return evaluate(self.task.spec.get("evaluator"), self.desktop)


def mock_desktop_maker(policy: PolicyConfig) -> Callable[[], MockDesktop]:
    """Return a factory of desktops for a model that sees screenshots."""
    grammar, options = policy.action_grammar
    return lambda: MockDesktop(width=policy.screen, height=policy.screen, grammar=grammar, grammar_options=options)


def _default_task() -> Task:
    from dartsim.envs.mock.suites import default_task

    return default_task()
