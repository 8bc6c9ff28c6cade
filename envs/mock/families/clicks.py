"""Short tasks of clicks: buttons, errands, and locks."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from dartsim.envs.mock.families.drafts import (
    COLORS,
    Family,
    Spec,
    TaskDraft,
    background,
    expect,
    one,
    pick,
    rows_of,
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
    """Draw a target button on a grid of 3 × 3 cells, with others of other colors."""
    num_others = min(difficulty - 1, _CELLS - 1)
    colors = pick(rng, COLORS, 1 + num_others) if num_others else ["red"]
    places = rng.permutation(_CELLS)[: len(colors)].tolist()
    cells = {place: _inset_button(rng, f"cell{place}", color) for place, color in zip(places, colors, strict=True)}
    name = f"screen.cell{places[0]}"
    return TaskDraft(
        f"Press the {colors[0]} button.",
        expect("exact_match", {"type": "mock_pressed", "window": "screen"}, [name]),
        [["press", name]],
        [background(rng), window(id="screen", bare=True, pages=[_sparse("", cells)])],
        auto_done=True,
    )


def errands(rng: np.random.Generator, difficulty: int) -> TaskDraft:
    """Draw pages with a red button, which turns the page, and a blue one, which leads to a dead end.

    The way back is a black button, so a wrong press costs two turns; a click beside the buttons costs one.
    """
    steps, dead_ends = [], []
    for number in range(difficulty):
        right, wrong, back = (int(cell) for cell in (*rng.permutation(_CELLS)[:2], rng.integers(_CELLS)))
        red = _inset_button(rng, f"page{number}", "red", command="next")
        blue = _inset_button(rng, f"wrong{number}", "blue", command=f"page:{difficulty + 1 + number}")
        steps.append(_sparse(f"page{number}", {right: red, wrong: blue}))
        black = _inset_button(rng, f"back{number}", "black", command=f"page:{number}")
        dead_ends.append(_sparse(f"dead{number}", {back: black}))
    return TaskDraft(
        "Press the red button of each page.",
        expect("exact_match", {"type": "mock_pages", "windows": ["screen"]}, [difficulty]),
        [["page", "screen", difficulty]],
        [background(rng), window(id="screen", bare=True, pages=[*steps, _end_page(), *dead_ends])],
    )


def _sparse(page: str, placed: dict[int, Spec]) -> list[list[Spec]]:
    """Return a page of nine cells that is empty but for the placed widgets."""
    return rows_of([placed.get(cell) or widget("space", f"{page}space{cell}") for cell in range(_CELLS)], 3)


# Locks: pages full of buttons of one color, on each of which one button is right. Which one follows from the color
# alone, is the same in all tasks, and is stated nowhere: it has to be known or discovered. A wrong press counts, cannot
# be undone and is not visible, so the attempt can no longer succeed; it ends when the agent declares the task done, or
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
        [background(rng), window(id="screen", bare=True, pages=[*steps, _end_page()])],
    )


def _end_page() -> list[list[Spec]]:
    """Return the page after the last button."""
    return _sparse("end", {_CELLS // 2: widget("label", "end", text="OK")})


def _page(rng: np.random.Generator, number: int, color: str) -> list[list[Spec]]:
    """Return a page of buttons; the right one turns it."""
    cells = [
        _inset_button(rng, f"page{number}cell{place}", color, command="next" if place == RIGHT_CELL[color] else "")
        for place in range(_CELLS)
    ]
    return rows_of(cells, 3)


FAMILIES = (
    Family("click_button", "d - 1 buttons of other colors; one click ends the episode", click_button),
    Family("errands", "d pages, each with a red button that turns it and a blue one to a dead end; then done", errands),
    *(
        Family(f"{name}_locks", f"1 to 5 pages, each {', '.join(colors)}", partial(locks, colors=colors))
        for name, colors in (("plain", PLAIN), ("mixed", MIXED), ("odd", ODD))
    ),
)
