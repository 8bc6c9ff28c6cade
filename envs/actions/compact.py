r"""A short grammar for small models: one line per action, positions as cells of a coarse grid.

    click 12 34        double 12 34       right 12 34       move 12 34
    drag 1 2 3 4       scroll down        scroll up 12 34
    type hello         key enter          key ctrl+a        wait    done    fail

A position is column and row of a cell, counted from 0, and means the cell's center. By default cells are half
as high and wide as the mock desktop's smallest widget, so that each widget contains a cell's center. In typed
text, ``\n`` is the enter key and ``\\`` a backslash.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from dartsim.envs.actions import model as act
from dartsim.envs.actions.grammar import (
    ActionGrammar,
    Inexpressible,
    MalformedAction,
    as_text,
    can_type,
    check_limits,
    hotkey_names,
    key_name,
    with_starts,
)

SCROLL_NOTCHES = 5
_WORDS: dict[str, act.Action] = {"wait": act.Wait(), "done": act.Done(), "fail": act.Fail()}
_CLICKS = {"click": ("left", 1), "double": ("left", 2), "right": ("right", 1)}
_CLICK_WORDS = {meant: word for word, meant in _CLICKS.items()}
_DIRECTIONS = {
    "up": act.Scroll(0, SCROLL_NOTCHES),
    "down": act.Scroll(0, -SCROLL_NOTCHES),
    "left": act.Scroll(-SCROLL_NOTCHES, 0),
    "right": act.Scroll(SCROLL_NOTCHES, 0),
}
_CELL = re.compile(r"0|[1-9][0-9]{0,4}")
_ESCAPE = re.compile(r"\\(.?)", re.DOTALL)


@dataclass(frozen=True)
class Compact(ActionGrammar):
    """The grammar; see the module."""

    columns: int = 16
    rows: int = 16

    name: ClassVar[str] = "compact"

    def __post_init__(self) -> None:
        if not (1 <= self.columns <= self.width and 1 <= self.rows <= self.height):
            raise ValueError(
                f"a grid has 1 cell to 1 a pixel on each side, got {self.columns} × {self.rows} cells "
                f"on {self.width} × {self.height} pixels"
            )

    def parse(self, text: str) -> tuple[act.Action, ...]:
        """Read one action per line."""
        lines = as_text(text, self.name).strip("\n").split("\n")
        actions: list[act.Action] = []
        for line in lines:
            actions += self._line(line)
        return check_limits(actions)

    def format(self, actions: Sequence[act.Action]) -> str:
        """Write one action per line; a ``Move`` before a ``Drag`` or a ``Scroll`` becomes its start."""
        lines = [self._format(action, start) for action, start in with_starts(actions)]
        if not lines:
            raise Inexpressible("compact cannot write an empty list of actions")
        return "\n".join(lines)

    def snap(self, x: int, y: int) -> tuple[int, int]:
        """Return the center of the cell that contains a pixel."""
        return self._pixel(*self._cell_of(x, y))

    def _line(self, line: str) -> list[act.Action]:
        word, _, rest = line.partition(" ")
        if word == "type" and rest:
            return [act.TypeText(_unescape(rest))]
        if line.strip().lower() in _WORDS:
            return [_WORDS[line.strip().lower()]]
        if word == "key":
            return [_key(rest)]
        parts = rest.split()
        if word in _CLICKS:
            return [act.Click(*self._place(parts), *_CLICKS[word])]
        if word == "move":
            return [act.Move(*self._place(parts))]
        if word == "drag":
            return [act.Move(*self._place(parts[:2])), act.Drag(*self._place(parts[2:]))]
        if word == "scroll" and parts and parts[0] in _DIRECTIONS:
            start = [act.Move(*self._place(parts[1:]))] if len(parts) > 1 else []
            return [*start, _DIRECTIONS[parts[0]]]
        raise MalformedAction(f"found {line[:60]!r}, wanted an action such as 'click 3 4' or 'type hello'")

    def _place(self, parts: list[str]) -> tuple[int, int]:
        if len(parts) != 2 or not all(_CELL.fullmatch(part) for part in parts):
            raise MalformedAction(f"wanted a column and a row, found {' '.join(parts)[:60]!r}")
        column, row = map(int, parts)
        if column >= self.columns or row >= self.rows:
            raise MalformedAction(f"found cell {column} {row}, the grid has {self.columns} × {self.rows}")
        return self._pixel(column, row)

    def _pixel(self, column: int, row: int) -> tuple[int, int]:
        return (2 * column + 1) * self.width // (2 * self.columns), (2 * row + 1) * self.height // (2 * self.rows)

    def _cell_of(self, x: int, y: int) -> tuple[int, int]:
        column = min(max(x, 0), self.width - 1) * self.columns // self.width
        return column, min(max(y, 0), self.height - 1) * self.rows // self.height

    def _cell(self, x: int, y: int) -> str:
        return "{} {}".format(*self._cell_of(x, y))

    def _format(self, action: act.Action, start: act.Move | None) -> str:
        match action:
            case act.Move(x, y):
                return f"move {self._cell(x, y)}"
            case act.Click(int() as x, int() as y, which, count) if (which, count) in _CLICK_WORDS:
                return f"{_CLICK_WORDS[which, count]} {self._cell(x, y)}"
            case act.Drag(x, y, "left") if start is not None:
                return f"drag {self._cell(start.x, start.y)} {self._cell(x, y)}"
            case act.Scroll() if action in _DIRECTIONS.values():
                word = next(word for word, meant in _DIRECTIONS.items() if meant == action)
                return f"scroll {word}" + ("" if start is None else f" {self._cell(start.x, start.y)}")
            case act.TypeText(text) if text and can_type(text):
                return "type " + text.replace("\\", "\\\\").replace("\n", "\\n")
            case act.Press(key):
                return f"key {key}"
            case act.Hotkey(keys) if len(keys) > 1 and "+" not in keys:
                return f"key {'+'.join(keys)}"
            case act.Wait() | act.Done() | act.Fail():
                return next(word for word, meant in _WORDS.items() if meant == action)
        raise Inexpressible(f"compact cannot write {action}")


def _key(text: str) -> act.Action:
    if text != "+" and "+" in text:
        return act.Hotkey(hotkey_names(text.split("+")))
    return act.Press(key_name(text))


def _unescape(text: str) -> str:
    def meant(escape: re.Match[str]) -> str:
        if escape[1] not in ("n", "\\"):
            raise MalformedAction(f"found {escape[0]!r} in what is typed; a backslash is written twice")
        return "\n" if escape[1] == "n" else "\\"

    return _ESCAPE.sub(meant, text)
