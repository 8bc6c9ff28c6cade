"""Actions as code that the desktop runs: pyautogui, one new interpreter a turn, as OSWorld does it.

The code is written from actions that a grammar has read, never passed on as a model wrote it, so that the same text
means the same here and on the mock desktop. (``DesktopSettings.raw_code`` passes it on.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from dartsim.envs.actions import (
    Action,
    Click,
    Done,
    Down,
    Drag,
    Fail,
    Hotkey,
    KeyDown,
    KeyUp,
    Move,
    Press,
    Scroll,
    TypeText,
    Up,
    Wait,
)

PREFIX = "import pyautogui; import time; pyautogui.FAILSAFE = False; "
"""What OSWorld puts before each action."""
DRAG_SECONDS = 0.5
"""A drag that jumps is not seen as one by many programs."""
PASTE_SECONDS = 0.3
"""A program takes a moment to fetch what is pasted."""

_KEY_NAMES = {"menu": "apps"}
"""Where pyautogui's name is another."""

Place = Callable[[int, int], tuple[int, int]]


def placing(shown: tuple[int, int], screen: tuple[int, int]) -> Place:
    """Return what turns a pixel of the shown picture into one of the screen: the one in the middle of it."""

    def place(x: int, y: int) -> tuple[int, int]:
        return _along(x, shown[0], screen[0]), _along(y, shown[1], screen[1])

    return place


def _along(pixel: int, shown: int, screen: int) -> int:
    inside = min(max(pixel, 0), shown - 1)
    return (2 * inside + 1) * screen // (2 * shown)


def snippets(actions: Sequence[Action], place: Place, *, key_seconds: float = 0.0) -> list[str | None]:
    """Return the code of one turn, in parts between which to wait (None); DONE and FAIL end it.

    Args:
        actions: What a grammar has read.
        place: Turns their positions into the screen's.
        key_seconds: Between two typed characters.
    """
    parts: list[str | None] = []
    lines: list[str] = []
    for action in actions:
        if isinstance(action, Done | Fail):
            break
        if not isinstance(action, Wait):
            lines += _code(action, place, key_seconds)
            continue
        parts += ["; ".join(lines), None] if lines else [None]
        lines = []
    return [*parts, "; ".join(lines)] if lines else parts


def command(code: str, *, python: str = "python") -> list[str]:
    """Return the command that runs a piece of code on the desktop."""
    return [python, "-c", PREFIX + code]


def _code(action: Action, place: Place, key_seconds: float) -> list[str]:
    match action:
        case Move(x, y):
            return [_call("moveTo", *place(x, y))]
        case Click(x, y, button, count):
            at = () if x is None or y is None else place(x, y)
            return [_call("click", *at, clicks=count, button=button)]
        case Drag(x, y, button):
            return [_call("dragTo", *place(x, y), duration=DRAG_SECONDS, button=button)]
        case Down(button):
            return [_call("mouseDown", button=button)]
        case Up(button):
            return [_call("mouseUp", button=button)]
        case Scroll(dx, dy):
            down, across = _call("scroll", dy), _call("hscroll", dx)
            return ([down] if dy else []) + ([across] if dx else [])
        case TypeText(text):
            return list(_typing(text, key_seconds))
        case Press(key) if key != "<":
            return [_call("press", *_keys(key))]
        case Press(key):
            return [_call("hotkey", *_keys(key))]
        case Hotkey(keys):
            return [_call("hotkey", *(name for key in keys for name in _keys(key)))]
        case KeyDown(key):
            return [_call("keyDown", name) for name in _keys(key)]
        case KeyUp(key):
            return [_call("keyUp", name) for name in reversed(_keys(key))]
    raise AssertionError(f"{action} is carried out elsewhere")


def _typing(text: str, key_seconds: float) -> Iterator[str]:
    """Yield calls that type a text: what the keyboard has by keys, the rest through the clipboard."""
    for how, run in _runs(text):
        if how == "less":
            yield from [_call("hotkey", "shift", ",")] * len(run)
        elif how == "keys":
            yield _call("write", run, **({"interval": key_seconds} if key_seconds else {}))
        else:
            yield f"import pyperclip; pyperclip.copy({run!r})"
            yield _call("hotkey", "ctrl", "v")
            yield f"time.sleep({PASTE_SECONDS})"


def _runs(text: str) -> Iterator[tuple[str, str]]:
    """Split a text where it has to be typed in another way."""
    start = 0
    for at in range(1, len(text) + 1):
        if at == len(text) or _how(text[at]) != _how(text[start]):
            yield _how(text[start]), text[start:at]
            start = at


def _how(char: str) -> str:
    if char == "<":
        return "less"  # pyautogui finds a key for it that types ">" on a US keyboard
    return "keys" if " " <= char <= "~" or char in "\n\t\r" else "paste"


def _keys(key: str) -> tuple[str, ...]:
    return ("shift", ",") if key == "<" else (_KEY_NAMES.get(key, key),)


def _call(name: str, *values: Any, **named: Any) -> str:
    told = [repr(value) for value in values] + [f"{key}={value!r}" for key, value in named.items()]
    return f"pyautogui.{name}({', '.join(told)})"
