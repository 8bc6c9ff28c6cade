"""Options that several sub-commands share."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class Desktops(StrEnum):
    """Kinds of desktops."""

    SIM = "sim"
    MOCK = "mock"
    DESKTOP = "desktop"
    OSWORLD = "osworld"


class Engines(StrEnum):
    """Kinds of workers."""

    SIM = "sim"
    LOCAL = "local"
    VLLM = "vllm"


Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change one setting, e.g. rollout.num_envs=80; repeatable."),
]
Hours = Annotated[float | None, typer.Option("--hours", help="Hours of the run's time; default: the configuration's.")]
Json = Annotated[
    str | None,
    typer.Option("--json", metavar="FILE", help="Also write the figures as JSON; - for standard output."),
]
Out = Annotated[Path | None, typer.Option("--out", help="Folder for what is written; default: a new one in runs/.")]


Backend = Annotated[
    Desktops | None,
    typer.Option(
        help="Which desktops: sim (modelled, virtual time), mock (the mock desktop in real time), desktop (containers "
        "of our image), osworld (OSWorld's image). With any but sim, workers and learner are real too."
    ),
]
Workers = Annotated[
    Engines | None, typer.Option(help="Which workers: sim (modelled), local (in this process), vllm (servers).")
]
RealTime = Annotated[bool, typer.Option("--real-time", help="By the machine's clock, also if every part is modelled.")]


def backend_settings(desktops: Desktops | None, workers: Engines | None, real_time: bool) -> list[str]:
    """Return the overrides that these options stand for."""
    found = []
    if desktops is not None:
        part = "sim" if desktops is Desktops.SIM else "local"
        found += [f"backend.desktops={desktops}", f"backend.workers={part}", f"backend.learner={part}"]
    if workers is not None:
        found.append(f"backend.workers={workers}")
    if real_time:
        found.append("backend.real_time=true")
    return found


def settings(overrides: list[str] | None, hours: float | None, seed: int | None) -> list[str]:
    """Return all overrides; the dedicated options come last and win."""
    found = list(overrides or [])
    if hours is not None:
        found.append(f"run.hours={float(hours)}")
    if seed is not None:
        found.append(f"run.seed={seed}")
    return found


def new_folder(name: str, base: Path = Path("runs")) -> Path:
    """Return the first unused folder of runs/NAME, runs/NAME-2 and so on."""
    number = 1
    while (path := base / (name if number == 1 else f"{name}-{number}")).exists():
        number += 1
    return path
