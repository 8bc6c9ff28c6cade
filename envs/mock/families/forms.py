"""Families of several widgets: forms, wizards, dialogs that interrupt, and infeasible tasks."""

from __future__ import annotations

from typing import Any

import numpy as np

from dartsim.envs.mock.families.drafts import (
    COLORS,
    WORDS,
    Family,
    Goal,
    Spec,
    TaskDraft,
    background,
    expect_submitted,
    expect_values,
    listed,
    one,
    phrase,
    pick,
    somewhere,
    widget,
    window,
)

Entry = tuple[list[list[Spec]], Any, Goal, str]
"""Rows of a page, the wanted value, the goal, and its words in the instruction."""


def _entry(rng: np.random.Generator, kind: str, name: str, window_id: str) -> Entry:
    """Draw one widget to fill in."""
    full = f"{window_id}.{name}"
    if kind == "text_field":
        text = phrase(rng, 1)
        return [[widget(kind, name, label=name)]], text, ["text", full, text], f'{name} is "{text}"'
    if kind == "check_box":
        return [[widget(kind, name, text=name)]], True, ["check", full, True], f"{name} is checked"
    if kind == "slider":
        value = int(rng.integers(1, 4))
        rows = [[widget("label", f"{name}_label", text=f"{name} 0-3")], [widget(kind, name, maximum=3)]]
        return rows, value, ["slide", full, value], f"{name} is {value}"
    items = pick(rng, WORDS, 5)
    item = one(rng, items)
    rows = [[widget("label", f"{name}_label", text=name)], [widget(kind, name, items=items, visible=3)]]
    return rows, item, ["select", full, item], f"{name} is {item}"


_ENTRIES = ("text_field", "check_box", "list", "slider")
_FIELD_NAMES = [word.capitalize() for word in WORDS]


def form_fill(rng: np.random.Generator, difficulty: int) -> TaskDraft:
    """Draw a form with ``difficulty`` fields, and OK."""
    names = pick(rng, _FIELD_NAMES, difficulty)
    kinds = ["text_field", *[one(rng, _ENTRIES) for _ in names[1:]]]
    entries = [_entry(rng, kind, name, "form") for kind, name in zip(kinds, names, strict=True)]
    rows = [row for entry in entries for row in entry[0]]
    rows.append([_button("Cancel", "close"), _button("OK", "submit")])
    request = ", ".join(entry[3] for entry in entries)
    return TaskDraft(
        f"Fill in the form so that {request}; then press OK.",
        expect_submitted("form", {name: entry[1] for name, entry in zip(names, entries, strict=True)}),
        [*[entry[2] for entry in entries], ["press", "form.OK"]],
        [
            background(rng),
            window(id="form", title="Form", place=somewhere(rng), pages=[rows], default="OK", cancel="Cancel"),
        ],
    )


def _button(name: str, command: str) -> Spec:
    return widget("button", name, text=name, command=command)


def wizard(rng: np.random.Generator, difficulty: int) -> TaskDraft:
    """Draw a wizard with ``difficulty`` pages, each with one widget to fill in."""
    names = pick(rng, _FIELD_NAMES, difficulty)
    pages, goals, requests, values = [], [], [], {}
    for i, name in enumerate(names):
        rows, value, goal, words = _entry(rng, one(rng, _ENTRIES), name, "wizard")
        last = i == difficulty - 1
        ahead = "Finish" if last else f"Next{i + 1}"
        forward = widget("button", ahead, text="Done" if last else "Next", command="submit" if last else "next")
        back = widget("button", f"Back{i + 1}", text="Back", command="back", enabled=i > 0)
        pages.append([*rows, [back, forward]])
        goals += [goal, ["press", f"wizard.{ahead}"]]
        requests.append(words)
        values[name] = value
    return TaskDraft(
        f"Go through the wizard so that {', '.join(requests)}; press Done on the last page.",
        expect_submitted("wizard", values),
        goals,
        [background(rng), window(id="wizard", title="Wizard", place=somewhere(rng), pages=pages)],
    )


def dialog_interrupt(rng: np.random.Generator, difficulty: int) -> TaskDraft:
    """Draw check boxes to check while dialogs interrupt, one for every two boxes."""
    names = pick(rng, WORDS, difficulty + 1)
    wanted = names[:difficulty]
    order = pick(rng, names, len(names))
    boxes = [[widget("check_box", name, text=name)] for name in order]
    steps: list[Spec] = [
        background(rng),
        window(id="options", title="Options", place=somewhere(rng), pages=[boxes]),
    ]
    steps += [
        {"type": "mock_interrupt", "parameters": {"after": 3 * i, "window": _dialog(rng, i)}}
        for i in range(1 + difficulty // 2)
    ]
    full = [f"options.{name}" for name in names]
    return TaskDraft(
        f"Check {listed(wanted)}, and nothing else. Put aside what comes in between.",
        expect_values(full, [name in wanted for name in names]),
        [["check", name, True] for name in full[:difficulty]],
        steps,
    )


def _dialog(rng: np.random.Generator, number: int) -> Spec:
    left, top = rng.uniform(0.05, 0.25, 2)
    return {
        "id": f"notice{number}",
        "title": "Notice",
        "modal": True,
        "place": [round(float(left), 3), round(float(top), 3), 0.7, 0.55],
        "pages": [
            [[widget("label", "text", text=one(rng, ("Update?", "Low disk", "Hello!")))], [_button("OK", "close")]]
        ],
        "default": "OK",
        "cancel": "OK",
    }


def infeasible(rng: np.random.Generator, difficulty: int) -> TaskDraft:
    """Draw a task that cannot be done: its widget is missing or disabled."""
    names = pick(rng, WORDS, difficulty + 2)
    missing, shown = names[0], names[1:]
    kind = int(rng.integers(3))
    if kind == 0:
        cells = [[widget("button", name, text=name)] for name in shown]
        request = f"Press the button {missing}."
    elif kind == 1:
        cells = [[widget("check_box", name, text=name)] for name in shown]
        cells.append([widget("check_box", missing, text=missing, enabled=False)])
        request = f"Check {missing}."
    else:
        colors = pick(rng, COLORS, min(len(shown), 4) + 1)
        cells = [[widget("button", f"b{i}", color=color)] for i, color in enumerate(colors[1:])]
        request = f"Press the {colors[0]} button."
    return TaskDraft(
        request,
        {"func": "infeasible"},
        [["fail"]],
        [background(rng), window(id="panel", title="Panel", place=somewhere(rng), pages=[cells])],
    )


FAMILIES = (
    Family("form_fill", "d fields of four kinds, then OK", form_fill),
    Family("wizard", "d pages with one thing each, up to 30 steps", wizard),
    Family("dialog_interrupt", "d boxes to check; 1 + d / 2 dialogs come in between", dialog_interrupt),
    Family("infeasible", "d + 1 widgets, none of which is what is asked for", infeasible, feasible=False),
)
