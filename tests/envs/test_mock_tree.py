import copy
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dartsim.core.types import Task
from dartsim.envs.actions.grammar import KEYS
from dartsim.envs.actions.model import Click, Drag, Move, Press, TypeText
from dartsim.envs.mock.desktop import VirtualDesktop
from dartsim.envs.mock.env import MockDesktop
from dartsim.envs.mock.families.drafts import widget, window
from dartsim.envs.mock.geometry import Box
from dartsim.envs.mock.oracle import oracle_actions, oracle_text
from dartsim.envs.mock.paint import Painter
from dartsim.envs.mock.perform import perform
from dartsim.envs.mock.scene import scene
from dartsim.envs.mock.suites import FAMILIES, mock_tasks
from dartsim.envs.mock.tree import accessibility_tree

_NS = "https://accessibility.ubuntu.example.org/ns"
NAMESPACES = {"st": f"{_NS}/state", "cp": f"{_NS}/component", "val": f"{_NS}/value"}
SIZES = [(96, 96), (112, 112), (300, 120), (160, 240)]
share = st.floats(0, 1)


@st.composite
def moments(draw):
    """A desktop at some moment of an episode: partly by the oracle, partly by chance."""
    size = draw(st.sampled_from(SIZES))
    family = draw(st.sampled_from(sorted(FAMILIES)))
    (task,) = mock_tasks(family, 1, draw(st.integers(0, 10**6)), draw(st.integers(1, 10)))
    env = MockDesktop(width=size[0], height=size[1], auto_done=False)
    env.begin(task)

    def place():
        return round(draw(share) * (size[0] - 1)), round(draw(share) * (size[1] - 1))

    kinds = ("oracle", "oracle", "click", "double", "drag", "type", "key")
    for kind in draw(st.lists(st.sampled_from(kinds), max_size=12)):
        match kind:
            case "oracle":
                actions = oracle_actions(env.desktop, task)
            case "click" | "double":
                actions = (Click(*place(), count=2 if kind == "double" else 1),)
            case "drag":
                actions = (Move(*place()), Drag(*place()))
            case "type":
                actions = (TypeText(draw(st.text(max_size=12))),)
            case _:
                actions = (Press(draw(st.sampled_from(KEYS))),)
        perform(env.desktop, actions)
    env.desktop.interrupts.clear()
    return env.desktop


def name(key):
    prefix, _, local = key.partition(":")
    return f"{{{NAMESPACES[prefix]}}}{local}"


def box_of(node):
    x, y = (int(part) for part in node.get(name("cp:screencoord")).strip("()").split(","))
    width, height = (int(part) for part in node.get(name("cp:size")).strip("()").split(","))
    return Box(x, y, x + width, y + height)


def nodes(desktop):
    """All nodes with a box below the root."""
    tree = ET.fromstring(accessibility_tree(desktop))
    return [node for node in tree.iter() if node.get(name("cp:size"))]


def is_on(node, state):
    return node.get(name(f"st:{state}")) == "true"


def painted(desktop: VirtualDesktop):
    return Painter(desktop.layout.width, desktop.layout.height).paint(scene(desktop))


def widget_of(desktop, node):
    window_id, _, widget_id = node.get("id").partition(".")
    window = desktop.window(window_id)
    return window, window and next((p.widget for p in window.placed if p.widget.id == widget_id), None)


@given(moments())
def test_every_box_lies_on_the_screen_and_ids_are_unique(desktop):
    found = nodes(desktop)
    for node in found:
        if node.tag != "frame" and is_on(node, "showing"):
            box = box_of(node)
            assert not box.empty
            assert box.meet(desktop.layout.screen) == box
    ids = [node.get("id") for node in found]
    assert len(set(ids)) == len(ids)


@given(moments())
@settings(max_examples=60)
def test_a_widget_is_drawn_inside_its_box(desktop):
    whole = painted(desktop)
    for node in nodes(desktop):
        window, widget = widget_of(desktop, node)
        if node.tag == "frame" or widget is None:
            continue
        box = box_of(node)
        placed = list(window.placed)
        window.placed = [each for each in placed if each.widget is not widget]
        changed = (painted(desktop) != whole).any(axis=2)
        window.placed = placed
        inside = changed[box.top : box.bottom, box.left : box.right].copy()
        changed[box.top : box.bottom, box.left : box.right] = False
        assert not changed.any() or window.focus >= 0, node.attrib
        if window is desktop.top and widget.kind != "label":
            assert inside.any(), node.attrib


@given(moments())
@settings(max_examples=60)
def test_a_click_on_the_center_of_a_box_acts_on_its_widget(desktop):
    for node in nodes(desktop):
        if node.tag in ("frame", "label") or not is_on(node, "showing"):
            continue
        trial = copy.deepcopy(desktop)
        perform(trial, (Click(*box_of(node).center),))
        pressed = [node.get("id")] if is_on(node, "enabled") else []
        if node.get("id").endswith(".close"):
            assert len(trial.windows) == len(desktop.windows) - len(pressed)
        else:
            assert trial.pressed == [*desktop.pressed, *pressed], node.attrib


@given(moments(), st.lists(st.tuples(share, share), min_size=1, max_size=5))
@settings(max_examples=60)
def test_drawing_what_changed_gives_what_drawing_all_gives(desktop, clicks):
    width, height = desktop.layout.width, desktop.layout.height
    painter = Painter(width, height)
    assert (painter.paint(scene(desktop)) == painted(desktop)).all()
    for x, y in clicks:
        perform(desktop, (Click(round(x * (width - 1)), round(y * (height - 1))),))
        assert (painter.paint(scene(desktop)) == painted(desktop)).all()
    assert painter.paint(scene(desktop)) is painter.paint(scene(desktop))


def test_a_covered_window_is_marked_and_a_dialog_disables_the_rest():
    env = MockDesktop(width=320, height=240, accessibility=True)
    env.begin(mock_tasks("plain_jobs", 1, 0, 4)[0])
    env.act(oracle_text(env))  # opens an application, whose page is full of buttons
    before = {node.get("id"): node for node in nodes(env.desktop)}
    while not env.desktop.modal:
        env.act("WAIT")
    after = {node.get("id"): node for node in nodes(env.desktop)}
    buttons = [key for key in before if before[key].tag == "push-button" and is_on(before[key], "showing")]
    assert len(buttons) >= 5
    assert all(is_on(before[key], "enabled") for key in buttons)
    assert not any(is_on(after[key], "enabled") for key in buttons)
    assert any(not is_on(after[key], "showing") for key in buttons)
    assert is_on(after["dialog0.OK"], "showing")
    assert is_on(after["dialog0.OK"], "enabled")


@pytest.mark.parametrize("text", ["<&>\"'", "\x00\x0b\ud800", "a\tb", "尺寸 🙂"])
def test_any_text_gives_well_formed_xml(text):
    env = MockDesktop(width=320, height=240, accessibility=True)
    page = [[widget("label", "words", text=text)]]
    env.begin(Task("t", "x", spec={"config": [window(id="w", title=text, pages=[page])]}))
    tree = ET.fromstring(env.observe().accessibility_tree)
    assert tree.find(".//label").text is not None
    assert np.asarray(env.observe().screenshot).any()
