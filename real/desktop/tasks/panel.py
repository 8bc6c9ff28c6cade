"""Tasks of one click for a small model: a full-screen panel with one red button on a grid.

The twin of the mock desktop's family ``click_button``, so that what was learned there can be tried on a real desktop.
Written in OSWorld's task schema, with one key more: ``auto_done``, the first click ends the episode.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from dartsim.core.types import Task

DOMAIN = "panel"
COLUMNS = 3
"""Cells a side."""
RED = "#dc3232"
STATE = "state.json"
"""File in the desktop's home that holds what was clicked."""


def panel_tasks(count: int, seed: int = 0, *, held_out: bool = False) -> list[Task]:
    """Return tasks; the same ones for the same arguments, and the first of more. Held-out ones are others."""
    return [_task(seed, number, held_out) for number in range(count)]


def _task(seed: int, number: int, held_out: bool) -> Task:
    rng = np.random.default_rng((seed, number, int(held_out)))
    target = int(rng.integers(COLUMNS * COLUMNS))
    paper = "#" + "".join(f"{int(part):02x}" for part in rng.integers(140, 256, size=3))
    items: list[dict[str, Any]] = [{"kind": "space"} for _ in range(COLUMNS * COLUMNS)]
    items[target] = {"kind": "button", "id": "target", "text": "", "color": RED}
    description = {"state": f"~/{STATE}", "columns": COLUMNS, "background": paper, "items": items}
    name = f"panel-{'held-out-' if held_out else ''}{seed}-{number}"
    spec = {
        "id": name,
        "instruction": "Press the red button.",
        "snapshot": "init_state",
        "source": "generated",
        "related_apps": ["panel"],
        "config": [{"type": "launch", "parameters": {"command": ["panel", json.dumps(description)]}}],
        "evaluator": {
            "func": "check_include_exclude",
            "result": {"type": "vm_command_line", "command": f"cat ~/{STATE}", "shell": True},
            "expected": {"type": "rule", "rules": {"include": ['"clicked": ["target"]'], "exclude": []}},
        },
        "auto_done": True,
        "target": [target % COLUMNS, target // COLUMNS],
    }
    return Task(name, str(spec["instruction"]), DOMAIN, spec)
