"""The desktop's state, and how a task's ``config`` sets it up.

``mock_background`` {color: [red, green, blue]}, ``mock_window`` {a window's spec} opens a window,
``mock_stash`` {a window's spec} keeps one for a button to open, and ``mock_interrupt`` {after, window} opens a dialog
after that many turns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from dartsim.core.errors import TaskFileError
from dartsim.core.types import Task
from dartsim.envs.mock.geometry import Box
from dartsim.envs.mock.layout import ScreenLayout
from dartsim.envs.mock.widgets import Bin, MockWindow, Placed, Widget, make_window


class Target(NamedTuple):
    """What is under a pixel.

    ``part`` is ``widget``, ``title``, ``close``, ``menu_title``, ``menu_item``, ``content`` or ``desktop``;
    ``number`` counts menus, items of a menu, or the page's widgets.
    """

    part: str
    window: MockWindow | None = None
    number: int = -1


@dataclass(slots=True, eq=False)
class Grip:
    """What the pressed left button holds."""

    target: Target
    x: int
    y: int


@dataclass(slots=True, eq=False)
class Interrupt:
    """A dialog that opens after ``after`` actions."""

    after: int
    spec: Mapping[str, Any]


@dataclass(slots=True, eq=False)
class VirtualDesktop:
    """All state of a desktop."""

    layout: ScreenLayout
    background: tuple[int, int, int] = (200, 208, 216)
    windows: list[MockWindow] = field(default_factory=list)
    stash: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    interrupts: list[Interrupt] = field(default_factory=list)
    x: int = 0
    y: int = 0
    open_menu: tuple[str, int, int] | None = None
    held: set[str] = field(default_factory=set)
    grip: Grip | None = None
    clipboard: str = ""
    actions: int = 0
    closed: list[str] = field(default_factory=list)
    choices: list[str] = field(default_factory=list)
    pressed: list[str] = field(default_factory=list)
    submitted: dict[str, dict[str, Any]] = field(default_factory=dict)

    def copied(self, layout: ScreenLayout) -> VirtualDesktop:
        """Return a copy on another screen of the same size, which shares nothing that can change."""
        return deepcopy(self, {id(self.layout): layout})

    def open(self, spec: Mapping[str, Any]) -> MockWindow:
        """Open a window on top of the others.

        Raises:
            TaskFileError: If the spec is bad, or a window of that id is open.
        """
        window = make_window(spec)
        if self.window(window.id) is not None:
            raise TaskFileError(f"a window {window.id!r} is open already; ids must be unique")
        self.layout.place_window(window)
        self.windows.append(window)
        self.open_menu = None
        return window

    def window(self, window_id: str) -> MockWindow | None:
        return next((window for window in self.windows if window.id == window_id), None)

    @property
    def top(self) -> MockWindow | None:
        """The window that gets the keys."""
        return self.windows[-1] if self.windows else None

    @property
    def modal(self) -> bool:
        """Whether only the top window reacts."""
        return bool(self.windows) and self.windows[-1].modal

    def raise_window(self, window: MockWindow) -> None:
        """Put a window on top, unless the top one is modal."""
        if not self.modal and self.windows[-1] is not window:
            self.windows.remove(window)
            self.windows.append(window)

    def close(self, window: MockWindow) -> None:
        self.windows.remove(window)
        self.closed.append(window.id)
        self.open_menu = None
        self.grip = None

    def move_window(self, window: MockWindow, dx: int, dy: int) -> None:
        """Move a window, whose title bar stays on the screen."""
        layout, box = self.layout, window.box
        reach = 2 * layout.unit
        dx = min(max(dx, reach - box.right), layout.width - reach - box.left)
        dy = min(max(dy, -box.top), layout.height - layout.unit - box.top)
        window.box = box.moved(dx, dy)
        layout.place_page(window)

    def shown_box(self, window: MockWindow, placed: Placed) -> Box:
        """Return the part of a widget that its window shows now; may be empty."""
        return placed.box.moved(0, -window.scroll).meet(self.layout.viewport(window))

    def shown_widgets(self, window: MockWindow) -> Iterator[tuple[int, Placed, Box]]:
        view_left, view_top, view_right, view_bottom = self.layout.viewport(window)
        scroll = window.scroll
        for index, placed in enumerate(window.placed):
            if placed.widget.kind == "space" or placed.widget.hidden:
                continue
            left, top, right, bottom = placed.box
            left = left if left > view_left else view_left
            right = right if right < view_right else view_right
            top = top - scroll if top - scroll > view_top else view_top
            bottom = bottom - scroll if bottom - scroll < view_bottom else view_bottom
            if left < right and top < bottom:
                yield index, placed, Box(left, top, right, bottom)

    def scroll_into_view(self, window: MockWindow, index: int) -> None:
        """Scroll a window's content so that a widget is visible."""
        view, box = self.layout.viewport(window), window.placed[index].box
        lowest = box.top - view.top - self.layout.gap
        highest = box.bottom - view.bottom + self.layout.gap
        window.scroll = min(max(window.scroll, highest), max(lowest, 0))
        self.layout.keep_scroll(window)

    def target(self, x: int, y: int) -> Target:
        if self.open_menu is not None:
            item = self._in_open_menu(x, y)
            if item is not None:
                return item
        for window in reversed(self.windows):
            if window.box.holds(x, y):
                return self._in_window(window, x, y)
        return Target("desktop")

    def _in_open_menu(self, x: int, y: int) -> Target | None:
        assert self.open_menu is not None
        window_id, menu, _ = self.open_menu
        window = self.window(window_id)
        assert window is not None
        for index, box in enumerate(self.layout.menu_items(window, menu)):
            if box.holds(x, y):
                return Target("menu_item", window, index)
        return None

    def _in_window(self, window: MockWindow, x: int, y: int) -> Target:
        layout = self.layout
        if layout.close(window).holds(x, y):
            return Target("close", window)
        if layout.title(window).holds(x, y):
            return Target("title", window)
        if layout.menu_bar(window).holds(x, y):
            for index, box in enumerate(layout.menu_titles(window)):
                if box.holds(x, y):
                    return Target("menu_title", window, index)
        for index, _, box in self.shown_widgets(window):
            if box.holds(x, y):
                return Target("widget", window, index)
        return Target("content", window)

    def bin_at(self, x: int, y: int) -> Bin | None:
        target = self.target(x, y)
        if target.part == "widget" and target.window is not None:
            widget = target.window.placed[target.number].widget
            return widget if isinstance(widget, Bin) else None
        return None

    def find(self, window_id: str, widget_id: str) -> Widget | None:
        window = self.window(window_id)
        return None if window is None else window.widget(widget_id)


