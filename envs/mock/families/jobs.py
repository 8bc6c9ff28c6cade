"""Long tasks of clicks: jobs in several applications, with dialogs, dead ends, notes to remember, and missing buttons.

The screen is a grid of 3 x 3 cells. Its lowest row is the taskbar: an icon for each application, large for those to
the right of the open one. The other six cells show a page of the open application. A task is done when every
application shows its OK page and the agent declares it done. The right button of a page follows from its colors and is
stated nowhere:

- A *rule page* has buttons of one color, which says which cell is right (``RIGHT_CELL``); other cells may be empty.
- A *note* is a single colored button, which turns the page. Soon after, a *question* shows buttons of several colors:
  the note's color is right. By then the note is only in the history.
- A wrong button leads to a *dead end*, with a black button somewhere that leads back: to the page before the wrong
  press, or at difficulties below 4 to the same page.
- In an infeasible task the right button of one page is missing.

Dialogs appear after some turns and hide part of the page until they are closed.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from dartsim.envs.mock.families.clicks import MIXED, ODD, PLAIN
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

_CELLS = 6
_ACROSS = 3

RIGHT_CELL = {
    **{"red": 4, "green": 1, "blue": 3},
    **{"yellow": 2, "orange": 5, "purple": 0},
    **{"cyan": 4, "pink": 0, "brown": 2},
}
"""Color of a rule page, and the cell of its right button, row by row."""

_SETS_BACK = 4
"""Difficulty from which a dead end leads to the page before the one that led there."""

Page = list[Spec]
"""The six cells of a page."""


class _App:
    """An application being drawn: its pages in order, then its OK page, then its dead ends."""

    def __init__(self, rng: np.random.Generator, name: str, *, sets_back: bool) -> None:
        self.name = name
        self._rng = rng
        self._sets_back = sets_back
        self._pages: list[Page] = []
        self._backs: list[int] = []
        self._noted = 0

    @property
    def num_pages(self) -> int:
        return len(self._pages)

    def rule(self, color: str, *, missing: bool = False) -> None:
        """Add a rule page with one empty cell; ``missing``: the right one."""
        right = RIGHT_CELL[color]
        empty = right if missing else one_other(self._rng, right)
        self._choices([None if cell == empty else color for cell in range(_CELLS)], right)

    def note(self, color: str) -> None:
        """Add a note of a color."""
        cell = int(self._rng.integers(_CELLS))
        self._noted = self.num_pages
        self._choices([color if i == cell else None for i in range(_CELLS)], cell)

    def question(self, color: str, *, num_choices: int, missing: bool = False) -> None:
        """Ask for the color of a note; ``missing``: it is not among the choices."""
        others = pick(self._rng, [other for other in COLORS if other != color], num_choices)
        shown: list[str | None] = [*(others if missing else [color, *others[1:]]), *[None] * (_CELLS - num_choices)]
        order = self._rng.permutation(_CELLS).tolist()
        self._choices([shown[i] for i in order], -1 if missing else order.index(0), back=self._noted)

    def _choices(self, colors: Sequence[str | None], right: int, back: int | None = None) -> None:
        """Add a page with a button for each cell that has a color; ``back``: the page that its dead end leads to."""
        before = max(0, self.num_pages - 1) if self._sets_back else self.num_pages
        self._backs.append(before if back is None else back)
        self._pages.append(
            [
                self._empty(f"{self.num_pages}cell{cell}")
                if color is None
                else widget(
                    "button",
                    f"page{self.num_pages}cell{cell}",
                    color=color,
                    inset=_inset(self._rng),
                    command="next" if cell == right else "dead",
                )
                for cell, color in enumerate(colors)
            ]
        )

    @staticmethod
    def _empty(name: str) -> Spec:
        return widget("space", f"space{name}")

    def spec(self, taskbar: Sequence[Spec], color: str) -> Spec:
        """Return the application's window, with its taskbar on every page."""
        last = self.num_pages
        ending = [self._empty(f"ok{cell}") for cell in range(_CELLS)]
        ending[4] = widget("label", "ok", text="OK")
        pages = [*self._pages, ending]
        for number in range(last):
            if not any(cell.get("command") == "dead" for cell in pages[number]):
                continue
            for cell in pages[number]:
                if cell.get("command") == "dead":
                    cell["command"] = f"page:{len(pages)}"
            pages.append(self._dead_end(number))
        bars = [[{**icon, "id": f"{icon['id']}on{number}"} for icon in taskbar] for number in range(len(pages))]
        whole = [[*rows_of(page, _ACROSS), bar] for page, bar in zip(pages, bars, strict=True)]
        return {"id": self.name, "bare": True, "color": color, "pages": whole}

    def _dead_end(self, number: int) -> Page:
        place = int(self._rng.integers(_CELLS))
        button = widget("button", f"back{number}", text="<", color="black", command=f"page:{self._backs[number]}")
        return [button if cell == place else self._empty(f"back{number}cell{cell}") for cell in range(_CELLS)]


def one_other(rng: np.random.Generator, cell: int) -> int:
    """Return a random cell other than one."""
    return int((cell + rng.integers(1, _CELLS)) % _CELLS)


def _inset(rng: np.random.Generator) -> list[float]:
    """Return a button's place in its cell; it covers the center."""
    left, top = (round(float(share) * 0.3, 3) for share in rng.random(2))
    return [left, top, round(0.3 - left, 3), round(0.3 - top, 3)]


class _Plan(NamedTuple):
    """The pages of a task: for each application in order the kinds of its pages, and the dialogs."""

    apps: list[list[str]]
    dialogs: int

    @property
    def turns(self) -> int:
        """Turns of the shortest solution."""
        return len(self.apps) + sum(map(len, self.apps)) + self.dialogs + 1


