"""What each widget does under mouse and keyboard."""

import pytest

from dartsim.core.types import Task
from dartsim.envs.mock.env import MockDesktop
from dartsim.envs.mock.families.drafts import widget, window


def desktop_with(*windows, size=(640, 480), **options):
    env = MockDesktop(width=size[0], height=size[1], **options)
    env.begin(Task("t", "x", spec={"config": [*windows]}))
    return env


def at(env, window_id, widget_id):
    """The center of a widget on the screen."""
    owner = env.desktop.window(window_id)
    placed = next(each for each in owner.placed if each.widget.id == widget_id)
    return env.desktop.shown_box(owner, placed).center


def do(env, *statements):
    for statement in statements:
        env.act(f"pyautogui.{statement}")
        assert env.malformed == 0, statement


def form(*cells, **more):
    return window(id="w", title="W", pages=[[[cell] for cell in cells]], **more)


def test_typing_goes_to_the_caret_and_over_the_selection():
    env = desktop_with(form(widget("text_field", "f"), widget("text_field", "g")))
    field = env.desktop.find("w", "f")
    do(env, "write('lost')")
    assert field.text == ""
    do(env, f"click{at(env, 'w', 'f')}", "write('helo')", "press('left')", "write('l')")
    assert (field.text, field.caret) == ("hello", 4)
    do(env, "press('home')", "press('delete')", "press('end')", "press('backspace')")
    assert field.text == "ell"
    do(env, "hotkey('ctrl', 'a')", "hotkey('ctrl', 'c')", "press('tab')", "hotkey('ctrl', 'v')", "press('space')")
    assert env.desktop.find("w", "g").text == "ell "
    do(env, f"doubleClick{at(env, 'w', 'f')}", "write('A\\tB')")
    assert (field.text, env.desktop.find("w", "g").text) == ("A", "ell B")
    do(env, "keyDown('ctrl')", "press('a')", "press('x')", "keyUp('ctrl')")
    assert (env.desktop.find("w", "g").text, env.desktop.clipboard) == ("", "ell B")
    do(env, "keyDown('shift')", "write('abc')", "press('d')", "keyUp('shift')", "press('e')")
    assert env.desktop.find("w", "g").text == "ABCDe"


# What pyautogui 0.9.54 typed into an xterm.
@pytest.mark.parametrize(
    ("code", "typed"),
    [
        ("press('A')", "A"),
        ("press(['B', 'c', '!'])", "Bc!"),
        ("hotkey('G')", "G"),
        ("hotkey('g', 'H')", "gH"),
        ("hotkey('shift', '1')", "!"),
        ("hotkey('shift', 'a', 'b')", "AB"),
        ("write('xy\\bB')", "xB"),
        ("write(['B', 'SPACE', 'c'])", "B c"),
        ("keyDown('A'); pyautogui.keyUp('A'); pyautogui.press('b')", "Ab"),
        ("keyDown('shift'); pyautogui.write('aBc1'); pyautogui.keyUp('shift')", "ABc1"),
    ],
)
def test_keys_type_what_they_type_on_a_real_desktop(code, typed):
    env = desktop_with(form(widget("text_field", "f")))
    do(env, f"click{at(env, 'w', 'f')}", code)
    assert env.desktop.find("w", "f").text == typed


def test_a_click_in_a_text_sets_the_caret():
    env = desktop_with(form(widget("text_field", "f", text="abcdef")))
    owner = env.desktop.window("w")
    x = owner.placed[0].box.left + env.desktop.layout.gap + 2 * env.desktop.layout.advance
    do(env, f"click({x}, {at(env, 'w', 'f')[1]})", "write('X')")
    assert env.desktop.find("w", "f").text == "abXcdef"


def test_tab_walks_the_widgets_and_space_acts():
    env = desktop_with(
        form(
            widget("label", "l", text="Words"),
            widget("check_box", "c", text="C"),
            widget("button", "off", text="Off", enabled=False),
            widget("button", "b", text="B"),
        )
    )
    do(env, "press('tab')", "press('space')", "press('tab')", "press('enter')")
    assert env.desktop.find("w", "c").checked
    assert env.desktop.pressed == ["w.b"]
    do(env, "hotkey('shift', 'tab')", "press('space')")
    assert not env.desktop.find("w", "c").checked


def test_a_button_wants_press_and_release_on_itself():
    env = desktop_with(form(widget("button", "a", text="A"), widget("button", "b", text="B")))
    do(env, f"moveTo{at(env, 'w', 'a')}", f"dragTo{at(env, 'w', 'b')}")
    assert env.desktop.pressed == []
    do(env, f"mouseDown{at(env, 'w', 'a')}", "mouseUp()", f"rightClick{at(env, 'w', 'b')}")
    assert env.desktop.pressed == ["w.a"]


def test_lists_select_and_scroll_by_wheel_and_keys():
    items = [f"i{i}" for i in range(12)]
    env = desktop_with(form(widget("list", "l", items=items, visible=4)))
    box = env.desktop.find("w", "l")
    x, y = at(env, "w", "l")
    do(env, f"scroll(-5, {x}, {y})")
    assert box.scroll == 3
    do(env, f"scroll(-1, {x}, {y})")
    assert box.scroll == 4
    do(env, f"scroll(50, {x}, {y})", f"click({x}, {y})")
    assert box.value == "i2"
    do(env, "press('down')", "press('end')")
    assert (box.value, box.scroll) == ("i11", 8)
    do(env, "press('home')", "press('pagedown')")
    assert box.value == "i4"


