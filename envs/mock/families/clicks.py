"""Families that need clicks only: buttons, pages, check boxes, menus, windows, and locks."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from dartsim.envs.mock.families.drafts import (
    COLORS,
    WORDS,
    Family,
    Spec,
    TaskDraft,
    background,
    expect,
    expect_values,
    listed,
    one,
    pick,
    rows_of,
    somewhere,
    widget,
    window,
)

_CELLS = 9
_SPARE = 0.35
"""Share of a cell that a button leaves empty, on each axis; every button covers its cell's center."""


def _inset_button(rng: np.random.Generator, name: str, color: str, **values: Any) -> Spec:
    """Return a colored button somewhere in its cell."""
    left, top = (round(float(share) * _SPARE, 3) for share in rng.random(2))
    inset = [left, top, round(_SPARE - left, 3), round(_SPARE - top, 3)]
    return widget("button", name, color=color, inset=inset, **values)


def click_button(rng: np.random.Generator, difficulty: int) -> TaskDraft:
    """Draw one colored button on a grid of 3 × 3 cells, with others of other colors."""
    num_others = min(difficulty - 1, _CELLS - 1)
    colors = pick(rng, COLORS, 1 + num_others) if num_others else ["red"]
    places = rng.permutation(_CELLS)[: len(colors)].tolist()
    cells = [widget("space", f"space{i}") for i in range(_CELLS)]
    for place, color in zip(places, colors, strict=True):
        cells[place] = _inset_button(rng, f"cell{place}", color)
    name = f"screen.cell{places[0]}"
    return TaskDraft(
        f"Press the {colors[0]} button.",
        expect("exact_match", {"type": "mock_pressed", "window": "screen"}, [name]),
        [["press", name]],
        [background(rng), window(id="screen", bare=True, fill=True, pages=[rows_of(cells, 3)])],
        auto_done=True,
    )


def pages(rng: np.random.Generator, difficulty: int) -> TaskDraft:
    """Draw pages with one red button each, which turns the page; clicks beside it do nothing."""
    steps, names, place = [], [], int(rng.integers(_CELLS))
    for number in range(difficulty):
        cells = [widget("space", f"page{number}space{i}") for i in range(_CELLS)]
        cells[place] = widget("button", f"page{number}", color="red", command="next")
        steps.append(rows_of(cells, 3))
        names.append(f"screen.page{number}")
        place = (place + 1 + int(rng.integers(_CELLS - 1))) % _CELLS  # another one, so that a turn shows
    return TaskDraft(
        "Press the red button of each page.",
        expect("exact_match", {"type": "mock_pressed", "window": "screen"}, names),
        [["press", name] for name in names],
        [background(rng, 215), window(id="screen", bare=True, fill=True, pages=[*steps, _end_page()])],
    )


def button_order(rng: np.random.Generator, difficulty: int) -> TaskDraft:
    """Draw buttons with names, to be pressed in an order; ``3 * difficulty`` presses."""
    num_presses = 3 * difficulty
    names = pick(rng, WORDS, min(3 + difficulty, 8))
    order = [names[int(i)] for i in rng.integers(len(names), size=num_presses)]
    cells = [widget("button", name, text=name) for name in names]
    pressed = [f"pad.{name}" for name in order]
    return TaskDraft(
        f"Press these buttons in this order: {', '.join(order)}.",
        expect("exact_match", {"type": "mock_pressed", "window": "pad"}, pressed),
        [["press", name] for name in pressed],
        [background(rng), window(id="pad", title="Pad", place=somewhere(rng), pages=[rows_of(cells, 2)])],
    )


def check_boxes(rng: np.random.Generator, difficulty: int) -> TaskDraft:
    """Draw check boxes, ``difficulty`` of which are to be changed."""
    names = pick(rng, WORDS, difficulty + 2)
    before = [bool(flip) for flip in rng.integers(2, size=len(names))]
    changed = set(rng.permutation(len(names))[:difficulty].tolist())
    after = [state != (i in changed) for i, state in enumerate(before)]
    boxes = [[widget("check_box", n, text=n, checked=b)] for n, b in zip(names, before, strict=True)]
    wanted = [name for name, state in zip(names, after, strict=True) if state]
    request = f"Check {listed(wanted)}, and nothing else." if wanted else "Uncheck all boxes."
    full = [f"options.{name}" for name in names]
    return TaskDraft(
        request,
        expect_values(full, after),
        [["check", name, state] for name, state in zip(full, after, strict=True)],
        [background(rng), window(id="options", title="Options", place=somewhere(rng), pages=[boxes])],
    )


_MENUS = {
    "File": ["New", "Open", "Save", "Print", "Quit"],
    "Edit": ["Undo", "Copy", "Paste", "Find"],
    "View": ["Zoom", "Full", "Rulers"],
    "Help": ["Guide", "About"],
}


