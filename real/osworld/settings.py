"""``DesktopSettings``: how a desktop is shown to a policy, and how long it is waited for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dartsim.real.osworld.ready import Readiness, SettlingRules


@dataclass(frozen=True, slots=True, kw_only=True)
class DesktopSettings:
    """How a desktop is shown to a policy, and how long it is waited for.

    Attributes:
        grammar: Name of an action grammar, see ``dartsim.envs.actions``.
        grammar_options: Its options.
        screen: Width and height of the desktop's screen, pixels.
        shown: Width and height of the picture the policy gets and speaks of; by default the screen's.
        accessibility: Observe the accessibility tree too.
        settle: When the screen has settled after an action; a number means a fixed sleep in seconds (OSWorld's
            runners: 0 to 10).
        ready: When the desktop is ready after a set-up; a number means a fixed sleep in seconds (OSWorld: 60).
        booted: When the desktop is ready after its start.
        wait_seconds: Duration of the action WAIT.
        evaluate_wait_seconds: Sleep before scoring (OSWorld's runners: 20).
        action_seconds: Longest time the code of one turn may run.
        paste: Whether texts are pasted rather than typed.
        python: The desktop's interpreter that has pyautogui.
    """

    grammar: str = "pyautogui"
    grammar_options: Mapping[str, Any] = field(default_factory=dict)
    screen: tuple[int, int] = (1920, 1080)
    shown: tuple[int, int] | None = None
    accessibility: bool = False
    settle: SettlingRules | float = field(default_factory=SettlingRules)
    ready: Readiness | float = field(default_factory=Readiness)
    booted: Readiness = field(default_factory=Readiness)
    wait_seconds: float = 1.0
    evaluate_wait_seconds: float = 0.0
    action_seconds: float = 60.0
    paste: bool = False
    python: str = "python"

    @property
    def size(self) -> tuple[int, int]:
        """Width and height of the policy's picture, pixels."""
        return self.shown or self.screen
