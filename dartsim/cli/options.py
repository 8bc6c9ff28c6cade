"""Options that several sub-commands share."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dartsim.cli.console import cannot_write
from dartsim.core.errors import ConfigError

if TYPE_CHECKING:
    from dartsim.config import Config

PROFILE = "profile.toml"
"""File in a run directory that `dartsim measure` writes."""


class DesktopKind(StrEnum):
    """Kinds of desktops."""

    SIM = "sim"
    MOCK = "mock"
    DESKTOP = "desktop"
    OSWORLD = "osworld"


class EngineKind(StrEnum):
    """Kinds of workers."""

    SIM = "sim"
    LOCAL = "local"
    VLLM = "vllm"


class FaultProfile(StrEnum):
    """Named rates of faults."""

    NONE = "none"
    CALM = "calm"
    OSWORLD = "osworld"
    HOSTILE = "hostile"


Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change one setting, e.g. rollout.num_envs=80; repeatable."),
]
Hours = Annotated[float | None, typer.Option("--hours", help="Hours of the run's time; default: the configuration's.")]
FaultsOption = Annotated[
    FaultProfile | None,
    typer.Option(
        "--faults",
        metavar="RATES",
        help="Fault rates of the modelled cluster: none, calm, osworld, hostile; see `dartsim faults`.",
    ),
]
WorkloadOption = Annotated[
    str | None,
    typer.Option(
        "--workload",
        help="Cluster, tasks and latencies laid over the preset: dart, osworld, long-tail, skewed-hosts, laptop, math.",
    ),
]
ProfileOption = Annotated[
    str | None,
    typer.Option(
        "--profile",
        help="Desktops, or a whole cluster: a name (`dartsim profiles`), a profile.toml that `dartsim measure` wrote, "
        "or a run's folder.",
    ),
]


def json_target(target: str | None) -> str | None:
    """Return where JSON is to be written, if it can be, so that a wrong name is told before any work is done.

    Raises:
        ConfigError: If it is a folder, in a folder that is not there, or cannot be opened.
    """
    if target is None or target == "-":
        return target
    path = Path(target)
    if not target or path.is_dir():
        raise ConfigError(f"--json {target or repr(target)} is no name of a file; give one, or - for standard output")
    if not path.parent.is_dir():
        raise ConfigError(f"--json {target}: there is no folder {path.parent}; make it, or name another file")
    new = not path.exists()
    try:
        path.open("ab").close()  # what is there stays, until there is something in its place
    except OSError as error:
        raise cannot_write(target, error) from None
    if new:
        path.unlink()
    return target


def file_target(option: typer.CallbackParam, target: Path | None) -> Path | None:
    """Return the file that an option names, if it can be written.

    Raises:
        ConfigError: If it is a folder, or in a folder that is not there or cannot be written to.
    """
    if target is None:
        return None
    name = f"{option.opts[-1]} {target}"
    if target.is_dir():
        raise ConfigError(f"{name} is a folder; name a file in it")
    if not target.parent.is_dir():
        raise ConfigError(f"{name}: there is no folder {target.parent}; make it, or name another file")
    _refuse_read_only(name, target.parent)
    return target


def folder_target(folder: Path | None) -> Path | None:
    """Return the folder that is to be written, if it can be one.

    Raises:
        ConfigError: If it, or a folder that it would lie in, is something else or cannot be written to.
    """
    if folder is None:
        return None
    place = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    if not place.is_dir():
        raise ConfigError(f"--out {folder}: {place} is not a folder; name a new or existing folder")
    _refuse_read_only(f"--out {folder}", place)
    return folder


def _refuse_read_only(name: str, folder: Path) -> None:
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ConfigError(f"{name}: {folder} cannot be written to; name another place")


Json = Annotated[
    str | None,
    typer.Option(
        "--json", metavar="FILE", callback=json_target, help="Also write the figures as JSON; - for standard output."
    ),
]
JsonInstead = Annotated[
    str | None,
    typer.Option(
        "--json", metavar="FILE", callback=json_target, help="Write JSON instead of a table; - for standard output."
    ),
]
Out = Annotated[
    Path | None,
    typer.Option("--out", callback=folder_target, help="Output folder; default: a new one in runs/."),
]


Backend = Annotated[
    DesktopKind | None,
    typer.Option(
        metavar="KIND",
        help="Which desktops: sim (modelled, virtual time), mock (the mock desktop in real time), desktop (containers "
        "of our image), osworld (OSWorld's image). With any but sim, workers and learner are real too.",
    ),
]
Workers = Annotated[
    EngineKind | None,
    typer.Option(metavar="KIND", help="Which workers: sim (modelled), local (in this process), vllm (servers)."),
]
RealTime = Annotated[bool, typer.Option("--real-time", help="Run in real time even if every component is modelled.")]
Ray = Annotated[
    str | None,
    typer.Option(
        "--ray",
        metavar="ADDRESS",
        help="Place the real components on a Ray cluster: HOST:PORT of its head, ray://HOST:PORT, auto, or local (a "
        "Ray of our own). Needs the extra `ray`.",
    ),
]


def backend_overrides(
    desktops: DesktopKind | None, workers: EngineKind | None, real_time: bool, ray: str | None = None
) -> list[str]:
    """Return the overrides for these options."""
    found = []
    if desktops is not None:
        part = "sim" if desktops is DesktopKind.SIM else "local"
        found += [f"backend.desktops={desktops}", f"backend.workers={part}", f"backend.learner={part}"]
    if workers is not None:
        found.append(f"backend.workers={workers}")
    if real_time:
        found.append("backend.real_time=true")
    if ray is not None:
        found.append(f"ray.address={json.dumps(ray)}")
    return found


def settings(
    overrides: list[str] | None, hours: float | None, seed: int | None, faults: FaultProfile | None = None
) -> list[str]:
    """Return all overrides; the dedicated options come last and win."""
    found = list(overrides or [])
    if faults is not None:
        found.append(f"cluster.faults.profile={faults}")
    if hours is not None:
        found.append(f"run.hours={float(hours)}")
    if seed is not None:
        found.append(f"run.seed={seed}")
    return found


def new_folder(name: str, base: Path = Path("runs")) -> Path:
    """Return the first unused folder of runs/NAME, runs/NAME-2 and so on.

    Raises:
        ConfigError: If no folder can be made there.
    """
    number = 1
    while (path := base / (name if number == 1 else f"{name}-{number}")).exists():
        number += 1
    folder_target(path)
    return path


def load_with_profile(
    file: Path | None = None,
    *,
    preset_name: str | None = None,
    default: str | None = None,
    workload_name: str | None = None,
    profile: str | None = None,
    overrides: Iterable[str] = (),
) -> Config:
    """Return the resolved configuration with what a profile names laid over it, below the overrides.

    Args:
        file: As ``dartsim.config.load`` takes it.
        preset_name: What was asked to build on.
        default: What is built on where nothing was asked: no file, no preset, and not a run's own configuration.
        workload_name: As ``load`` takes it.
        profile: A named profile of desktops; a file with measured settings; a run's folder: what was measured of it,
            or else, where there is no file, its configuration.
        overrides: As ``load`` takes them.

    Raises:
        ConfigError: As ``load``, or if the profile is none of these.
    """
    from dartsim.config import load
    from dartsim.observe.rundir import CONFIG
    from dartsim.sim.env_profiles import PROFILES

    measured: Path | None = None
    given = list(overrides)
    if profile is not None:
        path = Path(profile)
        if profile in PROFILES:
            given.insert(0, f"cluster.env.profile={profile}")
        elif profile and path.is_file():
            measured = path
        elif profile and (path / PROFILE).is_file():
            measured = path / PROFILE
        elif profile and file is None and (path / CONFIG).is_file():
            file = path / CONFIG
        else:
            raise ConfigError(
                f"there is no profile, run or file {profile!r}; profiles: {', '.join(PROFILES)}; a run's folder, or a "
                "profile.toml that `dartsim measure` wrote"
            )
    if file is None and preset_name is None:
        preset_name = default
    return load(file, preset_name=preset_name, workload_name=workload_name, profile=measured, overrides=given)
