"""The oracle, which knows the state and solves every task of every family.

It reads the goals in the task's file, and takes the next step towards the first one that is not reached; a goal whose
window is closed counts as reached. A dialog that no goal is about is dismissed first. It has no memory, so it can
continue from any state. Where something that it needs is missing (a window was closed, a page turned too far), it
declares the task done.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from dartsim.core.types import Task
from dartsim.envs.actions import model as act
from dartsim.envs.mock.desktop import Target, VirtualDesktop
from dartsim.envs.mock.env import MockDesktop
from dartsim.envs.mock.geometry import Box
from dartsim.envs.mock.widgets import ListBox, MockWindow, Placed, Slider, TextField

NOTCHES = 5

Goal = list[Any]
Steps = tuple[act.Action, ...]


def oracle_actions(desktop: VirtualDesktop, task: Task) -> Steps:
    """Return the next turn's actions: one that matters, perhaps after a move of the pointer."""
    goals: list[Goal] = task.spec["goals"]
    top = desktop.top
    windows_of_goals = {str(goal[1]).partition(".")[0] for goal in goals if len(goal) > 1}
    if top is not None and top.modal and top.id not in windows_of_goals:
        return _dismiss(desktop, top)
    reached = Progress(desktop)
    for goal in goals:
        if goal == ["fail"]:
            return (act.Fail(),)
        if not reached(goal):
            try:
                return _towards(desktop, goal)
            except _Lost:
                break
    return (act.Done(),)


def oracle_text(env: MockDesktop) -> str:
    """Return the oracle's next action in the environment's grammar.

    Raises:
        Inexpressible: If the grammar cannot write it.
    """
    assert env.task is not None
    return env.grammar.format(oracle_actions(env.desktop, env.task))


MAX_TURNS = 200
"""An oracle that needs more is broken."""


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


class _Lost(Exception):
    """Something that a goal needs is missing."""


class Progress:
    """Checks which goals are reached; to be called once for each, in order."""

    def __init__(self, desktop: VirtualDesktop) -> None:
        self.desktop = desktop
        self.pressed = Counter(desktop.pressed)
        self.choices = Counter(desktop.choices)

    def __call__(self, goal: Goal) -> bool:
        """Return whether a goal is reached."""
        match goal:
            case ["press", str(name)]:
                return self._taken(self.pressed, name)
            case ["choose", _, str(title), str(item)]:
                return self._taken(self.choices, f"{title} > {item}")
            case ["close", str(name)]:
                return self.desktop.window(name) is None
            case ["page", str(name), int(number)]:
                shown = self.desktop.window(name)
                return shown is not None and shown.page == number
            case [_, str(name), wanted]:
                window_id, _, widget_id = name.partition(".")
                widget = self.desktop.find(window_id, widget_id)
                return widget is None or widget.value == wanted
        raise ValueError(f"found the goal {goal!r}, which the oracle does not know")

    @staticmethod
    def _taken(counter: Counter[str], name: str) -> bool:
        counter[name] -= 1
        return counter[name] >= 0


def _towards(desktop: VirtualDesktop, goal: Goal) -> Steps:
    """Return the next step towards a goal."""
    if goal[0] == "choose":
        return _choose(desktop, goal[1], goal[2], goal[3])
    if desktop.open_menu is not None:
        return (act.Press("esc"),)
    if goal[0] == "page":
        return _turn_pages(desktop, goal[1])
    if goal[0] == "close":
        window = _window(desktop, goal[1])
        return _click_part(desktop, window, desktop.layout.close(window), Target("close", window))
    window_id, _, widget_id = goal[1].partition(".")
    match goal[0]:
        case "press" | "check":
            return _press(desktop, window_id, widget_id)
        case "text":
            return _write(desktop, window_id, widget_id, goal[2])
        case "select":
            return _select(desktop, window_id, widget_id, goal[2])
        case "slide":
            return _slide(desktop, window_id, widget_id, goal[2])
        case "drop":
            return _drop(desktop, window_id, widget_id, goal[2])
    raise ValueError(f"found the goal {goal!r}, which the oracle does not know")


def _turn_pages(desktop: VirtualDesktop, window_id: str) -> Steps:
    """Return the step to the next page of a window; from a page without one, back."""
    window = desktop.window(window_id)
    if window is None or window is not desktop.top:
        return _press_command(desktop, f"open:{window_id}")
    return _press_command(desktop, "next", "page:")


def _dismiss(desktop: VirtualDesktop, dialog: MockWindow) -> Steps:
    """Return the step that closes a dialog by its default button, or leads back to that."""
    if any(placed.widget.id == dialog.default for placed in dialog.placed):
        return _press(desktop, dialog.id, dialog.default)
    return _press_command(desktop, "back")


def _press_command(desktop: VirtualDesktop, *commands: str) -> Steps:
    """Return the press of the top window's button with the first of these commands that one has."""
    window = desktop.top
    if window is None:
        raise _Lost
    for command in commands:
        for placed in window.placed:
            if placed.widget.command.startswith(command):
                return _press(desktop, window.id, placed.widget.id)
    raise _Lost


