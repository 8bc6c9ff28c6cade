"""Actions as pyautogui code that the desktop runs, one new interpreter a turn, as OSWorld does it; ``Episode``.

The code is generated from the actions that a grammar has read, never copied from a model's text, so that a text has the
same effect here and on the mock desktop.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

from dartsim.core.types import Task
from dartsim.envs.actions import ending, make_grammar, read
from dartsim.envs.actions import model as act
from dartsim.envs.actions.grammar import TYPED_CONTROLS
from dartsim.real.osworld.settings import DesktopSettings

PREFIX = "import pyautogui; import time; pyautogui.FAILSAFE = False; "
"""OSWorld's prefix of each action."""
DRAG_SECONDS = 1.0
"""Duration of a drag; many programs do not recognize an instantaneous one."""
KEY_SECONDS = 0.005
CALL_SECONDS = 0.2
PASTE_SECONDS = 1.0
"""Durations of a typed character, another call of pyautogui, and a paste; half as long on an idle desktop."""
MAX_KEYS_SECONDS = 10.0
"""A text that would take longer by keys is pasted."""
MAX_PART_SECONDS = 15.0
"""The code of a turn is sent in parts of about that length, far below the time limit of a command."""
MAX_TURN_SECONDS = 120.0
"""A turn that takes longer is malformed: an agent could run into the limit of a step with it, and be masked."""
MAX_NOTCHES = 1_000
"""Most notches of one scroll; each notch is a separate event."""
PASTE = Path(__file__).with_name("paste.py").read_text(encoding="utf-8")
"""Defines ``paste`` on the desktop."""
NO_REPEAT = "from Xlib.display import Display; d = Display(); d.change_keyboard_control(auto_repeat_mode=0); d.sync()"
"""Run once on a desktop: a key that a busy process releases late would type its character again and again."""

_KEY_NAMES = {"menu": "apps"}
"""Keys with another name in pyautogui."""

Place = Callable[[int, int], tuple[int, int]]


def placing(shown: tuple[int, int], screen: tuple[int, int]) -> Place:
    """Return a function that maps a pixel of the shown picture to the screen's pixel at its center."""

    def place(x: int, y: int) -> tuple[int, int]:
        return _along(x, shown[0], screen[0]), _along(y, shown[1], screen[1])

    return place


def _along(pixel: int, shown: int, screen: int) -> int:
    inside = min(max(pixel, 0), shown - 1)
    return (2 * inside + 1) * screen // (2 * shown)


def snippets(actions: Sequence[act.Action], place: Place, *, paste: bool = False) -> list[str | None]:
    """Return the code of one turn, in parts between which to wait (None); DONE and FAIL end it.

    Args:
        actions: Actions that a grammar has read.
        place: Maps their positions to the screen.
        paste: Whether texts come from the clipboard, as with ``input_swap`` of OSWorld's agent of UI-TARS.
    """
    parts: list[str | None] = []
    lines: list[str] = []
    left = MAX_PART_SECONDS
    for action in _until_end(actions):
        seconds = duration(action, paste=paste)
        waits = isinstance(action, act.Wait)
        if lines and (waits or seconds > left):
            parts.append(_joined(lines))
            lines, left = [], MAX_PART_SECONDS
        if waits:
            parts.append(None)
            continue
        left -= seconds
        if isinstance(action, act.TypeText):
            lines += _pasting(action.text) if paste else _typing(action.text)
        else:
            lines += _code(action, place)
    return [*parts, _joined(lines)] if lines else parts


def duration(action: act.Action, *, paste: bool = False, wait_seconds: float = 0.0) -> float:
    """Return an approximate upper bound on an action's duration, seconds."""
    match action:
        case act.TypeText(text):
            return PASTE_SECONDS + CALL_SECONDS if paste else min(_typing_seconds(text), MAX_KEYS_SECONDS)
        case act.Drag():
            return DRAG_SECONDS + CALL_SECONDS
        case act.Scroll(dx, dy):
            return CALL_SECONDS + KEY_SECONDS * (min(abs(dx), MAX_NOTCHES) + min(abs(dy), MAX_NOTCHES))
        case act.Wait():
            return wait_seconds
    return CALL_SECONDS


def _until_end(actions: Iterable[act.Action]) -> Iterator[act.Action]:
    return takewhile(lambda action: not isinstance(action, act.Done | act.Fail), actions)


def _joined(lines: Sequence[str]) -> str:
    """Return statements as one piece of code, with what they need."""
    if not any(line.startswith("paste(") for line in lines):
        return "; ".join(lines)
    return "\n".join([PASTE, *lines])


def plain(code: str) -> str:
    """Return a part of ``snippets`` as OSWorld's agents write it, without the wait for the clipboard."""
    if not code.startswith(PASTE):
        return code
    paste = r"import pyperclip; pyperclip.copy(\1); pyautogui.hotkey('ctrl', 'v')"
    lines = code.removeprefix(PASTE).strip().split("\n")
    return "; ".join(re.sub(r"^paste\((.*), restore=\w+\)$", paste, line) for line in lines)


def command(code: str, *, python: str = "python") -> list[str]:
    """Return the command that runs a piece of code on the desktop."""
    return [python, "-c", PREFIX + code]


