"""Widgets, windows and their states; both are described by JSON objects, their *specs*.

A widget's spec has ``kind`` and ``id``, and may have ``text``, ``color``, ``command`` (what a button does, see
``perform``), and ``inset`` ([left, top, right, bottom], shares of its cell that stay empty).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from dartsim.core.errors import TaskFileError
from dartsim.envs.mock.colors import color_of
from dartsim.envs.mock.geometry import NOWHERE, Box


@dataclass(slots=True, eq=False)
class Widget:
    """The base of all widgets."""

    id: str
    text: str = ""
    color: str = ""
    command: str = ""
    inset: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 0.0)

    kind: ClassVar[str] = ""
    role: ClassVar[str] = ""


@dataclass(slots=True, eq=False)
class Label(Widget):
    """Text."""

    kind: ClassVar[str] = "label"
    role: ClassVar[str] = "label"


@dataclass(slots=True, eq=False)
class Button(Widget):
    """A button."""

    kind: ClassVar[str] = "button"
    role: ClassVar[str] = "push-button"


@dataclass(slots=True, eq=False)
class Space(Widget):
    """An empty cell."""

    kind: ClassVar[str] = "space"


KINDS: dict[str, type[Widget]] = {each.kind: each for each in (Label, Button, Space)}


def make_widget(spec: Mapping[str, Any]) -> Widget:
    """Return a widget from its spec.

    Raises:
        TaskFileError: If the kind or a field is unknown.
    """
    values = dict(spec)
    kind = values.pop("kind", None)
    if kind not in KINDS:
        raise TaskFileError(f"found a widget of kind {kind!r}, wanted one of {', '.join(KINDS)}")
    try:
        if "inset" in values:
            values["inset"] = tuple(values["inset"])
        if values.get("color"):
            color_of(values["color"])
        return KINDS[kind](**values)
    except (TypeError, ValueError) as exc:
        raise TaskFileError(f"found a bad widget of kind {kind!r}: {exc}") from None


Row = list[Widget]
Page = list[Row]


@dataclass(slots=True, eq=False)
class PlacedWidget:
    """A widget and its box on the screen."""

    widget: Widget
    box: Box


@dataclass(slots=True, eq=False)
class MockWindow:
    """A window; its page fills it."""

    id: str
    title: str = ""
    pages: list[Page] = field(default_factory=list)
    place: tuple[float, float, float, float] = (0.08, 0.08, 0.84, 0.84)
    modal: bool = False
    bare: bool = False
    color: str = ""
    default: str = ""
    box: Box = NOWHERE
    page: int = 0
    focus: int = -1
    placed: list[PlacedWidget] = field(default_factory=list)

    def widgets(self) -> Iterator[Widget]:
        for page in self.pages:
            for row in page:
                yield from row


def make_window(spec: Mapping[str, Any]) -> MockWindow:
    """Return a window from its spec: a JSON object with the first attributes of ``MockWindow``.

    Raises:
        TaskFileError: If the spec is invalid, or two widgets have the same id.
    """
    values = dict(spec)
    try:
        pages = [[[make_widget(cell) for cell in row] for row in page] for page in values.pop("pages", [[]])]
        if "place" in values:
            values["place"] = tuple(values["place"])
        if values.get("color"):
            color_of(values["color"])
        window = MockWindow(pages=pages, **values)
    except (TypeError, ValueError) as exc:
        raise TaskFileError(f"found a bad window {spec.get('id')!r}: {exc}") from None
    names = [widget.id for widget in window.widgets() if not isinstance(widget, Space)]
    if len(set(names)) != len(names):
        raise TaskFileError(f"window {window.id!r}: two widgets have the same id")
    return window
