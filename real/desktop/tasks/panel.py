"""Tasks of clicks for a small model: a full-screen panel with red buttons on a grid.

They correspond to the mock desktop's families ``click_button`` (``panel_tasks``) and ``errands`` without dead ends
(``page_tasks``), so that a model trained there can be tried on a real desktop. They use OSWorld's task schema with an
additional key: ``auto_done``, the first click ends the episode.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from dartsim.core.types import Task

DOMAIN = "panel"
COLUMNS = 3
"""Cells per side."""
RED = "#dc3232"
SPACE: dict[str, Any] = {"kind": "space"}
STATE = "state.json"
"""File in the desktop's home that records the clicks."""


CELLS = COLUMNS * COLUMNS
PAGES = (5, 7)
"""Fewest and most pages of a task of several."""


def panel_tasks(count: int, seed: int = 0, *, held_out: bool = False) -> list[Task]:
    """Return tasks of one click. Equal arguments give equal tasks; held-out tasks differ from all others."""
    tasks = []
    for number in range(count):
        drawn = _description(np.random.default_rng((seed, number, int(held_out))), 1, paper=(140, 256))
        name = f"panel-{'held-out-' if held_out else ''}{seed}-{number}"
        tasks.append(_task(name, "Press the red button.", *drawn, auto_done=True))
    return tasks


def page_tasks(count: int, seed: int = 0, *, held_out: bool = False) -> list[Task]:
    """Return tasks of several pages, each turned by its red button; the end must be declared. As ``panel_tasks``."""
    tasks = []
    for number in range(count):
        rng = np.random.default_rng((seed, number, int(held_out), max(PAGES)))
        drawn = _description(rng, int(rng.integers(min(PAGES), max(PAGES) + 1)), paper=(215, 246))
        name = f"pages-{'held-out-' if held_out else ''}{seed}-{number}"
        tasks.append(_task(name, "Press the red button of each page.", *drawn, auto_done=False))
    return tasks


def _description(
    rng: np.random.Generator, num_pages: int, *, paper: tuple[int, int]
) -> tuple[dict[str, Any], list[int]]:
    """Return a panel, and the cell of each page's button; consecutive cells differ, so that a turn is visible."""
    targets = [int(rng.integers(CELLS))]
    background = "#" + "".join(f"{int(part):02x}" for part in rng.integers(*paper, size=3))
    for _ in range(num_pages - 1):
        targets.append((targets[-1] + 1 + int(rng.integers(CELLS - 1))) % CELLS)
    pages = [[dict(SPACE) for _ in range(CELLS)] for _ in targets]
    for number, (page, target) in enumerate(zip(pages, targets, strict=True)):
        page[target] = {"kind": "button", "id": f"page{number}", "text": "", "color": RED, "next": True}
    end = [dict(SPACE) for _ in range(CELLS)]
    end[CELLS // 2] = {"kind": "label", "text": "OK"}
    return {"state": f"~/{STATE}", "columns": COLUMNS, "background": background, "pages": [*pages, end]}, targets


def _task(name: str, instruction: str, description: dict[str, Any], targets: Sequence[int], *, auto_done: bool) -> Task:
    clicked = json.dumps([f"page{number}" for number in range(len(targets))])
    spec = {
        "id": name,
        "instruction": instruction,
        "snapshot": "init_state",
        "source": "generated",
        "related_apps": ["panel"],
        "config": [{"type": "launch", "parameters": {"command": ["panel", json.dumps(description)]}}],
        "evaluator": {
            "func": "check_include_exclude",
            "result": {"type": "vm_command_line", "command": f"cat ~/{STATE}", "shell": True},
            "expected": {"type": "rule", "rules": {"include": [f'"clicked": {clicked}'], "exclude": []}},
        },
        "auto_done": auto_done,
        "targets": [[target % COLUMNS, target // COLUMNS] for target in targets],
    }
    return Task(name, instruction, DOMAIN, spec)