def _code(action: act.Action, place: Place) -> list[str]:
    match action:
        case act.Move(x, y):
            return [_call("moveTo", *place(x, y))]
        case act.Click(x, y, button, count):
            at = () if x is None or y is None else place(x, y)
            return [_call("click", *at, clicks=count, button=button)]
        case act.Drag(x, y, button):
            return [_call("dragTo", *place(x, y), duration=DRAG_SECONDS, button=button)]
        case act.Down(button):
            return [_call("mouseDown", button=button)]
        case act.Up(button):
            return [_call("mouseUp", button=button)]
        case act.Scroll(dx, dy):
            turns = {"scroll": dy, "hscroll": dx}
            return [_call(name, max(-MAX_NOTCHES, min(n, MAX_NOTCHES))) for name, n in turns.items() if n]
        case act.Press(key) if key != "<":
            return [_call("press", *_keys(key))]
        case act.Press(key):
            return [_call("hotkey", *_keys(key))]
        case act.Hotkey(keys):
            return [_call("hotkey", *(name for key in keys for name in _keys(key)))]
        case act.KeyDown(key):
            return [_call("keyDown", name) for name in _keys(key)]
        case act.KeyUp(key):
            return [_call("keyUp", name) for name in reversed(_keys(key))]
    raise AssertionError(f"{action} is carried out elsewhere")


def _typing(text: str) -> Iterator[str]:
    """Yield calls that type a text: by keys; lines with what the keyboard lacks, and long texts, from the clipboard."""
    runs = list(_runs(text))
    if _typing_seconds(text) > MAX_KEYS_SECONDS:
        line = text.removesuffix("\n")
        runs = [("paste", line), *([("keys", "\n")] if line != text else [])]
    for how, run in runs:
        if how == "less":
            yield from [_call("hotkey", "shift", ",")] * len(run)
        elif how == "keys":
            yield _call("write", run)
        else:
            yield f"paste({_literal(run)}, restore=True)"


def _typing_seconds(text: str) -> float:
    seconds = {"less": CALL_SECONDS, "keys": KEY_SECONDS}
    return sum(PASTE_SECONDS if how == "paste" else CALL_SECONDS + seconds[how] * len(run) for how, run in _runs(text))


def _pasting(text: str) -> Iterator[str]:
    """Yield calls that paste a text without its last line ends, and press enter if it had some (OSWorld's agent)."""
    line = text.rstrip("\n")
    if line:
        yield f"paste({_literal(line)}, restore=False)"
    if line != text:
        yield _call("press", "enter")


def _literal(text: str) -> str:
    """Return a text as a Python string of at most 4 bytes a character; ``repr`` may need 10."""
    if text.isprintable():
        return repr(text)
    named = {"\n": "n", "\r": "r", "\t": "t"}
    return "'" + re.sub(r"[\\'\n\r\t]", lambda found: "\\" + named.get(found[0], found[0]), text) + "'"


def _runs(text: str) -> Iterator[tuple[str, str]]:
    """Split a text into runs that are typed in the same way."""
    for line in [text] if text.isascii() else re.split(f"([{TYPED_CONTROLS}]+)", text):
        if not line.isascii():
            yield "paste", line
            continue
        for run in re.findall("<+|[^<]+", line):
            yield ("less" if run[0] == "<" else "keys"), run  # pyautogui finds a key for it that types ">"


def _keys(key: str) -> tuple[str, ...]:
    return ("shift", ",") if key == "<" else (_KEY_NAMES.get(key, key),)


def _call(name: str, *values: Any, **named: Any) -> str:
    arguments = [repr(value) for value in values] + [f"{key}={value!r}" for key, value in named.items()]
    return f"pyautogui.{name}({', '.join(arguments)})"


class Episode:
    """The bookkeeping of one attempt, the same as the mock desktop's."""

    def __init__(self, task: Task, settings: DesktopSettings) -> None:
        self.task = task
        self.turns = 0
        self.malformed = 0
        self.last_actions: tuple[act.Action, ...] = ()
        self.last_action: str | None = None
        self.over = False
        self._settings = settings
        self._calls: Counter[str] = Counter()
        self._grammar = make_grammar(settings.grammar, *settings.size, **settings.grammar_options)
        self._place = placing(settings.size, settings.screen)

    def note(self, action: str | Mapping[str, Any]) -> list[str | None] | None:
        """Record an action and return its code, in parts between which to wait (None).

        Returns None if there is nothing to do: the action is malformed, or only ends the episode.
        """
        settings = self._settings
        actions = read(self._grammar, action, self._calls)
        takes = (
            duration(each, paste=settings.paste, wait_seconds=settings.wait_seconds)
            for each in _until_end(actions or ())
        )
        if sum(takes) > MAX_TURN_SECONDS:
            actions = None
        self.turns += 1
        if actions is None:
            self.malformed += 1
        self.last_actions = actions or ()
        end = ending(self.last_actions)
        self.last_action = end or str(action)  # evaluators know the common words, whatever the grammar's own are
        clicked = any(isinstance(each, act.Click) for each in self.last_actions)
        self.over = end is not None or (clicked and bool(self.task.spec.get("auto_done", False)))
        return snippets(self.last_actions, self._place, paste=settings.paste) or None
