"""The oracle, which knows the state and solves every task of every family.

It reads the goals in the task's file and takes the next step towards the first unreached one; a goal whose window is
closed counts as reached. It first dismisses any dialog without a goal. It has no memory, so it can continue from any
state. If something that it needs is missing (a window was closed, a page turned too far), it declares the task done.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from dartsim.core.types import Task
from dartsim.envs.actions import model as act
from dartsim.envs.mock.desktop import Target, VirtualDesktop
from dartsim.envs.mock.env import MockDesktop
from dartsim.envs.mock.widgets import MockWindow

Goal = list[Any]
Steps = tuple[act.Action, ...]


def oracle_actions(desktop: VirtualDesktop, task: Task) -> Steps:
    """Return the next turn's actions: one effective action, perhaps after a move of the pointer."""
    goals: list[Goal] = task.spec["goals"]
    top = desktop.top
    windows_of_goals = {str(goal[1]).partition(".")[0] for goal in goals if len(goal) > 1}
    reached = Progress(desktop)
    try:
        if top is not None and top.modal and top.id not in windows_of_goals:
            return _dismiss(desktop, top)
        for goal in goals:
            if goal == ["fail"]:
                return (act.Fail(),)
            if not reached(goal):
                return _towards(desktop, goal)
    except _Unreachable:
        pass
    return (act.Done(),)


def oracle_text(env: MockDesktop) -> str:
    """Return the oracle's next action in the environment's grammar.

    Raises:
        Inexpressible: If the grammar cannot write it.
    """
    assert env.task is not None
    return env.grammar.format(oracle_actions(env.desktop, env.task))


MAX_TURNS = 200
"""Turn limit; an oracle that needs more is broken."""


def play_oracle(env: MockDesktop, task: Task, *, frames: list[Any] | None = None) -> tuple[float, list[str]]:
    """Play a task and return the score and the actions."""
    env.begin(task)
    texts: list[str] = []
    over = False
    while not over and len(texts) < MAX_TURNS:
        if frames is not None:
            frames.append(env.observe().screenshot)
        texts.append(oracle_text(env))
        over = env.act(texts[-1])
    if frames is not None:
        frames.append(env.observe().screenshot)
    return env.evaluate(), texts


class _Unreachable(Exception):
    """Something that a goal needs is missing."""


class Progress:
    """Checks which goals are reached; call it once for each, in order."""

    def __init__(self, desktop: VirtualDesktop) -> None:
        self.desktop = desktop
        self.pressed = Counter(desktop.pressed)

    def __call__(self, goal: Goal) -> bool:
        """Return whether a goal is reached."""
        match goal:
            case ["press", str(name)]:
                self.pressed[name] -= 1
                return self.pressed[name] >= 0
            case ["page", str(name), int(number)]:
                shown = self.desktop.window(name)
                return shown is not None and shown.page == number
        raise ValueError(f"found the goal {goal!r}, which the oracle does not know")


def _towards(desktop: VirtualDesktop, goal: Goal) -> Steps:
    """Return the next step towards a goal."""
    if goal[0] == "press":
        window_id, _, widget_id = goal[1].partition(".")
        return _press(desktop, window_id, widget_id)
    # To the window's next page; from a page without one, back.
    window = desktop.window(goal[1])
    if window is None or window is not desktop.top:
        return _press_command(desktop, f"open:{goal[1]}")
    return _press_command(desktop, "next", "page:")


def _dismiss(desktop: VirtualDesktop, dialog: MockWindow) -> Steps:
    """Return the step that closes a dialog by its default button, or leads back to that button."""
    if any(placed.widget.id == dialog.default for placed in dialog.placed):
        return _press(desktop, dialog.id, dialog.default)
    return _press_command(desktop, "back")


def _press_command(desktop: VirtualDesktop, *commands: str) -> Steps:
    """Return a press of the top window's button that has the first available of these commands."""
    window = desktop.top
    if window is None:
        raise _Unreachable
    for command in commands:
        for placed in window.placed:
            if placed.widget.command.startswith(command):
                return _press(desktop, window.id, placed.widget.id)
    raise _Unreachable


def _press(desktop: VirtualDesktop, window_id: str, widget_id: str) -> Steps:
    """Return the click on a widget, or on the title of its window where another one covers it."""
    window = desktop.window(window_id)
    for index, placed, shown in () if window is None else desktop.shown_widgets(window):
        if placed.widget.id == widget_id:
            center = shown.center
            if desktop.target(*center) != Target("widget", window, index):
                assert window is not None
                center = desktop.layout.title(window).center
            return (act.Click(*center),)
    raise _Unreachable
