"""What evaluators may know of a desktop: plain values, without pixels and without the desktop itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dartsim.envs.mock.commands import values_of
from dartsim.envs.mock.desktop import Desktop


@dataclass(frozen=True, slots=True)
class State:
    """A desktop's state as an evaluator reads it.

    Attributes:
        values: Of the widgets of open windows, by ``window.widget``.
        windows: Ids of open windows, bottom to top.
        closed: Ids of windows in the order they were closed.
        choices: Menu items chosen, as ``Menu > Item``.
        pressed: Buttons pressed, as ``window.widget``.
        submitted: Values of the widgets of submitted windows, by window id.
        clipboard: Text that was copied.
    """

    values: Mapping[str, Any]
    windows: tuple[str, ...]
    closed: tuple[str, ...]
    choices: tuple[str, ...]
    pressed: tuple[str, ...]
    submitted: Mapping[str, Mapping[str, Any]]
    clipboard: str


def read_state(desktop: Desktop) -> State:
    """Return a desktop's state."""
    return State(
        values={
            f"{window.id}.{name}": value for window in desktop.windows for name, value in values_of(window).items()
        },
        windows=tuple(window.id for window in desktop.windows),
        closed=tuple(desktop.closed),
        choices=tuple(desktop.choices),
        pressed=tuple(desktop.pressed),
        submitted={name: dict(values) for name, values in desktop.submitted.items()},
        clipboard=desktop.clipboard,
    )
