"""Setting a desktop up for a task: the steps of its ``config``.

``mock_background`` {color: [red, green, blue]}, ``mock_window`` {a window's spec} opens a window,
``mock_stash`` {a window's spec} keeps one for a button to open, and ``mock_interrupt`` {after, window} lets a
dialog open by itself after so many turns.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dartsim.core.errors import TaskFileError
from dartsim.core.types import Task
from dartsim.envs.mock.desktop import Desktop, Interrupt
from dartsim.envs.mock.layout import Layout


def set_up(layout: Layout, task: Task) -> Desktop:
    """Return the desktop on which a task begins.

    Raises:
        TaskFileError: If a step is unknown, or bad.
    """
    desktop = Desktop(layout)
    # The pointer rests in the lower right corner, where it hides little.
    desktop.x, desktop.y = layout.width - 1 - layout.unit // 2, layout.height - 1 - layout.unit // 2
    for step in task.spec.get("config", ()):
        kind, parameters = step.get("type"), step.get("parameters", {})
        try:
            _take(desktop, kind, parameters)
        except (KeyError, ValueError, TypeError) as exc:
            raise TaskFileError(f"task {task.id}: step {kind!r} is bad: {exc!r}") from exc
    return desktop


def _take(desktop: Desktop, kind: str, parameters: Mapping[str, Any]) -> None:
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
