"""Tasks out of nothing, for runs without task files."""

from __future__ import annotations

from dartsim.core.errors import ConfigError
from dartsim.core.types import Task

_VERBS = ("Open", "Rename", "Sort", "Export", "Share", "Crop", "Archive", "Print")
_OBJECTS = (
    "the report",
    "the budget",
    "the holiday photos",
    "the address book",
    "the slides",
    "the settings",
)


def generated_tasks(num_tasks: int) -> list[Task]:
    """Return that many distinct tasks of the domain ``generated``; always the same ones.

    Raises:
        ConfigError: If ``num_tasks`` is not positive.
    """
    if num_tasks < 1:
        raise ConfigError(f"num_tasks must be at least 1, got {num_tasks}")
    width = max(4, len(str(num_tasks - 1)))
    return [Task(f"generated-{i:0{width}}", _instruction(i)) for i in range(num_tasks)]


def _instruction(i: int) -> str:
    return f"{_VERBS[i % len(_VERBS)]} {_OBJECTS[i // len(_VERBS) % len(_OBJECTS)]} (number {i})."
