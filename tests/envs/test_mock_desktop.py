"""What windows and buttons do under mouse and keyboard."""

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
    return placed.box.center


def do(env, *statements):
    for statement in statements:
        env.act(f"pyautogui.{statement}")
        assert env.malformed == 0, statement


def form(*cells, **more):
    return window(id="w", title="W", pages=[[[cell] for cell in cells]], **more)


def test_a_button_wants_press_and_release_on_itself():
    env = desktop_with(form(widget("button", "a", text="A"), widget("button", "b", text="B")))
    do(env, f"moveTo{at(env, 'w', 'a')}", f"dragTo{at(env, 'w', 'b')}")
    assert env.desktop.pressed == []
    do(env, f"mouseDown{at(env, 'w', 'a')}", "mouseUp()", f"rightClick{at(env, 'w', 'b')}")
    assert env.desktop.pressed == ["w.a"]


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
    do(env, f"click{desktop.layout.close(first).center}")
    assert [each.id for each in desktop.windows] == ["b"]


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
        ),
    )
    b = at(env, "w", "b")
    do(env, f"click{b}", f"click{b}")
    assert env.desktop.pressed == ["w.b"]
    assert env.desktop.top.id == "ask"
    do(env, "press('enter')", f"click{b}", "write('a\\n')", f"click{b}")
    assert env.desktop.pressed == ["w.b", "ask.OK", "w.b", "ask.OK", "w.b"]


def test_pages_turn_and_enter_presses_the_button_that_was_clicked():
    pages = [
        [[widget("button", "go", text="Next", command="next")]],
        [[widget("button", "back", text="Back", command="back"), widget("button", "end", command="page:2")]],
        [[widget("button", "count"), widget("button", "shut", command="close")]],
    ]
    env = desktop_with(window(id="w", title="W", pages=pages))
    for name in ("go", "back", "go", "end", "count"):
        do(env, f"click{at(env, 'w', name)}")
    do(env, "press('enter')", "press('space')", f"click{at(env, 'w', 'shut')}")
    assert env.desktop.windows == []
    assert env.desktop.pressed == ["w.go", "w.back", "w.go", "w.end", *["w.count"] * 3, "w.shut"]


@pytest.mark.parametrize("size", [(96, 96), (112, 112), (640, 480), (1920, 1080)])
def test_nothing_breaks_on_an_empty_desktop(size):
    env = desktop_with(size=size)
    do(env, "click(5, 5)", "write('a')", "press('enter')", "scroll(3)", "dragTo(0, 0)", "press('tab')")
    assert env.observe().screenshot.shape == (size[1], size[0], 3)
