"""pyautogui code, as OSWorld's agents write it: ``pyautogui.click(12, 34); pyautogui.write('hello')``.

Positions are pixels of the screen, truncated to integers. The code is read, never run: statements are calls with
constants. ``import``, ``time.sleep``, assignments to pyautogui's settings and bare strings are ignored. A text copied
by ``pyperclip.copy`` and pasted by Ctrl+V is typed. ``WAIT``, ``DONE`` and ``FAIL`` are accepted as they are.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from dartsim.envs.actions import model as act
from dartsim.envs.actions.grammar import (
    ActionGrammar,
    Inexpressible,
    MalformedAction,
    arguments,
    as_text,
    button,
    can_type,
    check_limits,
    clicks,
    dotted,
    hotkey_names,
    key_name,
    literal,
    position,
    statements,
    whole,
)

Values = dict[str, Any]

_EXTRA = ("logScreenshot", "_pause")
_CLICK = ("x", "y", "clicks", "interval", "button", "duration", "tween", *_EXTRA)
_SHORT_CLICK = ("x", "y", "interval", "duration", "tween", *_EXTRA)
_MANY_CLICK = ("x", "y", "interval", "button", "duration", "tween", *_EXTRA)
_NEEDED = {"x", "y", "clicks", "button", "message", "keys", "presses", "key"}
"""Parameters whose values matter here; the others (durations, easing) may be any expression."""

_WORDS: dict[str, act.Action] = {"WAIT": act.Wait(), "DONE": act.Done(), "FAIL": act.Fail()}


def _click(count: int | None = None, which: str | None = None) -> Callable[[Values], list[act.Action]]:
    def read(values: Values) -> list[act.Action]:
        x, y = position(values.get("x"), values.get("y")) or (None, None)
        name = which or button(values.get("button", "left"))
        return [act.Click(x, y, name, count or clicks(values.get("clicks", 1)))]

    return read


def _needed_position(values: Values) -> tuple[int, int]:
    place = position(values.get("x"), values.get("y"))
    if place is None:
        raise MalformedAction("found no position, wanted x and y")
    return place


def _move(values: Values) -> list[act.Action]:
    return [act.Move(*_needed_position(values))]


def _drag(values: Values) -> list[act.Action]:
    return [act.Drag(*_needed_position(values), button(values.get("button", "left")))]


def _at(values: Values) -> list[act.Action]:
    place = position(values.get("x"), values.get("y"))
    return [act.Move(*place)] if place else []


def _hold(kind: type[act.Down] | type[act.Up]) -> Callable[[Values], list[act.Action]]:
    return lambda values: [*_at(values), kind(button(values.get("button", "left")))]


def _scroll(values: Values) -> list[act.Action]:
    return [*_at(values), act.Scroll(0, whole(values.get("clicks"), "clicks"))]


def _hscroll(values: Values) -> list[act.Action]:
    return [*_at(values), act.Scroll(whole(values.get("clicks"), "clicks"), 0)]


def _write(values: Values) -> list[act.Action]:
    message = values.get("message")
    if isinstance(message, list):
        return [act.Press(key_name(key)) for key in message]
    if not isinstance(message, str):
        raise MalformedAction(f"message: found {type(message).__name__}, wanted a text")
    return [act.TypeText(message)]


def _press(values: Values) -> list[act.Action]:
    keys = values.get("keys")
    names = [key_name(key) for key in (keys if isinstance(keys, list) else [keys])]
    times = whole(values.get("presses", 1), "presses")
    if not 0 <= times * len(names) <= act.MAX_ACTIONS:
        raise MalformedAction(f"presses: found {times}, wanted at most {act.MAX_ACTIONS} key presses")
    presses: list[act.Action] = [act.Press(name) for name in names]
    return presses * times


_CALLS: dict[str, tuple[tuple[str, ...], Callable[[Values], list[act.Action]]]] = {
    "click": (_CLICK, _click()),
    "leftClick": (_SHORT_CLICK, _click(1, "left")),
    "rightClick": (_SHORT_CLICK, _click(1, "right")),
    "middleClick": (_SHORT_CLICK, _click(1, "middle")),
    "doubleClick": (_MANY_CLICK, _click(2)),
    "tripleClick": (_MANY_CLICK, _click(3)),
    "moveTo": (("x", "y", "duration", "tween", *_EXTRA), _move),
    "dragTo": (("x", "y", "duration", "tween", "button", *_EXTRA, "mouseDownUp"), _drag),
    "mouseDown": (("x", "y", "button", "duration", "tween", *_EXTRA), _hold(act.Down)),
    "mouseUp": (("x", "y", "button", "duration", "tween", *_EXTRA), _hold(act.Up)),
    "scroll": (("clicks", "x", "y", *_EXTRA), _scroll),
    "vscroll": (("clicks", "x", "y", *_EXTRA), _scroll),
    "hscroll": (("clicks", "x", "y", *_EXTRA), _hscroll),
    "write": (("message", "interval", *_EXTRA), _write),
    "typewrite": (("message", "interval", *_EXTRA), _write),
    "press": (("keys", "presses", "interval", *_EXTRA), _press),
    "keyDown": (("key", *_EXTRA), lambda values: [act.KeyDown(key_name(values.get("key")))]),
    "keyUp": (("key", *_EXTRA), lambda values: [act.KeyUp(key_name(values.get("key")))]),
}
"""Name of a function -> (its parameters in pyautogui's order, a function that returns the actions)."""


@dataclass(frozen=True)
class PyAutoGui(ActionGrammar):
    """The grammar; see the module."""

    name: ClassVar[str] = "pyautogui"

    def parse(self, text: str) -> tuple[act.Action, ...]:
        code = as_text(text, self.name).strip()
        if code in _WORDS:
            return (_WORDS[code],)
        actions: list[act.Action] = []
        copied: str | None = None
        for statement in statements(code):
            new = _copied_text(statement)
            if new is not None:
                copied = new
                continue
            for action in _statement(statement):
                pasted = copied is not None and action == _PASTE
                actions.append(act.TypeText(copied) if pasted and copied is not None else action)
                copied = None if pasted else copied
        if copied is not None:
            raise MalformedAction("found pyperclip.copy without pyautogui.hotkey('ctrl', 'v') after it")
        return check_limits(actions)

    def format(self, actions: Sequence[act.Action]) -> str:
        """Write one statement per action, separated by ``; ``."""
        return "; ".join(_format(action) for action in actions)


_PASTE = act.Hotkey(("ctrl", "v"))


def _copied_text(statement: ast.stmt) -> str | None:
    """Return the text of ``pyperclip.copy``; None for other statements."""
    match statement:
        case ast.Expr(value=ast.Call(func=func, args=[ast.Constant(value=str() as text)], keywords=[])):
            return text if dotted(func) == "pyperclip.copy" else None
    return None


def _statement(statement: ast.stmt) -> list[act.Action]:
    match statement:
        case ast.Import() | ast.ImportFrom() | ast.Pass() | ast.Expr(value=ast.Constant(value=str())):
            return []
        case ast.Expr(value=ast.Name(id=name)) if name in _WORDS:
            return [_WORDS[name]]
        case ast.Assign(targets=[target]) if dotted(target) in ("pyautogui.FAILSAFE", "pyautogui.PAUSE"):
            return []
        case ast.Expr(value=ast.Call() as call):
            return _call(call)
    raise MalformedAction(f"wanted a call of pyautogui, found {type(statement).__name__}")


def _call(call: ast.Call) -> list[act.Action]:
    name = dotted(call.func)
    if name in ("time.sleep", "pyautogui.sleep"):
        return []
    if name == "pyautogui.hotkey":
        return _hotkey(call)
    module, _, function = name.partition(".")
    if module != "pyautogui" or function not in _CALLS:
        raise MalformedAction(f"found a call of {name[:40]!r}, wanted a function of pyautogui")
    parameters, meaning = _CALLS[function]
    given = arguments(call, parameters)
    return meaning({key: literal(node) for key, node in given.items() if key in _NEEDED})


def _hotkey(call: ast.Call) -> list[act.Action]:
    if any(keyword.arg not in ("interval", *_EXTRA) for keyword in call.keywords):
        raise MalformedAction("hotkey: found an unknown argument")
    keys = [literal(argument) for argument in call.args]
    return [act.Hotkey(hotkey_names(keys[0] if len(keys) == 1 and isinstance(keys[0], list) else keys))]


_CLICK_NAMES = {
    ("left", 1): "click",
    ("right", 1): "rightClick",
    ("middle", 1): "middleClick",
    ("left", 2): "doubleClick",
    ("left", 3): "tripleClick",
}


def _format(action: act.Action) -> str:
    match action:
        case act.Wait() | act.Done() | act.Fail():
            return next(word for word, meant in _WORDS.items() if meant == action)
        case act.Click(x, y, which, count):
            name, more = _CLICK_NAMES.get((which, count), "click"), []
            if (which, count) not in _CLICK_NAMES:
                more = [f"clicks={count}", f"button={which!r}"]
            return f"pyautogui.{name}({', '.join(([] if x is None else [str(x), str(y)]) + more)})"
        case act.Move(x, y):
            return f"pyautogui.moveTo({x}, {y})"
        case act.Drag(x, y, which):
            return f"pyautogui.dragTo({x}, {y}, button={which!r})"
        case act.Down(which) | act.Up(which):
            return f"pyautogui.{'mouseDown' if isinstance(action, act.Down) else 'mouseUp'}(button={which!r})"
        case act.Scroll(0, dy):
            return f"pyautogui.scroll({dy})"
        case act.Scroll(dx, 0):
            return f"pyautogui.hscroll({dx})"
        case act.TypeText(text) if can_type(text):
            return f"pyautogui.write({text!r})"
        case act.Press(key):
            return f"pyautogui.press({key!r})"
        case act.Hotkey(keys):
            return f"pyautogui.hotkey({', '.join(map(repr, keys))})"
        case act.KeyDown(key) | act.KeyUp(key):
            return f"pyautogui.{'keyDown' if isinstance(action, act.KeyDown) else 'keyUp'}({key!r})"
    raise Inexpressible(f"pyautogui cannot write {action}")
