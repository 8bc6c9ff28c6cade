"""Options shared by several commands."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from dartsim.core.errors import ConfigError

if TYPE_CHECKING:
    from dartsim.config import Config


FaultProfile = Literal["none", "calm", "osworld", "hostile"]
"""Named rates of faults."""

Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change one setting, e.g. rollout.num_envs=80; repeatable."),
]
Hours = Annotated[
    float | None,
    typer.Option("--hours", help="Length of the run, hours (virtual or real); default: the configuration's."),
]

EVALUATION = ("run.target_success=none", "curation.pool.file=none")
"""Settings that switch off what an evaluation does not do."""


def _share(text: str) -> float:
    number = text.strip().removesuffix("%")
    try:
        share = float(number) / (1.0 if number == text.strip() else 100.0)
    except ValueError:
        share = 0.0
    if not 0.0 < share < 1.0:
        raise typer.BadParameter(f"{text!r} is no share between 0 and 1; give 1% or 0.01")
    return share


UntilSteady = Annotated[
    float | None,
    typer.Option(
        parser=_share,
        metavar="SHARE",
        help="End a run early once no headline figure drifts and the confidence interval of each is at most ± this "
        "share of it: 1% or 0.01.",
    ),
]
FaultsOption = Annotated[
    FaultProfile | None,
    typer.Option(
        "--faults",
        metavar="RATES",
        help="Fault rates of the modeled cluster: none, calm, osworld, hostile; see `dartsim config --list faults`.",
    ),
]
SchedulerArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="SCHEDULER", help="A preset (`dartsim config`), or a TOML file (`dartsim config --list settings`)."
    ),
]
OnOption = Annotated[
    str | None,
    typer.Option(
        "--on",
        metavar="CLUSTER",
        help="Cluster and tasks instead of the scheduler's own: dart, osworld, long-tail, skewed-hosts, laptop, math; "
        "those of a preset; a TOML file, or a run's folder (`dartsim cluster`). CLUSTER+TASKS takes the tasks of "
        "another (cluster.toml+math), CLUSTER+latencies.toml measured latencies.",
    ),
]
Processes = Annotated[int | None, typer.Option(min=1, help="Runs at a time; default: one for each core.")]


def refuse_unwritable(option: str, target: Path, *, folder: bool) -> None:
    """Refuse a file or folder that cannot be written, before any work is done."""
    name, parent = f"{option} {target}", target.parent
    if folder:
        parent = next(path for path in (target, *target.absolute().parents) if path.exists())
    elif target.is_dir():
        raise ConfigError(f"{name} is a folder; name a file")
    if parent.exists() and not parent.is_dir():
        raise ConfigError(f"{name}: {parent} is not a folder; name a new or existing folder")
    if not parent.exists():
        raise ConfigError(f"{name}: there is no folder {parent}; make it, or name another one")
    place = target if target.exists() else parent
    if not os.access(place, os.W_OK):
        raise ConfigError(f"{name}: {place} is read-only; name another folder")
    if not folder and not target.exists():
        try:
            target.touch()
            target.unlink()
        except OSError as error:  # such as in /proc
            raise ConfigError(f"{name} cannot be written: {error.strerror}; name another file") from None


def file_target(option: typer.CallbackParam, target: Any) -> Any:
    """Check the target file of an option; ``-`` is standard output."""
    if target is not None and target != "-":
        refuse_unwritable(option.opts[-1], Path(target), folder=False)
    return target


def folder_target(option: typer.CallbackParam, target: Any) -> Any:
    """Check the target folder of an option, which may be new."""
    if target is not None:
        refuse_unwritable(option.opts[-1], target, folder=True)
    return target


Json = Annotated[
    str | None,
    typer.Option(
        "--json", metavar="FILE", callback=file_target, help="Also write the figures as JSON; - for standard output."
    ),
]
Out = Annotated[
    Path | None, typer.Option("--out", callback=folder_target, help="Output folder; default: a new one in runs/.")
]


Backend = Annotated[
    str | None,
    typer.Option(
        metavar="KIND",
        help="Which desktops: sim (modeled, virtual time), mock (the mock desktop in real time), desktop (containers "
        "of our image), osworld (OSWorld's image), gym (--env in real time). With any but sim, workers and learner "
        "are real too, unless --workers sim.",
    ),
]
GymEnv = Annotated[
    str | None,
    typer.Option(
        "--env",
        metavar="ENV",
        help="A gymnasium environment with a screen: package.module:Class, or an id of gymnasium's registry. Timed by "
        "the configured latencies in virtual time; with --backend gym, in real time.",
    ),
]
Workers = Annotated[
    str | None,
    typer.Option(metavar="KIND", help="Which workers: sim (modeled), local (in this process), vllm (servers)."),
]


def backend_overrides(desktops: str | None, workers: str | None) -> list[str]:
    """Return the overrides for these options."""
    overrides = []
    if desktops is not None:
        others = "sim" if "sim" in (desktops, workers) else "local"
        overrides += [f"backend.desktops={desktops}", f"backend.workers={others}", f"backend.learner={others}"]
    if workers is not None:
        overrides.append(f"backend.workers={workers}")
    return overrides


def env_overrides(env: str | None) -> list[str]:
    """Return the overrides for ``--env``, without settings that only our own tasks have."""
    if env is None:
        return []
    without = ("tasks.held_out=0", "run.target_success=none")
    return ["tasks.source=gym", f"gym.env={json.dumps(env)}", *without, "curation.pool.collected_per_task=0"]


def given(context: typer.Context, parameter: str) -> bool:
    """Return whether a parameter was given on the command line."""
    source = context.get_parameter_source(parameter)
    return source is not None and source.name == "COMMANDLINE"


def settings(
    overrides: list[str] | None,
    hours: float | None,
    seed: int | None,
    faults: FaultProfile | None = None,
    *,
    until_steady: float | None = None,
) -> list[str]:
    """Return all overrides; the dedicated options come last and win."""
    options = {
        "cluster.faults.profile": faults,
        "run.hours": None if hours is None else float(hours),
        "run.seed": seed,
        "run.until_steady": until_steady,
    }
    return [*(overrides or ()), *(f"{key}={value}" for key, value in options.items() if value is not None)]


def new_folder(name: str, base: Path = Path("runs")) -> Path:
    """Return the first of runs/NAME, runs/NAME-2 and so on that is unused.

    Raises:
        ConfigError: If it cannot be created.
    """
    number = 1
    while (path := base / (name if number == 1 else f"{name}-{number}")).exists():
        number += 1
    refuse_unwritable("--out", path, folder=True)
    return path


def load_config(
    scheduler: str | None, *, default: str = "dart", on: str | None = None, overrides: Iterable[str] = ()
) -> Config:
    """Return the resolved configuration of a scheduler on a cluster, as every command reads it.

    Args:
        scheduler: A preset, a TOML file, or the folder of a run, for its configuration.
        default: The preset if no scheduler is given.
        on: As in ``dartsim.config.load.workload``.
        overrides: As in ``dartsim.config.load``.
    """
    from dartsim.config import load
    from dartsim.core.files import below
    from dartsim.observe.rundir import CONFIG

    file = Path(default if scheduler is None else scheduler)
    if (file / CONFIG).is_file():
        file = below(file, CONFIG)
    return load(file, on=on, overrides=overrides)
