"""What a run of a configuration would start and where, and what this machine lacks for it; starts nothing."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from shutil import disk_usage
from typing import TYPE_CHECKING, Any

import psutil

from dartsim.cli.machine_checks import (
    MISSING,
    OK,
    REAL,
    TRAIN,
    Check,
    ask_engine,
    check_evaluator,
    check_kvm,
    check_packages,
    check_ray,
    check_vllm,
    nvidia_smi,
)
from dartsim.config import Config
from dartsim.core.errors import ConfigError
from dartsim.core.install import VLLM_PYTHON, install_command
from dartsim.lab.estimate import Estimate, estimate
from dartsim.lab.memory import GIB
from dartsim.real.containers.engine import check_reachable
from dartsim.real.containers.errors import missing
from dartsim.real.containers.official import SCREEN, check_disk
from dartsim.real.containers.plan import container_spec, docker_hosts, refuse_small_hosts, skeleton_problem
from dartsim.real.engines.options import HERE
from dartsim.real.ray_cluster.backend import Kind, actors, placed
from dartsim.real.ray_cluster.parts import actor_options
from dartsim.run.model_folder import is_hub_id
from dartsim.run.prepare import prepare

if TYPE_CHECKING:
    from dartsim.real.containers import EngineInfo
    from dartsim.real.osworld.task_list import TaskListCheck

SSH_SECONDS = 5.0
"""Time limit of ``ssh -G``, which prints ssh's configuration without connecting."""


def check_run(config: Config) -> dict[str, Any]:
    """Return what a run of this configuration would start and what it lacks here, JSON-serializable.

    Raises:
        ConfigError: If it cannot work on any machine: a name is unknown, numbers do not match, or processes do not fit.
        TaskFileError: If an existing list of tasks is invalid.
    """
    needed = estimate(config)
    prepare(_with_tasks(config))
    checked = _checked_tasks(config)
    lacking = missing_requirements(config, needed)
    if checked is not None and checked.refused:
        found = f"{len(checked.refused)} of {checked.num_listed} cannot run here, and the run refuses to leave them out"
        lacking.append(Check("tasks", MISSING, found, "--set tasks.unsupported=skip"))
    elif checked is not None and checked.num_run == 0:
        lacking.append(Check("tasks", MISSING, f"none of the {checked.num_listed} tasks of the list can run here"))
    return {
        "name": config.name,
        "preset": config.preset,
        "clock": "virtual" if config.backend.virtual else "real",
        "hours": config.run.hours,
        "engines": _with_placement(config, "workers", config.backend.engine_backend.plan(config)),
        "desktops": _with_placement(config, "desktops", config.backend.desktop_backend.plan(config)),
        "learner": _with_placement(config, "learner", config.backend.learner_backend.plan(config)),
        "memory": None if needed is None else needed.figures,
        "tasks": None if checked is None else {"list": config.tasks.list_name, **asdict(checked)},
        "missing": [asdict(check) for check in lacking],
    }


def _checked_tasks(config: Config) -> TaskListCheck | None:
    """Return which tasks of OSWorld's list would run; None without real desktops or a list."""
    if not config.backend.boots or not _has_list(config):
        return None
    from dartsim.real.osworld.task_list import check_list

    return check_list(config)


def _has_list(config: Config) -> bool:
    tasks = config.tasks
    return tasks.source == "osworld" and (Path(str(tasks.folder)) / f"{tasks.list_name}.json").is_file()


def _with_tasks(config: Config) -> Config:
    """Return the configuration, with generated tasks in place of a list that is missing or checked separately."""
    if config.tasks.source != "osworld" or (_has_list(config) and not config.backend.boots):
        return config
    return config.model_copy(update={"tasks": config.tasks.model_copy(update={"source": "generated", "exclude": []})})


