"""Options that several sub-commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change one setting, e.g. rollout.num_envs=80; repeatable."),
]
Hours = Annotated[float | None, typer.Option("--hours", help="Simulated hours; default: the configuration's.")]
Json = Annotated[
    str | None,
    typer.Option("--json", metavar="FILE", help="Also write the figures as JSON; - for standard output."),
]
Out = Annotated[Path | None, typer.Option("--out", help="Folder for what is written; default: a new one in runs/.")]


def settings(overrides: list[str] | None, hours: float | None, seed: int | None) -> list[str]:
    """Return all overrides; the dedicated options come last and win."""
    found = list(overrides or [])
    if hours is not None:
        found.append(f"run.hours={float(hours)}")
    if seed is not None:
        found.append(f"run.seed={seed}")
    return found


def new_folder(name: str) -> Path:
    """Return the first unused folder of runs/NAME, runs/NAME-2 and so on."""
    base = Path("runs")
    number = 1
    while (path := base / (name if number == 1 else f"{name}-{number}")).exists():
        number += 1
    return path
