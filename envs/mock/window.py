"""Windows: a title, a menu bar, pages of widgets, and how far its content is scrolled."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from dartsim.core.errors import TaskFileError
from dartsim.envs.mock.geometry import NOWHERE, Box
from dartsim.envs.mock.widgets import Space, Widget, make_widget

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
    """A window.

    Attributes:
        id: Unique on the desktop.
        title: Shown in its title bar.
        pages: Pages of rows of widgets; one page shows at a time.
        menus: Its menu bar; none without menus.
        place: Where it opens, shares of the screen: left, top, width, height.
        modal: Whether windows below wait for it.
        bare: Without title bar, over the whole screen.
        fill: Whether rows share the content's height, instead of standing below each other.
        default: Id of the button that the enter key presses.
        cancel: Id of the button that the escape key presses.
        box: On the screen.
        page: Index of the page that shows.
        scroll: Pixels its content is moved up.
        focus: Index of the focused widget in the page's order, or -1.
        placed: The page's layout, filled in by ``layout``.
        content_height: Of the page, pixels.
    """

    id: str
    title: str = ""
    pages: list[Page] = field(default_factory=list)
    menus: list[Menu] = field(default_factory=list)
    place: tuple[float, float, float, float] = (0.08, 0.08, 0.84, 0.84)
    modal: bool = False
    bare: bool = False
    fill: bool = False
    default: str = ""
    cancel: str = ""
    box: Box = NOWHERE
    page: int = 0
    scroll: int = 0
    focus: int = -1
    placed: list[Placed] = field(default_factory=list)
    content_height: int = 0

    def widgets(self) -> Iterator[Widget]:
        """Yield all widgets of all pages."""
        for page in self.pages:
            for row in page:
                yield from row

    def widget(self, widget_id: str) -> Widget | None:
        """Return a widget of any page, or None."""
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
        window = MockWindow(pages=pages, menus=menus, **values)
    except (TypeError, ValueError) as exc:
        raise TaskFileError(f"found a bad window {spec.get('id')!r}: {exc}") from None
    names = [widget.id for widget in window.widgets() if not isinstance(widget, Space)]
    if len(set(names)) != len(names):
        raise TaskFileError(f"window {window.id!r}: two widgets have the same id")
    return window