def menu_path(rng: np.random.Generator, difficulty: int) -> TaskDraft:
    """Draw menus to choose from: more menus, and up to five choices in order."""
    titles = list(_MENUS)[: min(2 + difficulty // 2, 4)]
    num_choices = 1 + difficulty // 3 if difficulty > 3 else 1
    choices = []
    for _ in range(num_choices):
        title = titles[int(rng.integers(len(titles)))]
        choices.append((title, _MENUS[title][int(rng.integers(len(_MENUS[title])))]))
    written = [f"{title} > {item}" for title, item in choices]
    text = [[widget("label", "text", text="Untitled")]]
    menus = [[title, _MENUS[title]] for title in titles]
    return TaskDraft(
        f"In the menu, choose {', then '.join(written)}.",
        expect("exact_match", {"type": "mock_choices"}, written),
        [["choose", "editor", title, item] for title, item in choices],
        [
            background(rng),
            window(id="editor", title="Editor", place=[0.02, 0.02, 0.96, 0.94], menus=menus, pages=[text]),
        ],
    )


def window_close_order(rng: np.random.Generator, difficulty: int) -> TaskDraft:
    """Draw windows in a cascade, some of which are to be closed in an order."""
    num_windows = min(2 + difficulty // 2, 5)
    num_closed = min(1 + difficulty // 2, num_windows)
    names = pick(rng, WORDS, num_windows)
    order = pick(rng, names, num_closed)
    steps: list[Spec] = [background(rng)]
    for i, name in enumerate(names):
        text = [[widget("label", "text", text=name)]]
        place = [0.03 + 0.04 * i, 0.01 + 0.14 * i, 0.75, 0.42]
        steps.append(window(id=name, title=name, place=[round(part, 3) for part in place], pages=[text]))
    request = (
        f"Close the window {order[0]}."
        if num_closed == 1
        else f"Close these windows, in this order: {', '.join(order)}."
    )
    return TaskDraft(
        request + (" Leave the others open." if num_closed < num_windows else ""),
        expect("exact_match", {"type": "mock_closed", "windows": names}, order),
        [["close", name] for name in order],
        steps,
    )


# Locks: pages full of buttons of one color, on each of which one button is right. Which one follows from the color
# alone, is the same in all tasks, and is stated nowhere: it has to be known or discovered. A wrong press counts, cannot
# be undone and does not show, so the rest of the attempt is in vain; it ends when the agent declares the task done, or
# at the turn limit.

RIGHT_CELL = {
    **{"red": 4, "green": 1, "blue": 6},
    **{"yellow": 8, "orange": 3, "purple": 5},
    **{"cyan": 7, "pink": 0, "brown": 2},
}
"""Color of a page, and the cell of its right button, row by row."""

PLAIN, MIXED, ODD = (tuple(list(RIGHT_CELL)[first : first + 3]) for first in (0, 3, 6))
"""The colors of each family."""


def locks(rng: np.random.Generator, difficulty: int, colors: tuple[str, ...]) -> TaskDraft:
    """Draw a lock of 1 to 5 pages, each of one of the colors."""
    steps, names = [], []
    for number in range((difficulty + 1) // 2):
        color = one(rng, colors)
        steps.append(_page(rng, number, color))
        names.append(f"screen.page{number}cell{RIGHT_CELL[color]}")
    return TaskDraft(
        "Press the button of each page.",
        expect("exact_match", {"type": "mock_pressed", "window": "screen"}, names),
        [["press", name] for name in names],
        [background(rng), window(id="screen", bare=True, fill=True, pages=[*steps, _end_page()])],
    )


def _end_page() -> list[list[Spec]]:
    """Return the page after the last button."""
    cells = [widget("space", f"end{place}") for place in range(_CELLS)]
    cells[_CELLS // 2] = widget("label", "end", text="OK")
    return rows_of(cells, 3)


def _page(rng: np.random.Generator, number: int, color: str) -> list[list[Spec]]:
    """Return a page of buttons; the right one turns it."""
    cells = [
        _inset_button(rng, f"page{number}cell{place}", color, command="next" if place == RIGHT_CELL[color] else "")
        for place in range(_CELLS)
    ]
    return rows_of(cells, 3)


FAMILIES = (
    Family("click_button", "d - 1 buttons of other colors; one click ends the episode", click_button),
    Family("pages", "d pages, each with a red button that turns it; then done", pages),
    Family("button_order", "3 d presses in a given order", button_order),
    Family("check_boxes", "d boxes to change, of d + 2", check_boxes),
    Family("menu_path", "2 to 4 menus, 1 to 4 choices", menu_path),
    Family("window_close_order", "2 to 5 windows, 1 to 5 to close in order", window_close_order),
    *(
        Family(f"{name}_locks", f"1 to 5 pages, each {', '.join(colors)}", partial(locks, colors=colors))
        for name, colors in (("plain", PLAIN), ("mixed", MIXED), ("odd", ODD))
    ),
)
