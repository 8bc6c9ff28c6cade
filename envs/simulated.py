"""``SimDesktop``: a desktop without content, for load tests of schedulers.

A task is solved by one action, ``SOLVE_ACTION``; everything else has no effect. So a policy can decide in advance
whether and when an attempt succeeds, and the desktop scores the actual actions.
"""

from __future__ import annotations

import zlib
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from dartsim.core.png import Screenshot, encode_png
from dartsim.core.types import Observation, Task
from dartsim.envs.base import GuiEnv

SOLVE_ACTION = "pyautogui.hotkey('ctrl', 's')"
"""The one action that solves a task of ``SimDesktop``."""
WORK_ACTION = "pyautogui.click(960, 540)"
"""An action without effect."""

BAR_TURNS = 30
"""Turns that fill the drawn bar."""

_DEFAULT_TASK = Task(id="simulated", instruction="Save the document.", domain="simulated")
_BAR = np.array((70, 130, 230), dtype=np.uint8)
_SOLVED = np.array((60, 180, 90), dtype=np.uint8)


class SimDesktop(GuiEnv):
    """A desktop without content.

    Args:
        draw: Show turns as a bar and the task's state as a square; otherwise a constant gray frame, which
            all desktops of one size share.
        kwargs: As for ``GuiEnv``.
    """

    seeded: ClassVar[bool] = False

    def __init__(self, *, draw: bool = True, task: Task | None = None, **kwargs: Any) -> None:
        super().__init__(task=task or _DEFAULT_TASK, **kwargs)
        self.draw = draw
        self.solved = False
        self._shown: Observation | None = None

    def _begin(self, task: Task) -> None:
        self.solved = False
        self._show(task)

    def _show(self, task: Task) -> None:
        if not self.draw:
            self._shown = Observation(_gray(self.height, self.width), task.instruction, self._tree())

    def copy_state(self) -> bool:
        return self.solved

    def _load(self, state: bool) -> None:
        assert self.task is not None
        self.solved = state
        self._show(self.task)

    def _act(self, action: str) -> None:
        if action == SOLVE_ACTION:
            self.solved = True

    @override
    def observe(self) -> Observation:
        shown = self._shown
        return self._observe() if shown is None else shown  # saves a call at every turn

    def _observe(self) -> Observation:
        assert self.task is not None
        return Observation(self._drawing(self.task), self.task.instruction, self._tree())

    def _score(self) -> float:
        return 1.0 if self.solved else 0.0

    def _tree(self) -> str | None:
        return "<desktop-frame/>" if self.accessibility else None

    def _drawing(self, task: Task) -> NDArray[np.uint8]:
        """Paint the task's color, a bar of the turns below, and a square above once it is solved."""
        frame = np.empty((self.height, self.width, 3), dtype=np.uint8)
        frame[:] = np.frombuffer(zlib.crc32(task.id.encode()).to_bytes(4, "little")[:3], np.uint8) // 2
        thick = max(1, self.height // 20)
        length = min(self.turns, BAR_TURNS) * self.width // BAR_TURNS
        frame[-thick:, :length] = _BAR
        if self.solved:
            frame[:thick, :thick] = _SOLVED
        return frame


@lru_cache(maxsize=8)
def _gray(height: int, width: int) -> Screenshot:
    """Return a screenshot whose key is computed once: rules compare screenshots at every turn."""
    frame = np.full((height, width, 3), 128, dtype=np.uint8)
    return Screenshot(encode_png(frame), frame.shape)
