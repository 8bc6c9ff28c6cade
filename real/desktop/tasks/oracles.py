"""Oracles of the tasks in ``apps``: for each task the turns that solve it, in the grammar ``pyautogui``.

They use the keyboard where possible, because positions of widgets vary with fonts and screens. Menus and dialogs get
their own turn, because keys that arrive earlier go elsewhere. A GTK button pressed by a key acts a quarter of a second
later: hence WAIT after the Enter that closes a dialog, and no number with a repeated digit in the calculator. Windows
are chosen by a click at the place given by the set-up: if Alt+Tab is released before openbox can grab the keyboard, it
waits for more keys and swallows the next one.
"""

from __future__ import annotations

from collections.abc import Mapping

ORACLES: Mapping[str, tuple[str, ...]] = {
    "mousepad-append-line": (
        "pyautogui.hotkey('ctrl', 'end')",
        "pyautogui.write('Friday: call the bank')",
        "pyautogui.hotkey('ctrl', 's')",
        "DONE",
    ),
    "mousepad-replace-word": (
        "pyautogui.hotkey('ctrl', 'r')",
        "pyautogui.write('butter')",
        "pyautogui.press('tab')",
        "pyautogui.write('margarine')",
        "pyautogui.hotkey('alt', 'a')",
        "pyautogui.hotkey('alt', 'r')",
        "WAIT",
        "pyautogui.press('escape')",
        "pyautogui.hotkey('ctrl', 's')",
        "DONE",
    ),
    "mousepad-view-settings": (
        "pyautogui.hotkey('alt', 'v')",
        "pyautogui.press(['down', 'down', 'enter'])",
        "pyautogui.hotkey('alt', 'd')",
        "pyautogui.press('enter')",
        "DONE",
    ),
    "mousepad-save-copy": (
        "pyautogui.hotkey('ctrl', 'shift', 's')",
        "pyautogui.hotkey('ctrl', 'a')",
        "pyautogui.write('/home/user/Documents/plan-final.txt')",
        "pyautogui.press('enter')",
        "DONE",
    ),
    "mousepad-title-capitals": (
        "pyautogui.hotkey('ctrl', 'home')",
        "pyautogui.hotkey('shift', 'end')",
        "pyautogui.write('SPRING IN THE CITY')",
        "DONE",
    ),
    "mousepad-read-aloud": ("FAIL",),
    "galculator-product": ("pyautogui.write('1258*36=')", "pyautogui.hotkey('ctrl', 'c')", "DONE"),
    "galculator-scientific": ("pyautogui.hotkey('alt', 'v')", "pyautogui.press('s')", "DONE"),
    "thunar-rename": (
        "pyautogui.hotkey('ctrl', 's')",
        "pyautogui.write('draft.txt\\n')",
        "WAIT",
        "pyautogui.press('f2')",
        "pyautogui.hotkey('ctrl', 'a')",
        "pyautogui.write('final.txt\\n')",
        "DONE",
    ),
    "thunar-sort-photos": (
        "pyautogui.hotkey('ctrl', 's')",
        "pyautogui.write('*.jpg\\n')",
        "WAIT",
        "pyautogui.hotkey('ctrl', 'x')",
        "pyautogui.hotkey('ctrl', 'shift', 'n')",
        "pyautogui.hotkey('ctrl', 'a')",
        "pyautogui.write('Photos')",
        "pyautogui.press('enter')",
        "WAIT",
        "pyautogui.press('enter')",
        "WAIT",
        "pyautogui.hotkey('ctrl', 'v')",
        "DONE",
    ),
    "thunar-bookmark": (
        "pyautogui.hotkey('ctrl', 'l')",
        "pyautogui.hotkey('ctrl', 'a')",
        "pyautogui.write('/home/user/Documents/Projects')",
        "pyautogui.press('enter')",
        "pyautogui.hotkey('ctrl', 'd')",
        "DONE",
    ),
    "thunar-drag-file": (
        "pyautogui.moveTo(475, 220)",
        "pyautogui.dragTo(410, 215, button='left')",
        "DONE",
    ),
    "thunar-larger-icons": ("pyautogui.keyDown('ctrl'); pyautogui.scroll(1); pyautogui.keyUp('ctrl')", "DONE"),
    "thunar-delete-temporary": (
        "pyautogui.hotkey('ctrl', 's')",
        "pyautogui.write('*.tmp\\n')",
        "WAIT",
        "pyautogui.hotkey('shift', 'delete')",
        "pyautogui.press('enter')",
        "DONE",
    ),
    "xterm-count-errors": ("pyautogui.write('grep -c ERROR server.log > errors.txt\\n')", "DONE"),
    "xterm-stop-program": ("pyautogui.write('pkill -f runaway.sh\\n')", "DONE"),
    "bill-total": (
        "pyautogui.write('148+97=')",
        "pyautogui.hotkey('ctrl', 'c')",
        "pyautogui.click(900, 400)",
        "pyautogui.hotkey('ctrl', 'end')",
        "pyautogui.write('Total: ')",
        "pyautogui.hotkey('ctrl', 'v')",
        "pyautogui.hotkey('ctrl', 's')",
        "DONE",
    ),
    "close-calculator": ("pyautogui.click(250, 110)", "pyautogui.hotkey('alt', 'f4')", "DONE"),
    "move-window": ("pyautogui.moveTo(700, 310)", "pyautogui.dragTo(110, 10, button='left')", "DONE"),
}
"""Task id -> its turns, including DONE or FAIL."""