def _plan(rng: np.random.Generator, difficulty: int, questions: int, num_pages: int) -> _Plan:
    """Return pages for 2 or 3 applications; up to one rule page comes between a note and its question."""
    num_apps = 2 if difficulty < 6 else 3
    questions = min(questions, 1 + difficulty // 6)
    num_rules = num_pages - 2 * questions
    kinds: list[list[str]] = []
    for _ in range(questions):
        between = int(rng.integers(2)) if num_rules + questions > num_apps else 0
        num_rules -= between
        kinds.append(["note", *["rule"] * between, "question"])
    kinds += [["rule"]] * num_rules
    apps: list[list[str]] = [[] for _ in range(num_apps)]
    order = rng.permutation(len(kinds)).tolist()
    for place, i in enumerate(order):
        apps[place if place < num_apps else int(rng.integers(num_apps))] += kinds[i]
    return _Plan(apps, difficulty // 3)


def jobs(
    rng: np.random.Generator, difficulty: int, colors: tuple[str, ...], questions: int = 0, infeasible: bool = False
) -> TaskDraft:
    """Draw jobs in 2 or 3 applications: 6 to 15 turns."""
    plan = _plan(rng, difficulty, questions, 3 + difficulty // 2 + infeasible)
    last = (len(plan.apps) - 1, len(plan.apps[-1]) - 1)  # never a note, because its question follows
    apps, goals = [], []
    for a, kinds in enumerate(plan.apps):
        app = _App(rng, f"app{a}", sets_back=difficulty >= _SETS_BACK)
        noted = ""
        for p, kind in enumerate(kinds):
            missing = infeasible and (a, p) == last
            if kind == "rule":
                app.rule(one(rng, colors), missing=missing)
            elif kind == "note":
                noted = one(rng, COLORS)
                app.note(noted)
            else:
                app.question(noted, num_choices=2 + difficulty // 3, missing=missing)
        apps.append(app)
        goals.append(["page", app.name, app.num_pages])
    if infeasible:
        goals[-1:] = [["page", apps[-1].name, last[1]], ["fail"]]
    icons = pick(rng, COLORS, len(plan.apps))
    return TaskDraft(
        "Press on to OK.",
        {"func": "infeasible"} if infeasible else _all_ok(apps),
        goals,
        [background(rng), *_windows(apps, icons), *_dialogs(rng, plan)],
    )


def _all_ok(apps: Sequence[_App]) -> Spec:
    getter = {"type": "mock_pages", "windows": [app.name for app in apps]}
    return expect("exact_match", getter, [app.num_pages for app in apps])


def _windows(apps: Sequence[_App], icons: Sequence[str]) -> list[Spec]:
    """Return the steps that open the empty desktop and stash the applications for its taskbar."""
    home = [widget("space", f"space{cell}") for cell in range(_CELLS)]
    steps = [window(id="home", bare=True, pages=[[*rows_of(home, _ACROSS), _taskbar(icons, -1)]])]
    for opened, app in enumerate(apps):
        steps.append(window("mock_stash", **app.spec(_taskbar(icons, opened), "white")))
    return steps


def _taskbar(icons: Sequence[str], opened: int) -> list[Spec]:
    """Return a row of icons: small up to the open application's, large after it."""
    bar = [
        widget(
            "button",
            f"icon{number}",
            color=color,
            inset=[0.3 if number <= opened else 0.0] * 4,
            command=f"open:app{number}",
        )
        for number, color in enumerate(icons)
    ]
    return bar + [widget("space", f"slot{number}") for number in range(len(icons), _ACROSS)]


def _dialogs(rng: np.random.Generator, plan: _Plan) -> list[Spec]:
    """Return dialogs that open at various turns of the shortest solution."""
    latest = plan.turns - plan.dialogs - 2
    times = sorted(rng.permutation(np.arange(1, latest + 1))[: plan.dialogs].tolist())
    return [
        {"type": "mock_interrupt", "parameters": {"after": time + i, "window": _dialog(rng, i)}}
        for i, time in enumerate(times)
    ]


def _dialog(rng: np.random.Generator, number: int) -> Spec:
    """Return a dialog over one row: its green button closes it; a red one asks once more."""
    row, place = int(rng.integers(2)), int(rng.integers(_ACROSS))
    cells = [widget("space", f"space{i}") for i in range(_ACROSS)]
    cells[place] = widget("button", "OK", text="OK", color="green", command="close")
    sure = [widget("space", f"sure{i}") for i in range(_ACROSS)]
    sure[place] = widget("button", "back", text="<", color="black", command="back")
    if rng.random() < 0.5:
        other = (place + int(rng.integers(1, _ACROSS))) % _ACROSS
        cells[other] = widget("button", "no", text="No", color="red", command="next")
    return {
        "id": f"dialog{number}",
        "title": "Notice",
        "modal": True,
        "place": [0.0, round(row / 3, 3), 1.0, 0.334],
        "pages": [[cells], [sure]],
        "default": "OK",
    }


def _families() -> tuple[Family, ...]:
    about = "6 to 15 turns in 2 or 3 applications"
    sets = (("plain", PLAIN), ("mixed", MIXED), ("odd", (*ODD, *PLAIN)))
    return (
        *(
            Family(f"{name}_jobs", f"{about}, pages of {', '.join(colors)}", partial(jobs, colors=colors))
            for name, colors in sets
        ),
        Family("recall_jobs", f"{about}, 1 or 2 notes", partial(jobs, colors=PLAIN, questions=2)),
        Family(
            "missing_jobs",
            f"{about}; the last page lacks its right button",
            partial(jobs, colors=PLAIN, infeasible=True),
            feasible=False,
        ),
    )


FAMILIES = _families()