def _with_placement(config: Config, kind: Kind, entry: dict[str, Any]) -> dict[str, Any]:
    """Return an entry with its placement by Ray, if any."""
    if not placed(config, kind):
        return entry
    number, part = actors(config, kind)
    what = f"{entry['what']}; on Ray ({config.ray.address}), actors: {number}, each with {actor_options(part)}"
    return {**entry, "what": what}


def missing_requirements(
    config: Config, needed: Estimate | None, *, gpus: Callable[[], str | None] = nvidia_smi
) -> list[Check]:
    """Return the checks that a run of this configuration fails on this machine."""
    if config.backend.virtual:
        return []
    checks = [check for part in (_packages, _vllm, _model, _desktops, _tasks) for check in part(config)]
    if needed is not None:
        checks += [*_gpus(needed, gpus()), *_sizes(config, needed)]
    return [check for check in checks if check.state is not OK]


def _packages(config: Config) -> Iterator[Check]:
    if config.policy.kind == "vlm":
        yield check_packages("train packages", TRAIN, install_command("train"))
    if config.backend.boots or config.backend.workers == "vllm":
        yield check_packages("real packages", REAL, install_command("real"))
    if config.ray.address is not None:
        yield check_ray(config.ray.address)


def _vllm(config: Config) -> Iterator[Check]:
    if config.backend.workers == "vllm":
        yield check_vllm(config.vllm.python or os.environ.get(VLLM_PYTHON), config.vllm.addresses)


def _model(config: Config) -> Iterator[Check]:
    policy = config.policy
    if policy.kind == "vlm" and policy.model is not None:
        folder = Path(policy.model)
        absent = [name for name in ("config.json", "tokenizer_config.json") if not (folder / name).is_file()]
        absent += [] if any(folder.glob("*.safetensors")) else ["*.safetensors"]
        repository = f"ByteDance-Seed/{folder.name}" if "UI-TARS" in folder.name else f"Qwen/{folder.name}"
        download = f"hf download {repository} --local-dir {policy.model}"
        if absent and is_hub_id(policy.model):  # the run downloads it if it can
            absent, download = ["folder yet"], f"hf download {policy.model}"
        if absent:
            yield Check("model", MISSING, f"{policy.model} has no {', '.join(absent)}", download)
    if policy.instructions is not None and not Path(policy.instructions).is_file():
        found = f"there is no file {policy.instructions}"
        yield Check("instructions", MISSING, found, "write it, with {instruction} in it")


def _desktops(config: Config) -> Iterator[Check]:
    kind, desktop = config.backend.desktops, config.desktop
    if not config.backend.boots:
        return
    for name, host in desktop.hosts.items():
        try:
            if host.url is not None:
                check_reachable(host)
        except OSError as error:
            yield Check(f"host {name}", MISSING, *missing(host.target, error))
    far = [host.url or "" for host in desktop.hosts.values() if not host.local]
    if far and kind == "desktop" and desktop.variant == "skeleton" and desktop.image is None:
        found = f"a skeleton only runs on the machine whose /usr it mounts, and desktops run on {far[0]}"
        fix = f"--set desktop.variant=apps, after `dartsim desktop build --variant apps --host {far[0]}`"
        yield Check("desktop image", MISSING, found, fix)
    silent = [
        url for host in desktop.hosts.values() if (url := host.url or "").startswith("ssh://") and _waits_forever(url)
    ]
    if silent:
        found = f"ssh waits forever for {', '.join(silent)} if that machine is lost: its ServerAliveInterval is 0"
        fix = "`ServerAliveInterval 5` and `ConnectTimeout 5` for these hosts in ~/.ssh/config"
        yield Check("ssh", MISSING, found, fix)
    if all(host.url is None for host in desktop.hosts.values()):  # other machines are not checked further
        engine = ask_engine(container_spec(config, look=False).image)
        yield engine.check
        if kind == "desktop" and (problem := skeleton_problem(config)) is not None:
            yield Check("desktop image", MISSING, *problem)
        elif engine.fault is not None:
            yield Check("desktop image", MISSING, engine.fault.problem, engine.fault.fix)
        if kind == "desktop" and desktop.variant == "vm" and engine.info is not None:
            yield from _machines(config, engine.info)
        own_disk = kind == "osworld" or (kind == "desktop" and desktop.own_disk)
        if own_disk and desktop.disk is not None:
            try:
                check_disk(Path(desktop.disk))
            except ConfigError as error:
                yield Check("disk", MISSING, error.problem, error.fix)
        if own_disk:
            yield check_kvm()
    if kind == "osworld" and desktop.image is None and (desktop.width, desktop.height) != SCREEN:
        width, height = SCREEN
        found = (
            f"desktop.width and desktop.height are {desktop.width} and {desktop.height}; OSWorld's disk shows "
            f"{width} × {height}, and a desktop with another screen does not start"
        )
        yield Check("screen", MISSING, found, f"--set desktop.width={width} --set desktop.height={height}")
    if "osworld" in (kind, config.tasks.source):
        yield check_evaluator()


