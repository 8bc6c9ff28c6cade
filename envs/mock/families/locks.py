"""Families of locks: pages full of buttons of one color, on each of which one button is right.

Which button is right follows from the color alone, is the same in all tasks, and is told nowhere: it has to be known
or found out. A wrong press counts and cannot be taken back, and it does not show: what an attempt does after it is in
vain, as in many a real task, and the attempt ends when it declares the task done, or at the turn limit.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from dartsim.envs.mock.families.drafts import (
    Family,
    Spec,
    TaskDraft,
    background,
    expect,
    one,
    rows_of,
    widget,
    window,
)

_CELLS = 9
_SPARE = 0.35
"""Share of a cell that a button leaves empty, on each axis; every button covers its cell's center."""

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
    pages, names = [], []
    for number in range((difficulty + 1) // 2):
        color = one(rng, colors)
        pages.append(_page(rng, number, color))
        names.append(f"screen.page{number}cell{RIGHT_CELL[color]}")
    end = [widget("space", f"end{place}") for place in range(_CELLS)]
    end[_CELLS // 2] = widget("label", "end", text="OK")
    return TaskDraft(
        "Press the button of each page.",
        expect("exact_match", {"type": "mock_pressed", "window": "screen"}, names),
        [["press", name] for name in names],
        [background(rng), window(id="screen", bare=True, fill=True, pages=[*pages, rows_of(end, 3)])],
    )


def _page(rng: np.random.Generator, number: int, color: str) -> list[list[Spec]]:
    """Return a page of buttons; the right one turns it."""
    cells = []
    for place in range(_CELLS):
        left, top = (round(float(share) * _SPARE, 3) for share in rng.random(2))
        command = "next" if place == RIGHT_CELL[color] else ""
        inset = [left, top, round(_SPARE - left, 3), round(_SPARE - top, 3)]
        cells.append(widget("button", f"page{number}cell{place}", color=color, command=command, inset=inset))
    return rows_of(cells, 3)


FAMILIES = tuple(
    Family(f"{name}_locks", f"1 to 5 pages, each {', '.join(colors)}", partial(locks, colors=colors))
    for name, colors in (("plain", PLAIN), ("mixed", MIXED), ("odd", ODD))
)
