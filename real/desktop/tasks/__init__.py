"""Tasks for our desktop image, in OSWorld's schema: real applications, no network.

apps/        task files in OSWorld's layout, which ``desktop_tasks`` reads
oracles.py   a solution of each task; playing.py checks them on real desktops
panel.py     generated tasks of one click, for a small model
"""

from __future__ import annotations

from pathlib import Path

from dartsim.core.types import Task
from dartsim.envs.tasks import load_suite

FOLDER = Path(__file__).resolve().parent / "apps"
"""Holds ``test_all.json`` and ``examples/<domain>/<task id>.json``, as OSWorld's folder of tasks does."""


def desktop_tasks(list_name: str = "test_all") -> list[Task]:
    """Return the tasks, in the order of a list file.

    Raises:
        TaskFileError: If the list or a file cannot be used.
    """
    return list(load_suite(FOLDER, list_name).tasks)