def _machines(config: Config, info: EngineInfo) -> Iterator[Check]:
    """Compare virtual machines and their states with the memory and the disk of the engine's machine."""
    try:
        refuse_small_hosts(config, [info.memory_gib] * len(docker_hosts(config.desktop)))
    except ConfigError as error:
        yield Check("memory", MISSING, error.problem, error.fix)
    states, root = config.desktop.states_gib, Path(info.root)
    if config.desktop.revert != "boot" and root.is_dir() and (free := disk_usage(root).free / GIB) < states:
        found = f"{free:.0f} GiB free in {root}; saved states may take {states:g}"
        yield Check("disk space", MISSING, found, "a larger disk for the engine, or a lower desktop.states_gib")


def _waits_forever(url: str) -> bool:
    """Return whether the user's ssh keeps a connection open after the remote machine has died."""
    command = ["ssh", "-G", url.removeprefix("ssh://").partition(":")[0]]
    try:
        printed = subprocess.run(command, capture_output=True, text=True, timeout=SSH_SECONDS, check=True)
    except (OSError, subprocess.SubprocessError):
        return False
    return "serveraliveinterval 0" in printed.stdout.splitlines()


def _tasks(config: Config) -> Iterator[Check]:
    tasks = config.tasks
    if tasks.source == "osworld" and tasks.folder is not None and not _has_list(config):
        found = f"there is no file {Path(tasks.folder) / tasks.list_name}.json"
        yield Check("tasks", MISSING, found, "git clone https://github.com/xlang-ai/OSWorld")


def _gpus(needed: Estimate, listed: str | None) -> Iterator[Check]:
    wanted = {number for host, number in needed.gpus if host == HERE}
    there = len(listed.split("; ")) if listed else 0
    if wanted and max(wanted) >= there:
        found = f"{there} on this machine ({listed or 'no nvidia-smi'})"
        yield Check("gpus", MISSING, found, f"a machine with the GPUs {', '.join(map(str, sorted(wanted)))}")


def _sizes(config: Config, needed: Estimate) -> Iterator[Check]:
    memory = psutil.virtual_memory().total
    most = max(needed.host.start, needed.host.later)
    if most > memory:
        when = "at the start, when every process loads it"
        if most == needed.host.later:
            when = "later, with the screenshots of attempts"
        found = f"{memory / GIB:.0f} GiB here; {most / GIB:.0f} {when}"
        fix = "more memory, fewer ranks, or policy.dtype = bfloat16 with trainer.lora.rank"
        yield Check("memory", MISSING, found, fix)
    for folder, size, free in needed.host.by_disk(config):
        if size > free:
            found = f"{free / GIB:.0f} GiB free in {folder}; {size / GIB:.0f} for weights, checkpoints and screenshots"
            fix = (
                "trainer.fsdp.folder and the run directory on larger disks, or lower trainer.fsdp.keep_weights and "
                "run.keep_attempts"
            )
            yield Check("disk space", MISSING, found, fix)
