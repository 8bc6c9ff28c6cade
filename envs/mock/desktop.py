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
from dartsim.envs.mock.widgets import MockWindow, PlacedWidget, make_window


class Target(NamedTuple):
    """What is under a pixel.

    ``part`` is ``widget``, ``title``, ``close``, ``content`` or ``desktop``; ``number`` counts the page's widgets.
    """

    part: str
    window: MockWindow | None = None
    number: int = -1


@dataclass(slots=True, eq=False)
class Grip:
    """What the pressed left button is holding."""

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
    grip: Grip | None = None
    actions: int = 0
    pressed: list[str] = field(default_factory=list)

    def copy(self, layout: ScreenLayout) -> VirtualDesktop:
        """Return a copy on another screen of the same size, without shared mutable parts."""
        return deepcopy(self, {id(self.layout): layout})

    def open(self, spec: Mapping[str, Any]) -> MockWindow:
        """Open a window on top of the others.

        Raises:
            TaskFileError: If the spec is invalid, or a window with that id is open.
        """
        window = make_window(spec)
        if self.window(window.id) is not None:
            raise TaskFileError(f"a window {window.id!r} is open already; ids must be unique")
        self.layout.place_window(window)
        self.windows.append(window)
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
        self.grip = None

    def move_window(self, window: MockWindow, dx: int, dy: int) -> None:
        """Move a window, whose title bar stays on the screen."""
        layout, box = self.layout, window.box
        reach = 2 * layout.unit
        dx = min(max(dx, reach - box.right), layout.width - reach - box.left)
        dy = min(max(dy, -box.top), layout.height - layout.unit - box.top)
        window.box = box.moved(dx, dy)
        layout.place_page(window)

    def shown_widgets(self, window: MockWindow) -> Iterator[tuple[int, PlacedWidget, Box]]:
        """Yield each widget of the page with its number and the part of its box that is on the screen."""
        view_left, view_top, view_right, view_bottom = self.layout.viewport(window)
        for index, placed in enumerate(window.placed):
            if placed.widget.kind == "space":
                continue
            left, top, right, bottom = placed.box
            left = left if left > view_left else view_left
            right = right if right < view_right else view_right
            top = top if top > view_top else view_top
            bottom = bottom if bottom < view_bottom else view_bottom
            if left < right and top < bottom:
                yield index, placed, Box(left, top, right, bottom)

    def target(self, x: int, y: int) -> Target:
        for window in reversed(self.windows):
            if window.box.holds(x, y):
                return self._in_window(window, x, y)
        return Target("desktop")

    def _in_window(self, window: MockWindow, x: int, y: int) -> Target:
        layout = self.layout
        if layout.close(window).holds(x, y):
            return Target("close", window)
        if layout.title(window).holds(x, y):
            return Target("title", window)
        for index, _, box in self.shown_widgets(window):
            if box.holds(x, y):
                return Target("widget", window, index)
        return Target("content", window)


def set_up(layout: ScreenLayout, task: Task) -> VirtualDesktop:
    """Return the desktop on which a task begins.

    Raises:
        TaskFileError: If a step is unknown or invalid.
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
