from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dartsim.envs.actions import GRAMMARS, make_grammar, read
from dartsim.envs.actions.computer_13 import read_dictionary
from dartsim.envs.actions.grammar import KEYS, Inexpressible, MalformedAction, can_type
from dartsim.envs.actions.model import (
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

SIZES = [(112, 112), (96, 200), (640, 480), (1920, 1080)]

sizes = st.sampled_from(SIZES)
keys = st.sampled_from(KEYS)
buttons = st.sampled_from(["left", "right", "middle"])
notches = st.integers(-20, 20)
texts = st.text(max_size=30).filter(can_type)


@st.composite
def actions_on(draw, size):
    """Any actions, their positions on a screen."""
    x, y = st.integers(0, size[0] - 1), st.integers(0, size[1] - 1)
    counts = st.integers(1, 3)
    each = st.one_of(
        st.builds(Move, x, y),
        st.builds(Click, x, y, buttons, counts),
        st.builds(Click, st.none(), st.none(), buttons, counts),
        st.builds(Drag, x, y, buttons),
        st.builds(Down, buttons),
        st.builds(Up, buttons),
        st.builds(Scroll, notches, notches),
        st.sampled_from([Scroll(0, 5), Scroll(0, -5), Scroll(5, 0), Scroll(-5, 0)]),
        st.builds(TypeText, texts),
        st.builds(Press, keys),
        st.builds(Hotkey, st.lists(keys, min_size=1, max_size=4).map(tuple)),
        st.builds(KeyDown, keys),
        st.builds(KeyUp, keys),
        st.sampled_from([Wait(), Done(), Fail()]),
    )
    return tuple(draw(st.lists(each, min_size=1, max_size=4)))


def snapped(grammar, action):
    if isinstance(action, (Move, Drag)) or (isinstance(action, Click) and action.x is not None):
        x, y = grammar.snap(action.x, action.y)
        more = {Move: (), Drag: ("button",), Click: ("button", "count")}[type(action)]
        return type(action)(x, y, *(getattr(action, name) for name in more))
    return action


@pytest.mark.parametrize("name", GRAMMARS)
@given(st.data())
def test_what_is_written_is_read_as_it_was_meant(name, data):
    size = data.draw(sizes)
    grammar = make_grammar(name, *size)
    actions = data.draw(actions_on(size))
    try:
        text = grammar.format(actions)
    except Inexpressible:
        return
    assert grammar.parse(text) == tuple(snapped(grammar, action) for action in actions)
    assert grammar.format(grammar.parse(text)) == text


@pytest.mark.parametrize("name", ["ui_tars", "ui_tars_absolute"])
@pytest.mark.parametrize("key", ["'", '"', "\\"])
def test_a_key_that_ends_a_text_is_written_as_one(name, key):
    grammar = make_grammar(name, 112, 112)
    for action in (Press(key), Hotkey((key,)), Hotkey(("ctrl", key))):
        assert grammar.parse(grammar.format((action,))) == (action,)


# What each grammar must have words for; the round trip above passes over the rest.
COMMON = (
    Click(5, 6),
    Click(5, 6, count=2),
    Click(5, 6, "right"),
    Move(3, 4),
    TypeText('It\'s "1" \\ 2\n'),
    Press("enter"),
    Hotkey(("ctrl", "a")),
    Wait(),
)


@pytest.mark.parametrize("name", GRAMMARS)
@pytest.mark.parametrize("size", SIZES)
def test_every_grammar_has_words_for_the_common_actions(name, size):
    grammar = make_grammar(name, *size)
    sequences = [
        *((action,) for action in COMMON),
        (Move(1, 2), Drag(50, 60)),
        (Move(1, 2), Scroll(0, -5)),
        (Done(),),
        (Fail(),),
    ]
    for actions in sequences:
        assert grammar.parse(grammar.format(actions)) == tuple(snapped(grammar, each) for each in actions)


@given(st.data())
def test_pyautogui_has_words_for_all_buttons_and_keys(data):
    grammar = make_grammar("pyautogui", 640, 480)
    for action in data.draw(actions_on((640, 480))):
        if isinstance(action, (Scroll, Drag)):
            continue
        assert grammar.parse(grammar.format([action])) == (action,)


@pytest.mark.parametrize("name", GRAMMARS)
@given(text=st.one_of(st.text(), st.text("()[]{}'\"\\.,:;=-+ \n0123456789eclikxypboxAtnw_", max_size=60)))
def test_no_text_breaks_a_parser(name, text):
    grammar = make_grammar(name, 640, 480)
    for whole in (text, f"Thought: a\nAction: {text}", f"pyautogui.{text}", f"pyautogui.click({text})"):
        try:
            actions = grammar.parse(whole)
        except MalformedAction:
            continue
        assert isinstance(actions, tuple)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
KINDS = st.sampled_from(["CLICK", "SCROLL", "TYPING", "PRESS", "HOTKEY", "MOVE_TO", "DRAG_TO", "MOUSE_DOWN", "WAIT"])
FIELDS = st.sampled_from(["x", "y", "button", "num_clicks", "dx", "dy", "text", "key", "keys"])


@given(KINDS, st.dictionaries(FIELDS, JSON, max_size=4))
def test_no_dictionary_breaks_computer_13(kind, values):
    for value in ({"action_type": kind, "parameters": values}, {"action_type": kind, **values}):
        with suppress(MalformedAction):
            read_dictionary(value)


@pytest.mark.parametrize(
    ("code", "meant"),
    [
        ("pyautogui.click(12, 34)", (Click(12, 34),)),
        ("pyautogui.click((3, 4), button='right')", (Click(3, 4, "right"),)),
        ("import pyautogui\npyautogui.FAILSAFE = False; pyautogui.rightClick(1, 2)", (Click(1, 2, "right"),)),
        ("pyautogui.moveTo(1, 2, 0.7, pyautogui.easeInQuad)", (Move(1, 2),)),
        ("pyautogui.scroll(-3, 10, 20)", (Move(10, 20), Scroll(0, -3))),
        ("pyautogui.typewrite('hi', interval=0.1); time.sleep(2)", (TypeText("hi"),)),
        ("pyautogui.press('RETURN')", (Press("enter"),)),
        ("pyautogui.press('A'); pyautogui.press(['B', 'c', '!'])", (Press("A"), Press("B"), Press("c"), Press("!"))),
        ("pyautogui.write(['G', 'Enter'])", (Press("G"), Press("enter"))),
        ("pyautogui.keyDown('F13'); pyautogui.keyUp('A')", (KeyDown("f13"), KeyUp("A"))),
        (r"pyautogui.write('hi \ud83d\ude00')", (TypeText("hi 😀"),)),
        ("pyautogui.write('hi \ud83d\ude00')", (TypeText("hi 😀"),)),
        ("import pyperclip\npyperclip.copy('a b')\npyautogui.hotkey('ctrl', 'v')", (TypeText("a b"),)),
        ("pyautogui.hotkey('ctrl', 'v')", (Hotkey(("ctrl", "v")),)),
        ("pyautogui.press(['a', 'b'], presses=2)", (Press("a"), Press("b"), Press("a"), Press("b"))),
        ("pyautogui.hotkey(['ctrl', 'c'])", (Hotkey(("ctrl", "c")),)),
        ("pyautogui.keyDown('shift'); pyautogui.mouseDown(1, 2)", (KeyDown("shift"), Move(1, 2), Down())),
        ("time.sleep(3)", ()),
        ("pyautogui.click(1, 2); DONE", (Click(1, 2), Done())),
        ("DONE", (Done(),)),
    ],
)  # fmt: skip
def test_pyautogui_code(code, meant):
    assert make_grammar("pyautogui", 640, 480).parse(code) == meant


@pytest.mark.parametrize(
    "code",
    [
        "",
        "click(1, 2)",
        "os.system('x')",
        "__import__('os').system('x')",
        "pyautogui.click(1)",
        "pyperclip.copy('never pasted')",
        "pyperclip.copy(secret)",
        "pyautogui.click(1, 2, 3, 4, 5, 6, 7, 8, 9, 10)",
        "pyautogui.click(1, 2, x=3)",
        "pyautogui.click(x=y, y=2)",
        "pyautogui.click(1e999, 2)",
        "pyautogui.click(1, 2, clicks=1000000000)",
        "pyautogui.click(*[1, 2])",
        "pyautogui.press('nokey')",
        "pyautogui.press('a', presses=1000000000)",
        "pyautogui.write(open('x'))",
        "pyautogui.alert('x')",
        "for i in range(9): pyautogui.click(1, 2)",
        "pyautogui.click(1, 2); nonsense",
        "x = 1",
        "(" * 5000,
        "-" * 5000 + "1",
        "\0",
    ],
)
def test_code_that_is_no_action_is_refused_whole(code):
    with pytest.raises(MalformedAction):
        make_grammar("pyautogui", 640, 480).parse(code)


UNTYPABLE = ["\ud83d", "\ufffd", "a\ude00b", "\ude00\ud83d", "\0", "\x1b", "\x7f", "\x85", "a" * 20_001]


@pytest.mark.parametrize("text", UNTYPABLE)
def test_what_no_desktop_can_type_is_malformed(text):
    """Not a fault of the desktop, which would mask the attempt."""
    replies = {
        "pyautogui": f"pyautogui.write({text!r})",
        "ui_tars": f"Action: type(content={text!r})",
        "compact": f"type {text}",
    }
    for name, reply in replies.items():
        grammar = make_grammar(name, 640, 480)
        assert read(grammar, reply) is None
        assert read(grammar, {"action_type": "TYPING", "text": text}) is None
        if len(text) < 5:
            with pytest.raises(Inexpressible):
                grammar.format([TypeText(text)])


@pytest.mark.parametrize(
    ("value", "meant"),
    [
        ({"action_type": "CLICK", "parameters": {"x": 1, "y": 2}}, Click(1, 2)),
        ({"action_type": "CLICK", "x": 1, "y": 2, "num_clicks": 3}, Click(1, 2, count=3)),
        ({"action_type": "CLICK", "parameters": {}}, Click()),
        ({"action_type": "RIGHT_CLICK"}, Click(button="right")),
        ({"action_type": "SCROLL", "parameters": {"dx": 0, "dy": -2}}, Scroll(0, -2)),
        ({"action_type": "TYPING", "parameters": {"text": "a"}}, TypeText("a")),
        ({"action_type": "HOTKEY", "parameters": {"keys": ["Ctrl", "C"]}}, Hotkey(("ctrl", "C"))),
        ({"action_type": "DONE"}, Done()),
        ({"action_type": "FAIL", "parameters": {}}, Fail()),
    ],
)
def test_computer_13_dictionaries(value, meant):
    assert read_dictionary(value) == (meant,)


@pytest.mark.parametrize(
    ("reply", "meant"),
    [
        ("Thought: I see.\nAction: click(start_box='(500,250)')", (Click(320, 120),)),
        ("Action: click(point='<point>500 250</point>')", (Click(320, 120),)),
        ("Action: click(start_box='<|box_start|>(500,250)<|box_end|>')", (Click(320, 120),)),
        ("Action: click(start_box='[490, 240, 510, 260]')", (Click(320, 120),)),
        ("Action: left_double(start_box='(1000,1000)')", (Click(639, 479, count=2),)),
        ("Action: right_single(start_box='(0,0)')", (Click(0, 0, "right"),)),
        ("Action: drag(start_box='(0,0)', end_box='(500,500)')", (Move(0, 0), Drag(320, 240))),
        ("Action: hotkey(key='ctrl c')", (Hotkey(("ctrl", "c")),)),
        (r"Action: type(content='hello\n')", (TypeText("hello\n"),)),
        ("Action: type(content='it's')", (TypeText("it's"),)),
        (r"Action: type(content='it's\n')", (TypeText("it's\n"),)),
        (r"Action: type(content='it\'s')", (TypeText("it's"),)),
        ("Action: type(content='C:\\')", (TypeText("C:\\"),)),
        ("Action: type(content='a\nb')", (TypeText("a\nb"),)),
        ("Action: finished(content='it's')", (Done(),)),
        ("Action: finished(content='Done.\n\nThat's all')", (Done(),)),
        ("Action: call_user(content='I can't')", (Fail(),)),
        ("Action: scroll(start_box='(500,500)', direction='down')", (Move(320, 240), Scroll(0, -5))),
        ("Action: wait()", (Wait(),)),
        ("Action: call_user()", (Fail(),)),
        ("Action: click(start_box='(0,0)')\n\ntype(content='a')", (Click(0, 0), TypeText("a"))),
        # What OSWorld's parser carries out, too.
        ("Action: scroll(start_box='(500,500)', direction='Down')", (Move(320, 240), Scroll(0, -5))),
        ("Action: scroll(direction='scroll up', step=3)", (Scroll(0, 5),)),
        ("Action: click(start_box='(500,250)', end_box='(600,300)')", (Click(320, 120),)),
        ("Action: right_single(point='<point>500 250</point>', why='menu')", (Click(320, 120, "right"),)),
        ("Action: drag(start_box='(0,0)', end_box='(500,500)', speed='slow')", (Move(0, 0), Drag(320, 240))),
        ("Action: pyautogui.hotkey(key='ctrl a', content='x')", (Hotkey(("ctrl", "a")),)),
        ("Action: hotkey(hotkey='ctrl a')", (Hotkey(("ctrl", "a")),)),
        (r"Action: type(content='hello\\n')", (TypeText("hello\n"),)),
        (r"Action: type(content='hello\n\n', start_box='(1,2)')", (TypeText("hello\n"),)),
        ("Action: type(content='hello\n')", (TypeText("hello\n"),)),
        ("Action: press(press='enter')", (Press("enter"),)),
        ("Action: release(key='Shift', content='')", (KeyUp("shift"),)),
        ("Action: finished(answer='x')", (Done(),)),
        ("Action: error_env()", (Fail(),)),
        # What it does otherwise: nothing, a key that stays down, a text without its first blanks, an error.
        ("Action: scroll(direction='left')", (Scroll(-5, 0),)),
        ("Action: press(key='a')", (Press("a"),)),
        ("Action: type(content='  a')", (TypeText("  a"),)),
        ("Action: click((500, 250))", (Click(320, 120),)),
    ],
)
def test_ui_tars_replies(reply, meant):
    assert make_grammar("ui_tars", 640, 480).parse(reply) == meant


@pytest.mark.parametrize(
    "reply",
    [
        "click(start_box='(1,2)')",
        "Action: ",
        "Action: fly()",
        "Action: click(start_box='(1,2,3)')",
        "Action: click(start_box='here')",
        "Action: click()",
        "Action: scroll(start_box='(1,2)', direction='in')",
        "Action: drag(start_box='(1,2)')",
        "Action: hotkey(key='nokey')",
        "Action: click(start_box='(1,2)')\n\nfly()",
    ],
)
def test_replies_that_are_no_action_are_refused_whole(reply):
    with pytest.raises(MalformedAction):
        make_grammar("ui_tars", 640, 480).parse(reply)


@pytest.mark.parametrize("reply", ["", "click(start_box='(1,2)')", "Action: ", "Action: click(start_box='here')"])
def test_a_reply_that_cannot_be_read_may_end_the_attempt(reply):
    assert make_grammar("ui_tars", 640, 480, malformed="done").parse(reply) == (Done(),)
    assert make_grammar("ui_tars", 640, 480, malformed="fail").parse(reply) == (Fail(),)
    assert not make_grammar("ui_tars", 640, 480).readable(reply)


@pytest.mark.parametrize(
    "reply",
    ["Action: fly()", "Action: hotkey(key='nokey')", "Action: hotkey(key='')", "Action: scroll(direction='in')"],
)
def test_a_reply_that_names_nothing_known_changes_nothing(reply):
    """OSWorld's agent turns it into code without effect."""
    grammar = make_grammar("ui_tars", 640, 480, malformed="done")
    assert grammar.readable(reply)
    with pytest.raises(MalformedAction):
        grammar.parse(reply)


def test_absolute_coordinates_are_those_of_the_resized_picture():
    grammar = make_grammar("ui_tars_absolute", 1920, 1080)
    assert grammar.extent == (1932, 1092)
    assert grammar.parse("Action: click(start_box='(966,546)')") == (Click(960, 540),)
    assert make_grammar("ui_tars_absolute", 1280, 720).extent == (1288, 728)
    assert make_grammar("ui_tars_absolute", 112, 112).extent == (280, 280)
    assert make_grammar("ui_tars_absolute", 112, 112, min_pixels=1).extent == (112, 112)


def test_the_compact_grid_means_the_center_of_its_cells():
    grammar = make_grammar("compact", 112, 112, columns=3, rows=3)
    assert grammar.parse("click 0 2") == (Click(18, 93),)
    assert grammar.format([Click(111, 40)]) == "click 2 1"
    for line in ("click 3 0", "click 0", "click -1 0", "click 00 1", "key nokey", "type", "type a\\b", "scroll in"):
        with pytest.raises(MalformedAction):
            grammar.parse(line)
