"""What actions are as code for the desktop, and where they land on a screen of another size."""

import ast

import pytest

pytest.importorskip("httpx")

from hypothesis import given
from hypothesis import strategies as st

from dartsim.core.types import Task
from dartsim.envs.actions import make_grammar
from dartsim.envs.actions.grammar import can_type
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
from dartsim.real.osworld.pyautogui_code import PASTE, PREFIX, Episode, command, placing, plain, snippets
from dartsim.real.osworld.settings import DesktopSettings


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
    pasted = TypeText("é'\\\n'\u2028, restore=True)")
    for actions, paste in ((ALL, False), ((pasted, Press("a")), True)):
        (text,) = code(*actions, paste=paste)
        ast.parse(text)
        assert make_grammar("pyautogui", 100, 100).parse(plain(text)) == actions


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
    assert code(TypeText("")) == []
    assert code(Press("menu")) == ["pyautogui.press('apps')"]


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("aé🙂<\tb\né", ["P'aé🙂<'", "W'\\t'", "W'b'", "W'\\n'", "P'é'"]),
        ("aé" * 130, [f"P'{'aé' * 130}'"]),
        ("é\n" * 500, ["P'" + "é\\n" * 499 + "é'", "W'\\n'"]),
        ("x" * 1_900, [f"W'{'x' * 1_900}'"]),
        ("x" * 20_000, [f"P'{'x' * 20_000}'"]),
        ("<" * 300, [f"P'{'<' * 300}'"]),
    ],
)
def test_what_the_keyboard_lacks_and_long_texts_are_pasted_at_once(text, lines):
    assert written(code(TypeText(text))) == lines


def written(parts):
    (whole,) = parts
    lines = whole.replace(PASTE, "").strip().replace("; ", "\n").split("\n")
    return [
        line.replace("paste(", "P").removesuffix(", restore=True)").replace("pyautogui.write(", "W").removesuffix(")")
        for line in lines
    ]


def test_texts_are_pasted_as_by_osworld_s_agent():
    for text, lines in {
        "a\nb<\n\n": ["paste('a\\nb<', restore=False)", "pyautogui.press('enter')"],
        "a\nb<": ["paste('a\\nb<', restore=False)"],
    }.items():
        assert code(TypeText(text), paste=True) == ["\n".join([PASTE, *lines])]
    assert code(TypeText("\n"), paste=True) == ["pyautogui.press('enter')"]


TYPED = st.text(max_size=300).filter(can_type).map(TypeText)


@given(st.lists(TYPED | st.just(Drag(1, 2)) | st.just(Wait()), max_size=60))
def test_each_part_of_a_turn_is_short_and_fits_into_a_command(actions):
    parts = code(*actions)
    typed = []
    for part in parts:
        if part is None:
            continue
        assert len(command(part)[2].encode()) < 2**17
        for statement in ast.parse(command(part)[2].replace(PASTE, "")).body:
            call = statement.value if isinstance(statement, ast.Expr) else None
            if isinstance(call, ast.Call) and ast.unparse(call.func) in ("paste", "pyautogui.write"):
                typed.append(call.args[0].value)
            elif isinstance(call, ast.Call) and ast.unparse(call.func) == "pyautogui.hotkey":
                typed.append("<")
    assert "".join(typed) == "".join(action.text for action in actions if isinstance(action, TypeText))
    assert parts.count(None) == actions.count(Wait())
    assert all(part.count("dragTo") <= 21 for part in parts if part)


def test_an_agent_cannot_run_into_a_time_limit():
    def note(text, **settings):
        episode = Episode(Task("t", "x"), DesktopSettings(grammar="compact", **settings))
        return episode.note(text), episode.malformed

    assert note("\n".join(["wait"] * 256)) == (None, 1)
    assert note("\n".join(["drag 1 2 3 4"] * 256)) == (None, 1)
    assert note("\n".join(["type é"] * 200)) == (None, 1)
    assert note("\n".join(["wait"] * 20))[1] == 0
    assert code(Scroll(0, -1_000_000)) == ["pyautogui.scroll(-1000)"]


def test_a_pixel_of_the_picture_is_the_middle_of_its_part_of_the_screen():
    assert placing((1920, 1080), (1920, 1080))(1919, 1079) == (1919, 1079)
    small = placing((112, 112), (1920, 1080))
    assert small(0, 0) == (8, 4)
    assert small(111, 111) == (1911, 1075)
    assert small(500, -3) == (1911, 4)  # beyond the edge is the edge
