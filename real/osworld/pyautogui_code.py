"""Actions as pyautogui code that the desktop runs, one new interpreter a turn, as OSWorld does it; ``Episode``.

The code is written from actions that a grammar has read, never passed on as a model wrote it, so that the same text
means the same here and on the mock desktop. (``DesktopSettings.raw_code`` passes it on.)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from dartsim.core.types import Task
from dartsim.envs.actions import ending, make_grammar, read
from dartsim.envs.actions import model as act
from dartsim.envs.base import DONE, FAIL, WAIT
from dartsim.real.osworld.settings import DesktopSettings

PREFIX = "import pyautogui; import time; pyautogui.FAILSAFE = False; "
"""What OSWorld puts before each action."""
DRAG_SECONDS = 0.5
"""A drag that jumps is not seen as one by many programs."""
PASTE_SECONDS = 0.3
"""A program takes a moment to fetch what is pasted."""
UI_TARS_PASTE_SECONDS = 0.5
"""The same in OSWorld's agent of UI-TARS."""

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


def snippets(
    actions: Sequence[act.Action], place: Place, *, key_seconds: float = 0.0, paste: bool = False
) -> list[str | None]:
    """Return the code of one turn, in parts between which to wait (None); DONE and FAIL end it.

    Args:
        actions: What a grammar has read.
        place: Turns their positions into the screen's.
        key_seconds: Between two typed characters.
        paste: Whether texts come from the clipboard, as with ``input_swap`` of OSWorld's agent of UI-TARS.
    """
    parts: list[str | None] = []
    lines: list[str] = []
    for action in actions:
        if isinstance(action, act.Done | act.Fail):
            break
        if not isinstance(action, act.Wait):
            lines += (
                _pasting(action.text)
                if paste and isinstance(action, act.TypeText)
                else _code(action, place, key_seconds)
            )
            continue
        parts += ["; ".join(lines), None] if lines else [None]
        lines = []
    return [*parts, "; ".join(lines)] if lines else parts


def command(code: str, *, python: str = "python") -> list[str]:
    """Return the command that runs a piece of code on the desktop."""
    return [python, "-c", PREFIX + code]


def _code(action: act.Action, place: Place, key_seconds: float) -> list[str]:
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
            down, across = _call("scroll", dy), _call("hscroll", dx)
            return ([down] if dy else []) + ([across] if dx else [])
        case act.TypeText(text):
            return list(_typing(text, key_seconds))
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


def _typing(text: str, key_seconds: float) -> Iterator[str]:
    """Yield calls that type a text: what the keyboard has by keys, the rest through the clipboard."""
    for how, run in _runs(text):
        if how == "less":
            yield from [_call("hotkey", "shift", ",")] * len(run)
        elif how == "keys":
            yield _call("write", run, **({"interval": key_seconds} if key_seconds else {}))
        else:
            yield from _paste(run, PASTE_SECONDS)


def _pasting(text: str) -> Iterator[str]:
    """Yield calls that paste a text without its last line ends, and press enter if it had some (OSWorld's agent)."""
    line = text.rstrip("\n")
    if line:
        yield from _paste(line, UI_TARS_PASTE_SECONDS)
    if line != text:
        yield _call("press", "enter")


def _paste(text: str, seconds: float) -> Iterator[str]:
    yield f"import pyperclip; pyperclip.copy({text!r})"
    yield _call("hotkey", "ctrl", "v")
    yield f"time.sleep({seconds})"


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


class Episode:
    """The book-keeping of one attempt, the same as the mock desktop's."""

    def __init__(self, task: Task, settings: DesktopSettings) -> None:
        self.task = task
        self.turns = 0
        self.malformed = 0
        self.action_errors = 0
        self.last_actions: tuple[act.Action, ...] = ()
        self.last_action: str | None = None
        self.over = False
        self._settings = settings
        self._calls: Counter[str] = Counter()
        self._grammar = make_grammar(settings.grammar, *settings.size, **settings.grammar_options)
        self._place = placing(settings.size, settings.screen)

    def note(self, action: str | Mapping[str, Any]) -> list[str | None] | None:
        """Write an action down and return its code, in parts between which to wait (None).

        Returns None if there is nothing to do: the action makes no sense, or only says that the episode is over.
        """
        actions = read(self._grammar, action, self._calls)
        raw = self._raw(action)
        self.turns += 1
        if actions is None and raw is None:
            self.malformed += 1
        self.last_actions = actions or ()
        end = ending(self.last_actions)
        self.last_action = end or str(action)  # evaluators know the common words, whatever the grammar's own are
        clicked = any(isinstance(each, act.Click) for each in self.last_actions)
        self.over = end is not None or (clicked and self._ends_on_click())
        if raw is not None:
            return [raw]
        settings = self._settings
        return snippets(self.last_actions, self._place, key_seconds=settings.key_seconds, paste=settings.paste) or None

    def _raw(self, action: str | Mapping[str, Any]) -> str | None:
        """Return the code to run as it is: with ``raw_code``, any text but the common words."""
        if not self._settings.raw_code or not isinstance(action, str) or action.strip() in (WAIT, DONE, FAIL):
            return None
        return action

    def _ends_on_click(self) -> bool:
        if self._settings.auto_done is not None:
            return self._settings.auto_done
        return bool(self.task.spec.get("auto_done", False))
