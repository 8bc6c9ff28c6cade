"""UI-TARS: ``Thought: … Action: click(start_box='(120,340)')``.

Coordinates have one of two units. *Relative*: thousandths of the screen's sides, as in models based on Qwen2-VL.
*Absolute*: pixels of the picture as resized by the model's image processor, as in models based on Qwen2.5-VL
(UI-TARS-1.5); most see 1920 × 1080 as 1932 × 1092. Either way they are scaled to the screen and truncated to pixels.

A reply may contain several calls, separated by empty lines. ``finished`` is DONE. ``call_user`` is FAIL, immediately as
in DART and ARPO, or after it was WAIT ``call_user_waits`` times. ``scroll`` turns the wheel by 5 notches.

OSWorld's agent for UI-TARS-1.5 (``mm_agents/uitars15_v1.py``) reads the same replies; whatever it carries out is
carried out here. Like that agent, this grammar ignores arguments that an action does not have, accepts directions in
any case, and reads line ends at the end of a text, escaped twice or not, as one Enter. The differences in that agent:

- The first three ``call_user`` are WAIT (``call_user_waits = 3``); before ``finished`` and ``wait`` it drops the other
  calls of a reply; a reply that it fails to read three times ends the attempt as DONE.
- It does not scroll sideways, holds the key of ``press`` down, and strips leading blanks from a text.
- For an unknown key, action or direction it generates code without effect; here the reply is malformed, which has no
  effect either.
- It does not read boxes without quotes or in brackets, arguments without names, and unescaped quotes.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from dartsim.core.image_size import smart_resize
from dartsim.envs.actions import model as act
from dartsim.envs.actions.grammar import (
    ActionGrammar,
    Inexpressible,
    MalformedAction,
    UnknownName,
    arguments,
    as_text,
    can_type,
    check_limits,
    dotted,
    hotkey_names,
    key_name,
    literal,
    number,
    statements,
    with_starts,
)

SCROLL_NOTCHES = 5
_DIRECTIONS = {
    "up": act.Scroll(0, SCROLL_NOTCHES),
    "down": act.Scroll(0, -SCROLL_NOTCHES),
    "left": act.Scroll(-SCROLL_NOTCHES, 0),
    "right": act.Scroll(SCROLL_NOTCHES, 0),
}
_CLICKS = {"click": ("left", 1), "left_single": ("left", 1), "left_double": ("left", 2), "right_single": ("right", 1)}
_CLICK_WORDS = {("left", 1): "click", ("left", 2): "left_double", ("right", 1): "right_single"}
_START = ("start_box", "point", "start_point")
_END = ("end_box", "end_point")
_NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?")
_BOX_CHARACTERS = re.compile(r"[\s\d.,+\-()\[\]]+")
_TAGS = re.compile(r"<\|box_(?:start|end)\|>|</?(?:point|bbox)>")
_LOOSE = re.compile(r"(type|finished|call_user)\(content=(['\"])(.*)\2\)", re.DOTALL)
_LINE_ENDS = re.compile(r"(?:\n|\\n)+\Z")
_BARE_QUOTE = re.compile(r"(?<!\\)['\"]")


@dataclass(frozen=True)
class UiTars(ActionGrammar):
    """The grammar; see the module.

    Attributes:
        absolute: Coordinates are pixels of the resized picture, not thousandths.
        malformed: Meaning of an unreadable reply: malformed (``skip``), DONE or FAIL. A readable reply with an unknown
            action, key or direction is always malformed.
        factor: Sides of a resized picture are multiples of it, pixels; only absolute coordinates need this and the
            bounds. A model's own are ``PolicyConfig.action_grammar``; the defaults are those of UI-TARS's own parser.
        min_pixels: Smallest area of a resized picture.
        max_pixels: Largest area of a resized picture.
        call_user_waits: How often in an attempt ``call_user`` waits before it fails the task.
    """

    absolute: bool = False
    malformed: Literal["skip", "done", "fail"] = "skip"
    factor: int = 28
    min_pixels: int = 100 * 28 * 28
    max_pixels: int = 16_384 * 28 * 28
    call_user_waits: int = 0

    name: ClassVar[str] = "ui_tars"

    @property
    def extent(self) -> tuple[int, int]:
        """The largest coordinates: (1000, 1000), or the sides of the resized picture."""
        if self.absolute:
            bounds = {"min_pixels": self.min_pixels, "max_pixels": self.max_pixels}
            return smart_resize(self.width, self.height, factor=self.factor, **bounds)
        return 1000, 1000

    def parse(self, text: str) -> tuple[act.Action, ...]:
        """Read a reply: what follows the last ``Action:``; or a bare ``WAIT``, ``DONE`` or ``FAIL``."""
        reply = as_text(text, self.name)
        if reply.strip() in _BARE:
            return (_BARE[reply.strip()],)
        try:
            return self._calls(reply)
        except UnknownName:
            raise
        except MalformedAction:
            if self.malformed == "skip":
                raise
            return (act.Done() if self.malformed == "done" else act.Fail(),)

    def readable(self, text: str) -> bool:
        """Return whether a reply has the right form, whatever ``malformed`` says."""
        try:
            self._calls(text)
        except UnknownName:
            return True
        except MalformedAction:
            return False
        return True

    def format(self, actions: Sequence[act.Action], thought: str = "") -> str:
        """Write a reply with an optional thought; a ``Move`` before a ``Drag`` or a ``Scroll`` becomes its start."""
        calls = [self._format(action, start) for action, start in with_starts(actions)]
        if not calls:
            raise Inexpressible("ui_tars cannot write an empty list of actions")
        lead = f"Thought: {thought}\n" if thought else ""
        return f"{lead}Action: " + "\n\n".join(calls)

    def _calls(self, reply: str) -> tuple[act.Action, ...]:
        _, marker, calls = reply.rpartition("Action:")
        if not marker:
            raise MalformedAction(f"found no 'Action:' in {reply[:60]!r}")
        actions: list[act.Action] = []
        for call in _split(calls.strip()):
            actions += self._call(call)
            check_limits(actions)  # inside the loop, because a reply of many megabytes would take a minute to read
        return tuple(actions)

    def _call(self, text: str) -> list[act.Action]:
        call = _single_call(text)
        name = dotted(call.func).rpartition(".")[2]
        if name in _CLICKS:
            return [act.Click(*self._place(call, _START), *_CLICKS[name])]
        if name == "hover":
            return [act.Move(*self._place(call, _START))]
        if name in ("drag", "select"):
            return [act.Move(*self._place(call, _START, _END)), act.Drag(*self._place(call, _END, _START))]
        if name == "scroll":
            return self._scroll(call)
        if name in _PLAIN:
            if name == "call_user" and self.call_user_waits:
                return [act.CallUser()]
            parameters, meaning = _PLAIN[name]
            return [meaning({key: literal(node) for key, node in _arguments(call, parameters).items()})]
        raise UnknownName(f"found the action {name[:40]!r}")

    def _scroll(self, call: ast.Call) -> list[act.Action]:
        given = _arguments(call, ("direction", *_START))
        said = literal(given["direction"]) if "direction" in given else None
        direction = next((word for word in _DIRECTIONS if word in str(said).lower()), None)
        if direction is None:
            raise UnknownName(f"direction: found {str(said)[:40]!r}, wanted up, down, left or right")
        if not given.keys() & set(_START):
            return [_DIRECTIONS[direction]]
        return [act.Move(*self._place(call, _START, ("direction",))), _DIRECTIONS[direction]]

    def _place(self, call: ast.Call, names: tuple[str, ...], others: tuple[str, ...] = ()) -> tuple[int, int]:
        """Return the pixel in one of the arguments ``names``; ``others`` are also allowed."""
        if call.args and others:
            raise MalformedAction("wanted arguments by name")
        given = _arguments(call, names + others)
        boxes = [literal(node) for key, node in given.items() if key in names]
        if len(boxes) != 1 or len(given) > 1 + len(others):
            raise MalformedAction(f"wanted one of {', '.join(names)}")
        x, y = _center(boxes[0])
        return _pixel(x, self.width, self.extent[0]), _pixel(y, self.height, self.extent[1])

    def _box(self, x: int, y: int) -> str:
        across, down = self.extent
        return f"({_coordinate(x, self.width, across)},{_coordinate(y, self.height, down)})"

    def _format(self, action: act.Action, start: act.Move | None) -> str:
        match action:
            case act.Move(x, y):
                return f"hover(start_box='{self._box(x, y)}')"
            case act.Click(int() as x, int() as y, which, count) if (which, count) in _CLICK_WORDS:
                return f"{_CLICK_WORDS[which, count]}(start_box='{self._box(x, y)}')"
            case act.Drag(x, y, "left") if start is not None:
                return f"drag(start_box='{self._box(start.x, start.y)}', end_box='{self._box(x, y)}')"
            case act.Scroll() if action in _DIRECTIONS.values():
                direction = next(word for word, meant in _DIRECTIONS.items() if meant == action)
                box = "" if start is None else f"start_box='{self._box(start.x, start.y)}', "
                return f"scroll({box}direction='{direction}')"
            case act.TypeText(text) if can_type(text) and _one_final_enter(text) == text:
                return f"type(content={_quote(text)})"
            case act.Press(key) | act.Hotkey((key,)):
                return f"{'press' if isinstance(action, act.Press) else 'hotkey'}(key={_quote(key)})"
            case act.Hotkey(keys):
                return f"hotkey(key={_quote(' '.join(keys))})"
            case act.KeyDown(key) | act.KeyUp(key):
                return f"{'keydown' if isinstance(action, act.KeyDown) else 'keyup'}(key={_quote(key)})"
            case act.Wait():
                return "wait()"
            case act.Done():
                return "finished()"
            case act.Fail() | act.CallUser():
                return "call_user()"
        raise Inexpressible(f"ui_tars cannot write {action}")


_BARE: dict[str, act.Action] = {"WAIT": act.Wait(), "DONE": act.Done(), "FAIL": act.Fail()}


def _type(values: dict[str, Any]) -> act.Action:
    content = values.get("content")
    if not isinstance(content, str):
        raise MalformedAction("type: wanted a text as content")
    return act.TypeText(_one_final_enter(content))


def _one_final_enter(text: str) -> str:
    """Return a text with one Enter in place of the line ends at its end."""
    return _LINE_ENDS.sub("\n", text)


def _hotkey(values: dict[str, Any]) -> act.Action:
    keys = values.get("key", values.get("hotkey"))
    if not isinstance(keys, str):
        raise MalformedAction("hotkey: wanted a text as key")
    return act.Hotkey(hotkey_names(keys.split()))


def _key(values: dict[str, Any]) -> str:
    return key_name(values.get("key", values.get("press")))


_PLAIN: dict[str, tuple[tuple[str, ...], Callable[[dict[str, Any]], act.Action]]] = {
    "type": (("content",), _type),
    "hotkey": (("key", "hotkey"), _hotkey),
    "press": (("key", "press"), lambda values: act.Press(_key(values))),
    "keydown": (("key", "press"), lambda values: act.KeyDown(_key(values))),
    "keyup": (("key", "press"), lambda values: act.KeyUp(_key(values))),
    "release": (("key", "press"), lambda values: act.KeyUp(_key(values))),
    "wait": ((), lambda values: act.Wait()),
    "finished": (("content",), lambda values: act.Done()),
    "call_user": (("content",), lambda values: act.Fail()),
    "error_env": ((), lambda values: act.Fail()),
}
"""Actions without a position: name -> (parameters, a function that returns the action)."""


def _arguments(call: ast.Call, names: tuple[str, ...]) -> dict[str, ast.expr]:
    """Return the arguments with these names; others are ignored."""
    read = [keyword for keyword in call.keywords if keyword.arg is None or keyword.arg in names]
    return arguments(ast.Call(call.func, call.args, read), names)


def _split(calls: str) -> list[str]:
    """Split a reply's calls where an empty line follows a closing bracket."""
    parts = calls.split(")\n\n")
    return [part.strip() + ")" for part in parts[:-1]] + [parts[-1].strip()]


