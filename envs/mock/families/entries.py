"""Families that want something entered: texts, list items, sliders, chips dropped into bins."""

from __future__ import annotations

import numpy as np

from dartsim.envs.mock.families.drafts import (
    WORDS,
    Family,
    Goal,
    TaskDraft,
    background,
    expect_values,
    listed,
    one,
    phrase,
    pick,
    rows_of,
    somewhere,
    widget,
    window,
)

_PREFILLED = 4
"""Difficulty from which a field holds a text that has to go."""


def type_text(rng: np.random.Generator, difficulty: int) -> TaskDraft:
    """Draw a text field to write words into, from some difficulty on instead of others."""
    text = phrase(rng, (difficulty + 1) // 2)
    before = phrase(rng, 1) if difficulty >= _PREFILLED else ""
    fields = [[widget("text_field", "field", text=before)]]
    if difficulty >= _PREFILLED:
        fields.append([widget("text_field", "other", text="")])
    place = " into the upper field, instead of what is there" if difficulty >= _PREFILLED else ""
    return TaskDraft(
        f'Type "{text}"{place}.',
        expect_values(["note.field"], [text]),
        [["text", "note.field", text]],
        [background(rng), window(id="note", title="Note", place=somewhere(rng), pages=[fields])],
    )


def list_select_scroll(rng: np.random.Generator, difficulty: int) -> TaskDraft:
    """Draw a list that gets longer with difficulty; its item may be out of sight."""
    items = pick(rng, WORDS, min(3 + 3 * difficulty, len(WORDS)))
    item = one(rng, items)
    rows = [[widget("list", "list", items=items, visible=4)]]
    return TaskDraft(
        f"Select {item} in the list.",
        expect_values(["browser.list"], [item]),
        [["select", "browser.list", item]],
        [background(rng), window(id="browser", title="Browser", place=somewhere(rng), pages=[rows])],
    )


def drag_slider(rng: np.random.Generator, difficulty: int) -> TaskDraft:
    """Draw sliders, one for two steps of difficulty, with more stops."""
    num_sliders = 1 + (difficulty - 1) // 2
    last = min(2 + difficulty, 6)
    names = pick(rng, WORDS, num_sliders)
    starts = rng.integers(last + 1, size=num_sliders)
    ends = [int((start + rng.integers(1, last + 1)) % (last + 1)) for start in starts]
    rows = []
    for name, start in zip(names, starts.tolist(), strict=True):
        rows.append([widget("label", f"{name}_label", text=f"{name} 0-{last}")])
        rows.append([widget("slider", name, maximum=last, at=start)])
    full = [f"mixer.{name}" for name in names]
    request = listed([f"{name} to {end}" for name, end in zip(names, ends, strict=True)])
    return TaskDraft(
        f"Set {request}; the first stop of a slider is 0.",
        expect_values(full, ends),
        [["slide", name, end] for name, end in zip(full, ends, strict=True)],
        [background(rng), window(id="mixer", title="Mixer", place=somewhere(rng), pages=[rows])],
    )


def drag_drop(rng: np.random.Generator, difficulty: int) -> TaskDraft:
    """Draw chips to drag into one of two bins; one to four of them, with others."""
    num_moved = min(1 + difficulty // 3, 4)
    names = pick(rng, WORDS, 4)
    moved = names[:num_moved]
    bins = ["Inbox", "Trash"]
    aims = [one(rng, bins) for _ in moved]
    chips = [widget("chip", name, text=name) for name in pick(rng, names, 4)]
    rows = [[widget("bin", name, text=name) for name in bins], *rows_of(chips, 2)]
    full = [f"board.{name}" for name in names]
    request = listed([f"{name} to {aim}" for name, aim in zip(moved, aims, strict=True)])
    goals: list[Goal] = [["drop", f"board.{name}", aim] for name, aim in zip(moved, aims, strict=True)]
    return TaskDraft(
        f"Drag {request}, and leave the rest.",
        expect_values(full, [*aims, *[None] * (4 - num_moved)]),
        goals,
        [background(rng), window(id="board", title="Board", place=[0.02, 0.02, 0.95, 0.95], pages=[rows])],
    )


def copy_between_fields(rng: np.random.Generator, difficulty: int) -> TaskDraft:
    """Draw pairs of fields: what the first of each holds is to stand in the second too."""
    num_pairs = 1 + (difficulty - 1) // 3
    texts = [phrase(rng, 1 + difficulty // 4) for _ in range(num_pairs)]
    rows = []
    for i, text in enumerate(texts, start=1):
        rows.append([widget("text_field", f"from{i}", label=f"From {i}", text=text)])
        rows.append([widget("text_field", f"to{i}", label=f"To {i}")])
    full = [f"copier.{side}{i + 1}" for i in range(num_pairs) for side in ("from", "to")]
    return TaskDraft(
        "Copy each text from its From field to the To field of the same number.",
        expect_values(full, [text for text in texts for _ in range(2)]),
        [["text", f"copier.to{i}", text] for i, text in enumerate(texts, start=1)],
        [background(rng), window(id="copier", title="Copier", place=somewhere(rng), pages=[rows])],
    )


FAMILIES = (
    Family("type_text", "d / 2 words; from 4 over an old text, with another field", type_text),
    Family("list_select_scroll", "a list of 3 + 3 d items, of which 4 show", list_select_scroll),
    Family("drag_slider", "1 to 5 sliders, 4 to 7 stops", drag_slider),
    Family("drag_drop", "1 to 4 of 4 chips into one of two bins", drag_drop),
    Family("copy_between_fields", "1 to 4 texts, 1 to 3 words", copy_between_fields),
)
