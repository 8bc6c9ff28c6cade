"""What solves the tasks of ``experiments.apps_training``, in actions that its model can say one at a time."""

from __future__ import annotations

from collections.abc import Mapping

from experiments.osworld_solutions import COMMANDS

TERMINAL, PREFERENCES, MAXIMIZE, SAVE = "key ctrl+alt+t", "key ctrl+p", "double 59 21", "click 116 117"


def _vlc(*clicks: str) -> tuple[str, ...]:
    return PREFERENCES, MAXIMIZE, *clicks, SAVE, "done"


SOLUTIONS: Mapping[str, tuple[str, ...]] = {
    **{f"os/{task}": (TERMINAL, f"type {command}\\n", "done") for task, command in COMMANDS.items()},
    "vlc/a5bbbcd5-b398-4c91-83d4-55e1e31bbb81": _vlc("click 12 38"),
    "vlc/f3977615-2b45-4ac5-8bba-80c17dbe2a37": _vlc("click 2 63"),
    "gimp/d52d6308-ec58-42b7-a2c9-de80e4837b2b": ("key tab", "done"),
    "chrome/12086550-11c0-466b-b367-1d9e75b3910e": (
        "key ctrl+l",
        "type chrome://password-manager/passwords\\n",
        "done",
    ),
}
"""Single actions that solve each task, in the compact grammar on 120 × 120 cells. The teacher adds waits."""


def replies() -> list[str]:
    """Return what the model can say."""
    return sorted({reply for solution in SOLUTIONS.values() for reply in solution} | {"wait"})