def test_sliders_follow_clicks_drags_and_keys():
    env = desktop_with(form(widget("slider", "s", maximum=4)))
    slider = env.desktop.find("w", "s")
    stops = env.desktop.layout.slider_stops(env.desktop.window("w").placed[0].box, 5)
    y = at(env, "w", "s")[1]
    do(env, f"click({stops[2]}, {y})")
    assert slider.value == 2
    do(env, f"moveTo({stops[2]}, {y})", f"dragTo({stops[4] + 30}, 5)")
    assert slider.value == 4
    do(env, "press('left')", "press('left')", "press('home')", "press('right')")
    assert slider.value == 1


def test_menus_open_choose_and_close():
    env = desktop_with(window(id="w", title="W", menus=[["File", ["New", "-Save"]], ["Edit", ["Undo"]]], pages=[[]]))
    desktop = env.desktop
    owner = desktop.window("w")
    file, edit = (box.center for box in desktop.layout.menu_titles(owner))
    do(env, f"click{file}", f"click{desktop.layout.menu_items(owner, 0)[1].center}")
    assert desktop.choices == []
    assert desktop.open_menu is not None
    do(env, f"click{desktop.layout.menu_items(owner, 0)[0].center}")
    assert (desktop.choices, desktop.open_menu) == (["File > New"], None)
    do(env, f"click{file}", f"click{edit}", "press('esc')")
    assert desktop.open_menu is None
    do(env, f"click{file}", "press('right')", "press('down')", "press('enter')")
    assert desktop.choices == ["File > New", "Edit > Undo"]
    do(env, f"click{file}", f"click{owner.box.center}")
    assert desktop.open_menu is None


def test_windows_move_come_to_the_front_and_close():
    env = desktop_with(
        window(id="a", title="A", place=[0.0, 0.0, 0.5, 0.5], pages=[[]]),
        window(id="b", title="B", place=[0.2, 0.2, 0.5, 0.5], pages=[[]]),
    )
    desktop = env.desktop
    first = desktop.window("a")
    x, y = desktop.layout.title(first).center
    do(env, f"moveTo({x}, {y})", f"dragTo({x + 30}, {y + 40})")
    assert (first.box.left, first.box.top) == (30, 40)
    assert [each.id for each in desktop.windows] == ["b", "a"]
    do(env, f"click{desktop.layout.close(first).center}", "hotkey('alt', 'f4')")
    assert desktop.closed == ["a", "b"]


def test_a_modal_dialog_takes_everything():
    env = desktop_with(
        form(widget("button", "b", text="B", command="open:ask")),
        window(
            "mock_stash",
            id="ask",
            title="Sure?",
            modal=True,
            place=[0.5, 0.5, 0.3, 0.3],
            pages=[[[widget("button", "OK", command="close"), widget("button", "Cancel", command="close")]]],
            default="OK",
            cancel="Cancel",
        ),
    )
    b = at(env, "w", "b")
    do(env, f"click{b}", f"click{b}")
    assert env.desktop.pressed == ["w.b"]
    assert env.desktop.top.id == "ask"
    do(env, "press('enter')", f"click{b}", "press('esc')", f"click{b}")
    assert env.desktop.pressed == ["w.b", "ask.OK", "w.b", "ask.Cancel", "w.b"]


def test_content_scrolls_and_tab_brings_a_widget_into_sight():
    boxes = [widget("check_box", f"c{i}", text=str(i)) for i in range(20)]
    env = desktop_with(form(*boxes), size=(112, 112))
    owner = env.desktop.window("w")
    do(env, "scroll(-5, 50, 60)")
    assert owner.scroll > 0
    do(env, "scroll(500, 50, 60)")
    assert owner.scroll == 0
    do(env, "hotkey('shift', 'tab')")
    assert owner.focused.id == "c19"
    assert not env.desktop.shown_box(owner, owner.placed[19]).empty


def test_pages_turn_and_submitting_keeps_the_values():
    pages = [
        [[widget("text_field", "f")], [widget("button", "go", text="Next", command="next")]],
        [[widget("button", "back", text="Back", command="back"), widget("button", "end", command="submit")]],
    ]
    env = desktop_with(window(id="w", title="W", pages=pages))
    do(env, f"click{at(env, 'w', 'f')}", "write('hi')", f"click{at(env, 'w', 'go')}")
    for name in ("back", "go", "end"):
        do(env, f"click{at(env, 'w', name)}")
    desktop = env.desktop
    assert desktop.submitted["w"]["f"] == "hi"
    assert desktop.windows == []
    assert desktop.pressed == ["w.go", "w.back", "w.go", "w.end"]


def test_a_chip_falls_into_the_bin_under_it():
    env = desktop_with(
        window(id="w", pages=[[[widget("bin", "x"), widget("bin", "y")], [widget("chip", "c", text="C")]]])
    )
    chip = env.desktop.find("w", "c")
    do(env, f"moveTo{at(env, 'w', 'c')}", "dragTo(0, 0)")
    assert chip.value is None
    do(env, f"moveTo{at(env, 'w', 'c')}", f"dragTo{at(env, 'w', 'y')}")
    assert chip.value == "y"


@pytest.mark.parametrize("size", [(96, 96), (112, 112), (640, 480), (1920, 1080)])
def test_nothing_breaks_on_an_empty_desktop(size):
    env = desktop_with(size=size)
    do(env, "click(5, 5)", "write('a')", "press('enter')", "scroll(3)", "dragTo(0, 0)", "press('tab')")
    assert env.observe().screenshot.shape == (size[1], size[0], 3)


def test_the_pointer_stays_on_the_screen():
    env = desktop_with(size=(112, 112))
    do(env, "moveTo(-5, 500000)")
    assert (env.desktop.x, env.desktop.y) == (0, 111)