def _single_call(text: str) -> ast.Call:
    try:
        body = statements(text)
    except MalformedAction:
        loose = _LOOSE.fullmatch(text)  # models forget to escape quotes and line ends
        if loose is None:
            raise
        content = _BARE_QUOTE.sub(r"\\\g<0>", loose[3]).replace("\n", r"\n")
        try:
            body = statements(f"{loose[1]}(content='{content}')")
        except MalformedAction:
            body = statements(f"{loose[1]}(content={loose[3]!r})")
    match body:
        case [ast.Expr(value=ast.Call() as call)]:
            return call
    raise MalformedAction(f"wanted one call, found {text[:60]!r}")


def _center(box: Any) -> tuple[float, float]:
    """Return the point of a box: ``(x,y)``, ``<point>x y</point>``, or the center of 4 numbers."""
    if isinstance(box, str):
        plain = _TAGS.sub("", box)
        if len(plain) > 100 or not _BOX_CHARACTERS.fullmatch(plain):
            raise MalformedAction(f"wanted a box, found {box[:60]!r}")
        box = [float(each) for each in _NUMBER.findall(plain)]
    if not isinstance(box, list) or len(box) not in (2, 4):
        raise MalformedAction("wanted a box of 2 or 4 numbers")
    values = [number(each, "box") for each in box]
    return (values[0] + values[-2]) / 2, (values[1] + values[-1]) / 2


def _pixel(value: float, side: int, extent: int) -> int:
    """Scale to the screen and truncate; the far edge belongs to the last pixel."""
    scaled = int(value * side / extent)
    return side - 1 if value == extent else scaled


def _coordinate(pixel: int, side: int, extent: int) -> str:
    """Return a pixel's center with the fewest digits that parse back to the pixel."""
    center = (pixel + 0.5) * extent / side
    for digits in range(7):
        text = f"{center:.{digits}f}"
        if _pixel(float(text), side, extent) == pixel:
            return text
    raise Inexpressible(f"no coordinate leads to pixel {pixel} of {side}")


def _quote(text: str) -> str:
    """Return a text as a Python string without ``Action:`` and empty lines."""
    return repr(text).replace("Action:", r"Action\x3a")