def set_up(layout: ScreenLayout, task: Task) -> VirtualDesktop:
    """Return the desktop on which a task begins.

    Raises:
        TaskFileError: If a step is unknown, or bad.
    """
    desktop = VirtualDesktop(layout)
    # The pointer rests in the lower right corner, where it hides little.
    desktop.x, desktop.y = layout.width - 1 - layout.unit // 2, layout.height - 1 - layout.unit // 2
    for step in task.spec.get("config", ()):
        kind, parameters = step.get("type"), step.get("parameters", {})
        try:
            _take(desktop, kind, parameters)
        except (KeyError, ValueError, TypeError) as exc:
            raise TaskFileError(f"task {task.id}: step {kind!r} is bad: {exc!r}") from exc
    return desktop


def _take(desktop: VirtualDesktop, kind: str, parameters: Mapping[str, Any]) -> None:
    match kind:
        case "mock_background":
            red, green, blue = (int(part) for part in parameters["color"])
            desktop.background = (red, green, blue)
        case "mock_window":
            desktop.open(parameters)
        case "mock_stash":
            desktop.stash[parameters["id"]] = parameters
        case "mock_interrupt":
            desktop.interrupts.append(Interrupt(int(parameters["after"]), parameters["window"]))
        case _:
            raise TaskFileError(
                f"found a config step of type {kind!r}; the mock desktop knows mock_background, "
                f"mock_window, mock_stash and mock_interrupt"
            )
