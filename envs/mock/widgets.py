"""Widgets, windows and their states; both are described by JSON objects, their *specs*.

A widget's spec has ``kind`` and ``id``, and may have ``text``, ``color``, ``enabled``, ``command`` (what a button
does, see ``commands``), ``label`` (written to the left), and ``inset`` ([left, top, right, bottom], shares of
its cell that stay empty).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from dartsim.core.errors import TaskFileError
from dartsim.envs.mock.colors import color_of
from dartsim.envs.mock.geometry import NOWHERE, Box

MAX_TEXT = 500
"""Characters that a text field holds."""


@dataclass(slots=True, eq=False)
class Widget:
    """The base of all widgets."""

    id: str
    text: str = ""
    label: str = ""
    color: str = ""
    enabled: bool = True
    hidden: bool = False
    command: str = ""
    inset: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 0.0)

    kind: ClassVar[str] = ""
    role: ClassVar[str] = ""
    value_of: ClassVar[str] = ""
    """Attribute that evaluators read."""
    focusable: ClassVar[bool] = True
    rows: ClassVar[float] = 1.0

    @property
    def value(self) -> Any:
        """The value that evaluators read."""
        return getattr(self, self.value_of) if self.value_of else None

    @property
    def height_rows(self) -> float:
        return self.rows


@dataclass(slots=True, eq=False)
class Label(Widget):
    """Words."""

    kind: ClassVar[str] = "label"
    role: ClassVar[str] = "label"
    focusable: ClassVar[bool] = False
    value_of: ClassVar[str] = "text"


@dataclass(slots=True, eq=False)
class Button(Widget):
    """A button; its value counts how often it was pressed."""

    presses: int = 0

    kind: ClassVar[str] = "button"
    role: ClassVar[str] = "push-button"
    value_of: ClassVar[str] = "presses"


@dataclass(slots=True, eq=False)
class CheckBox(Widget):
    """A box that is checked or not."""

    checked: bool = False

    kind: ClassVar[str] = "check_box"
    role: ClassVar[str] = "check-box"
    value_of: ClassVar[str] = "checked"


@dataclass(slots=True, eq=False)
class TextField(Widget):
    """A line of text with a caret; all of it may be selected."""

    caret: int = 0
    selected: bool = False

    kind: ClassVar[str] = "text_field"
    role: ClassVar[str] = "text"
    value_of: ClassVar[str] = "text"

    def first_visible(self, columns: int) -> int:
        """Return the index of the first visible character in so many columns; the caret is visible."""
        return max(0, self.caret - columns + 1)

    def insert(self, text: str) -> None:
        """Insert at the caret, or replace the selection."""
        if self.selected:
            self.clear()
        room = MAX_TEXT - len(self.text)
        text = text[:room]
        self.text = self.text[: self.caret] + text + self.text[self.caret :]
        self.caret += len(text)

    def clear(self) -> None:
        self.text, self.caret, self.selected = "", 0, False

    def erase(self, backwards: bool) -> None:
        """Remove the selection, or the character before or after the caret."""
        if self.selected:
            self.clear()
            return
        at = self.caret - 1 if backwards else self.caret
        if 0 <= at < len(self.text):
            self.text = self.text[:at] + self.text[at + 1 :]
            self.caret = at

    def place(self, caret: int) -> None:
        """Set the caret and drop the selection."""
        self.caret, self.selected = min(max(caret, 0), len(self.text)), False


@dataclass(slots=True, eq=False)
class ListBox(Widget):
    """Items in rows, of which one may be selected; scrolls."""

    items: list[str] = field(default_factory=list)
    selected: int = -1
    scroll: int = 0
    visible: int = 4

    kind: ClassVar[str] = "list"
    role: ClassVar[str] = "list"

    @property
    def value(self) -> Any:
        """The selected item, or None."""
        return self.items[self.selected] if self.selected >= 0 else None

    @property
    def height_rows(self) -> float:
        """Its visible rows."""
        return float(self.visible)

    @property
    def max_scroll(self) -> int:
        """Largest number of items above the first visible one."""
        return max(0, len(self.items) - self.visible)

    def scroll_by(self, rows: int) -> bool:
        """Scroll down by rows and return whether that changed anything."""
        before = self.scroll
        self.scroll = min(max(before + rows, 0), self.max_scroll)
        return self.scroll != before

    def select(self, index: int) -> None:
        """Select an item and scroll it into view."""
        self.selected = min(max(index, 0), len(self.items) - 1)
        self.scroll = min(max(self.scroll, self.selected - self.visible + 1), max(self.selected, 0))


@dataclass(slots=True, eq=False)
class Slider(Widget):
    """A handle on a line with equally spaced stops."""

    minimum: int = 0
    maximum: int = 4
    at: int = 0

    kind: ClassVar[str] = "slider"
    role: ClassVar[str] = "slider"
    value_of: ClassVar[str] = "at"

    def set(self, value: int) -> None:
        self.at = min(max(value, self.minimum), self.maximum)


@dataclass(slots=True, eq=False)
class Chip(Widget):
    """Something to drag; its value is the id of the bin it lies in, or None."""

    bin: str | None = None

    kind: ClassVar[str] = "chip"
    role: ClassVar[str] = "icon"
    value_of: ClassVar[str] = "bin"


@dataclass(slots=True, eq=False)
class Bin(Widget):
    """Somewhere to drop chips."""

    kind: ClassVar[str] = "bin"
    role: ClassVar[str] = "panel"
    focusable: ClassVar[bool] = False
    rows: ClassVar[float] = 1.5


@dataclass(slots=True, eq=False)
class Space(Widget):
    """An empty cell."""

    kind: ClassVar[str] = "space"
    role: ClassVar[str] = ""
    focusable: ClassVar[bool] = False


KINDS: dict[str, type[Widget]] = {
    each.kind: each for each in (Label, Button, CheckBox, TextField, ListBox, Slider, Chip, Bin, Space)
}


def make_widget(spec: Mapping[str, Any]) -> Widget:
    """Return a widget from its spec.

    Raises:
        TaskFileError: If the kind is unknown, or a field is.
    """
    values = dict(spec)
    kind = values.pop("kind", None)
    if kind not in KINDS:
        raise TaskFileError(f"found a widget of kind {kind!r}, wanted one of {', '.join(KINDS)}")
    try:
        if "items" in values:
            values["items"] = list(values["items"])
        if "inset" in values:
            values["inset"] = tuple(values["inset"])
        if values.get("color"):
            color_of(values["color"])
        widget = KINDS[kind](**values)
    except (TypeError, ValueError) as exc:
        raise TaskFileError(f"found a bad widget of kind {kind!r}: {exc}") from None
    if isinstance(widget, TextField):
        widget.caret = len(widget.text)
    return widget


Row = list[Widget]
Page = list[Row]


@dataclass(slots=True, eq=False)
class Menu:
    """One menu of a menu bar; an item whose name starts with ``-`` is disabled."""

    title: str
    items: list[str]


@dataclass(slots=True, eq=False)
class Placed:
    """A widget and where it lies on the screen, before scrolling and clipping."""

    widget: Widget
    box: Box
    label: Box


@dataclass(slots=True, eq=False)
class MockWindow:
    """A window."""

    id: str
    title: str = ""
    pages: list[Page] = field(default_factory=list)
    menus: list[Menu] = field(default_factory=list)
    place: tuple[float, float, float, float] = (0.08, 0.08, 0.84, 0.84)
    modal: bool = False
    bare: bool = False
    fill: bool = False
    color: str = ""
    default: str = ""
    cancel: str = ""
    box: Box = NOWHERE
    page: int = 0
    scroll: int = 0
    focus: int = -1
    placed: list[Placed] = field(default_factory=list)
    content_height: int = 0

    def widgets(self) -> Iterator[Widget]:
        for page in self.pages:
            for row in page:
                yield from row

    def widget(self, widget_id: str) -> Widget | None:
        return next((widget for widget in self.widgets() if widget.id == widget_id), None)

    @property
    def focused(self) -> Widget | None:
        """The widget that gets the keys."""
        return self.placed[self.focus].widget if 0 <= self.focus < len(self.placed) else None


def make_window(spec: Mapping[str, Any]) -> MockWindow:
    """Return a window from its spec: a JSON object with the first attributes of ``MockWindow``.

    Raises:
        TaskFileError: If the spec is bad, or two widgets have the same id.
    """
    values = dict(spec)
    try:
        pages = [[[make_widget(cell) for cell in row] for row in page] for page in values.pop("pages", [[]])]
        menus = [Menu(title, list(items)) for title, items in values.pop("menus", [])]
        if "place" in values:
            values["place"] = tuple(values["place"])
        if values.get("color"):
            color_of(values["color"])
        window = MockWindow(pages=pages, menus=menus, **values)
    except (TypeError, ValueError) as exc:
        raise TaskFileError(f"found a bad window {spec.get('id')!r}: {exc}") from None
    names = [widget.id for widget in window.widgets() if not isinstance(widget, Space)]
    if len(set(names)) != len(names):
        raise TaskFileError(f"window {window.id!r}: two widgets have the same id")
    return window
