"""What actions are as code for the desktop, and where they land on a screen of another size."""

import ast

import pytest

pytest.importorskip("httpx")

from dartsim.envs.actions import make_grammar, read
from dartsim.envs.actions.model import (
    Click,
    Done,
    Down,
    Drag,
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
from dartsim.real.osworld.pyautogui_code import PREFIX, command, placing, snippets


def here(x, y):
    return x, y


def code(*actions, **options):
    return snippets(actions, here, **options)


ALL = (
    Move(1, 2),
    Click(3, 4),
    Click(),
    Click(5, 6, "right", 2),
    Drag(7, 8),
    Down("middle"),
    Up("middle"),
    Scroll(0, -5),
    TypeText('it\'s "x" \\ 5\n'),
    Press("enter"),
    Hotkey(("ctrl", "s")),
    KeyDown("shift"),
    KeyUp("shift"),
)


def test_what_is_written_means_what_was_read():
    (text,) = code(*ALL)
    assert make_grammar("pyautogui", 100, 100).parse(text) == ALL
    ast.parse(text)


def test_the_command_is_osworlds():
    assert command("pyautogui.press('a')") == ["python", "-c", PREFIX + "pyautogui.press('a')"]
    assert PREFIX == "import pyautogui; import time; pyautogui.FAILSAFE = False; "


def test_waiting_parts_the_code_and_done_ends_it():
    assert code(Wait()) == [None]
    assert code(Press("a"), Wait(), Press("b")) == ["pyautogui.press('a')", None, "pyautogui.press('b')"]
    assert code(Press("a"), Done(), Press("b")) == ["pyautogui.press('a')"]
    assert code(Done()) == []
    assert code() == []


def test_the_wheel_turns_both_ways():
    assert code(Scroll(2, 3)) == ["pyautogui.scroll(3); pyautogui.hscroll(2)"]


def test_what_the_keyboard_types_wrong_is_typed_otherwise():
    assert code(Press("<")) == ["pyautogui.hotkey('shift', ',')"]
    assert code(Hotkey(("ctrl", "<"))) == ["pyautogui.hotkey('ctrl', 'shift', ',')"]
    assert code(TypeText("a<<b")) == [
        "pyautogui.write('a'); pyautogui.hotkey('shift', ','); pyautogui.hotkey('shift', ','); pyautogui.write('b')"
    ]
    (pasted,) = code(TypeText("aé🙂"), key_seconds=0.01)
    assert pasted == (
        "pyautogui.write('a', interval=0.01); import pyperclip; pyperclip.copy('é🙂'); "
        "pyautogui.hotkey('ctrl', 'v'); time.sleep(0.3)"
    )
    assert code(TypeText("")) == []
    assert code(Press("menu")) == ["pyautogui.press('apps')"]


def test_texts_are_pasted_as_by_osworld_s_agent():
    copied = "import pyperclip; pyperclip.copy('a\\nb<'); pyautogui.hotkey('ctrl', 'v'); time.sleep(0.5)"
    assert code(TypeText("a\nb<\n\n"), paste=True) == [f"{copied}; pyautogui.press('enter')"]
    assert code(TypeText("a\nb<"), paste=True) == [copied]
    assert code(TypeText("\n"), paste=True) == ["pyautogui.press('enter')"]


def test_a_pixel_of_the_picture_is_the_middle_of_its_part_of_the_screen():
    assert placing((1920, 1080), (1920, 1080))(1919, 1079) == (1919, 1079)
    small = placing((112, 112), (1920, 1080))
    assert small(0, 0) == (8, 4)
    assert small(111, 111) == (1911, 1075)
    assert small(500, -3) == (1911, 4)  # beyond the edge is the edge


def test_words_and_dictionaries_are_understood_in_every_grammar():
    grammar = make_grammar("compact", 112, 112)
    assert read(grammar, "DONE") == (Done(),)
    assert read(grammar, "WAIT") == (Wait(),)
    assert read(grammar, {"action_type": "PRESS", "parameters": {"key": "a"}}) == (Press("a"),)
    assert read(grammar, "key a") == (Press("a"),)
    assert read(grammar, "pyautogui.press('a')") is None
