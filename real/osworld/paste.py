# mypy: disable-error-code="import-not-found,import-untyped"
"""Runs on the desktop, sent with each action that pastes: enters a text through the clipboard.

A program fetches pasted text from the clipboard's owner at some later time. So this process owns the clipboard until
the program has the text: no further key is pressed before, and nothing replaces the text in the meantime.
"""

import contextlib
import select
import threading
import time
from collections.abc import Callable
from typing import Any

import pyautogui
import pyperclip

FETCH_SECONDS = 5.0
"""Longest wait for a program to fetch the text; a program that does not paste never does."""
OTHER_SECONDS = 1.0
"""How long the text is kept after only others have fetched it: some programs use two connections, some only watch."""
QUIET_SECONDS = 0.2
"""A program may ask for the text more than once."""
READ_SECONDS = 2.0
TERMINALS = ("term", "konsole", "rxvt", "tilix", "kitty")
"""Parts of a terminal's class. Ctrl+V is a control character there; Shift+Insert pastes the primary selection."""


def paste(text: str, restore: bool) -> None:
    """Paste into the window with the focus; leave the clipboard as it was (``restore``), or with the text."""
    try:
        from Xlib.display import Display
    except ImportError:  # no X desktop
        pyperclip.copy(text)
        ends = time.time() + FETCH_SECONDS
        while pyperclip.paste() != text and time.time() < ends:
            time.sleep(0.05)
        pyautogui.hotkey("ctrl", "v")
        time.sleep(OTHER_SECONDS)
        return
    left = [_clipboard() if restore else text]
    owner = _Owner(Display(), text)
    owner.serve(lambda: False, 0.05)  # programs that watch the clipboard
    owner.fetched.clear()
    pyautogui.hotkey(*(("shift", "insert") if owner.in_terminal else ("ctrl", "v")))
    owner.serve(owner.was_fetched, FETCH_SECONDS)
    owner.serve(owner.is_quiet, FETCH_SECONDS)
    with contextlib.suppress(Exception):
        pyperclip.copy(left[0])
        owner.serve(lambda: not owner.owns(owner.selections[0]), READ_SECONDS)


def _clipboard() -> str:
    """Return the clipboard's text; none if its owner does not answer."""
    found = [""]

    def read() -> None:
        with contextlib.suppress(Exception):
            found[0] = pyperclip.paste()

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    thread.join(READ_SECONDS)
    return found[0]


class _Owner:
    """Owns the selections and answers who asks for them."""

    def __init__(self, display: Any, text: str) -> None:
        self.display = display
        self.window = display.screen().root.create_window(0, 0, 1, 1, 0, 0)
        self.focus = display.get_input_focus().focus
        self.in_terminal = any(part in self._class().lower() for part in TERMINALS)
        names = ("CLIPBOARD", "PRIMARY") if self.in_terminal else ("CLIPBOARD",)
        self.selections = [display.intern_atom(name) for name in names]
        self.targets = display.intern_atom("TARGETS")
        utf8 = text.encode()
        kinds = {"UTF8_STRING": utf8, "text/plain;charset=utf-8": utf8, "text/plain": utf8}
        with contextlib.suppress(UnicodeEncodeError):
            kinds["STRING"] = text.encode("latin-1")
        self.texts = {display.intern_atom(name): data for name, data in kinds.items()}
        self.fetched: dict[int, float] = {}
        for selection in self.selections:
            self.window.set_selection_owner(selection, 0)

    def _class(self) -> str:
        window = self.focus
        with contextlib.suppress(Exception):  # it may close just now
            while hasattr(window, "get_wm_class"):
                found = window.get_wm_class()
                if found:
                    return ".".join(found)
                window = window.query_tree().parent
        return ""

    def owns(self, selection: int) -> bool:
        return bool(getattr(self.display.get_selection_owner(selection), "id", 0) == self.window.id)

    def was_fetched(self) -> bool:
        if self._program(self.focus) in self.fetched:
            return True
        return bool(self.fetched) and time.time() > min(self.fetched.values()) + OTHER_SECONDS

    def is_quiet(self) -> bool:
        return time.time() > max(self.fetched.values(), default=0.0) + QUIET_SECONDS

    def _program(self, window: Any) -> int:
        return int(getattr(window, "id", 0) & ~self.display.display.info.resource_id_mask)

    def serve(self, enough: Callable[[], bool], seconds: float) -> None:
        """Answer requests until ``enough()``, or until the time limit."""
        from Xlib import X

        ends = time.time() + seconds
        while not enough() and time.time() < ends:
            while self.display.pending_events():
                event = self.display.next_event()
                if event.type == X.SelectionRequest:
                    with contextlib.suppress(Exception):  # the window may be gone
                        self._answer(event)
            select.select([self.display.fileno()], [], [], 0.02)

    def _answer(self, asked: Any) -> None:
        from Xlib import Xatom
        from Xlib.protocol.event import SelectionNotify

        place = asked.property or asked.target
        if asked.target == self.targets:
            asked.requestor.change_property(place, Xatom.ATOM, 32, [self.targets, *self.texts])
        elif asked.target in self.texts:
            asked.requestor.change_property(place, asked.target, 8, self.texts[asked.target])
            self.fetched[self._program(asked.requestor)] = time.time()
        else:
            place = 0
        about = {name: getattr(asked, name) for name in ("time", "requestor", "selection", "target")}
        asked.requestor.send_event(SelectionNotify(property=place, **about))
        self.display.flush()