def _find(desktop: VirtualDesktop, window_id: str, widget_id: str) -> tuple[MockWindow, int, Placed]:
    window = _window(desktop, window_id)
    for index, placed in enumerate(window.placed):
        if placed.widget.id == widget_id:
            return window, index, placed
    raise _Lost


def _window(desktop: VirtualDesktop, window_id: str) -> MockWindow:
    window = desktop.window(window_id)
    if window is None:
        raise _Lost
    return window


def _bring(desktop: VirtualDesktop, window: MockWindow, index: int) -> Steps | None:
    """Return the step that brings a widget into sight, or None if all of it is."""
    whole = window.placed[index].box.moved(0, -window.scroll)
    view = desktop.layout.viewport(window)
    fits = whole.height <= view.height
    if fits and (whole.top < view.top or whole.bottom > view.bottom):
        notches = NOTCHES if whole.top < view.top else -NOTCHES
        at = _scroll_point(desktop, window)
        return (act.Move(*at), act.Scroll(0, notches))
    shown = desktop.shown_box(window, window.placed[index])
    if desktop.target(*shown.center) != Target("widget", window, index):
        return _raise(desktop, window)
    return None


def _scroll_point(desktop: VirtualDesktop, window: MockWindow) -> tuple[int, int]:
    """Return a pixel of a window's content where the wheel turns the content and not a list."""
    view = desktop.layout.viewport(window)
    lists = [box for _, placed, box in desktop.shown_widgets(window) if isinstance(placed.widget, ListBox)]
    unit = desktop.layout.unit
    for y in range(view.bottom - 1 - unit // 2, view.top, -max(1, unit // 4)):
        point = (view.center[0], y)
        if not any(box.top - unit // 2 <= y < box.bottom + unit // 2 for box in lists):
            return point
    return view.center


def _raise(desktop: VirtualDesktop, window: MockWindow) -> Steps:
    return _click_part(desktop, window, desktop.layout.title(window), Target("title", window))


def _click_part(desktop: VirtualDesktop, window: MockWindow, box: Box, target: Target) -> Steps:
    if desktop.target(*box.center) == target or target.part == "title":
        return (act.Click(*box.center),)
    return _raise(desktop, window)


def _press(desktop: VirtualDesktop, window_id: str, widget_id: str) -> Steps:
    window, index, placed = _find(desktop, window_id, widget_id)
    return _bring(desktop, window, index) or (act.Click(*desktop.shown_box(window, placed).center),)


def _write(desktop: VirtualDesktop, window_id: str, widget_id: str, text: str) -> Steps:
    window, index, placed = _find(desktop, window_id, widget_id)
    field = placed.widget
    assert isinstance(field, TextField)
    focused = window is desktop.top and window.focus == index
    if not focused:
        return _bring(desktop, window, index) or (act.Click(*desktop.shown_box(window, placed).center),)
    if field.text and not field.selected:
        return (act.Hotkey(("ctrl", "a")),)
    return (act.TypeText(text),)


def _select(desktop: VirtualDesktop, window_id: str, widget_id: str, item: str) -> Steps:
    window, index, placed = _find(desktop, window_id, widget_id)
    step = _bring(desktop, window, index)
    if step is not None:
        return step
    box, widget = desktop.shown_box(window, placed), placed.widget
    assert isinstance(widget, ListBox)
    row = widget.items.index(item) - widget.scroll
    if not 0 <= row < widget.visible:
        return (act.Move(*box.center), act.Scroll(0, NOTCHES if row < 0 else -NOTCHES))
    high = desktop.layout.item_height(placed.box, widget.visible)
    top = placed.box.top - window.scroll + row * high
    return (act.Click(box.center[0], top + high // 2),)


def _slide(desktop: VirtualDesktop, window_id: str, widget_id: str, value: int) -> Steps:
    window, index, placed = _find(desktop, window_id, widget_id)
    step = _bring(desktop, window, index)
    if step is not None:
        return step
    slider = placed.widget
    assert isinstance(slider, Slider)
    stops = desktop.layout.slider_stops(placed.box, slider.maximum - slider.minimum + 1)
    y = desktop.shown_box(window, placed).center[1]
    return (act.Move(stops[slider.at - slider.minimum], y), act.Drag(stops[value - slider.minimum], y))


def _drop(desktop: VirtualDesktop, window_id: str, widget_id: str, aim: str) -> Steps:
    window, index, placed = _find(desktop, window_id, widget_id)
    _, bin_index, bin_placed = _find(desktop, window_id, aim)
    step = _bring(desktop, window, index) or _bring(desktop, window, bin_index)
    if step is not None:
        return step
    start = desktop.shown_box(window, placed).center
    return (act.Move(*start), act.Drag(*desktop.shown_box(window, bin_placed).center))


def _choose(desktop: VirtualDesktop, window_id: str, title: str, item: str) -> Steps:
    window = _window(desktop, window_id)
    index = next(i for i, menu in enumerate(window.menus) if menu.title == title)
    if desktop.open_menu is not None and desktop.open_menu[:2] == (window_id, index):
        at = window.menus[index].items.index(item)
        return (act.Click(*desktop.layout.menu_items(window, index)[at].center),)
    if desktop.open_menu is not None:
        return (act.Press("esc"),)
    box = desktop.layout.menu_titles(window)[index]
    return _click_part(desktop, window, box, Target("menu_title", window, index))
