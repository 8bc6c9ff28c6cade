"""What a configuration needs and this machine lacks, each with its fix; nothing is started."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import psutil

from dartsim.cli import doctor
from dartsim.cli.service_checks import MISSING, OK, DoctorCheck, check_vllm, install_vllm
from dartsim.config import Config
from dartsim.config.sections.vllm import VARIABLE
from dartsim.core.install import install_command
from dartsim.lab.estimate import Estimate
from dartsim.lab.host_needs import by_disk
from dartsim.lab.memory import GIB
from dartsim.real.containers.engine import check_reachable
from dartsim.real.containers.errors import missing
from dartsim.real.containers.official import SCREEN
from dartsim.real.containers.plan import skeleton_problem
from dartsim.real.engines.options import HERE
from dartsim.run.model_folder import is_hub_id

SSH_SECONDS = 5.0
"""Time limit for showing ssh's own configuration, for which it connects to nothing."""


def missing_requirements(
    config: Config, needed: Estimate | None, *, gpus: Callable[[], str | None] = doctor.nvidia_smi
) -> list[DoctorCheck]:
    """Return the checks that a run of this configuration fails on this machine."""
    if config.backend.virtual:
        return []
    checks = [check for part in (_packages, _vllm, _model, _desktops, _tasks) for check in part(config)]
    if needed is not None:
        checks += [*_gpus(needed, gpus()), *_sizes(config, needed)]
    return [check for check in checks if check.state is not OK]


def _missing(name: str, found: str, fix: str) -> DoctorCheck:
    return DoctorCheck(name, MISSING, found, fix)


def _packages(config: Config) -> Iterator[DoctorCheck]:
    if config.policy.kind == "vlm":
        yield doctor.check_packages("train packages", doctor.TRAIN, install_command("train"))
    if config.backend.boots or config.backend.workers == "vllm":
        yield doctor.check_packages("real packages", doctor.REAL, install_command("real"))


def _vllm(config: Config) -> Iterator[DoctorCheck]:
    vllm = config.vllm
    if config.backend.workers != "vllm":
        return
    if vllm.addresses:
        yield replace(check_vllm(None, vllm.addresses), name="engines")
        return
    python = vllm.python or os.environ.get(VARIABLE)
    if python is None:
        yield _missing("vLLM's interpreter", f"neither vllm.python nor {VARIABLE} is set", install_vllm())
    elif shutil.which(python) is None:
        yield _missing("vLLM's interpreter", f"{python} cannot be run", install_vllm())


def _model(config: Config) -> Iterator[DoctorCheck]:
    policy = config.policy
    if policy.kind == "vlm" and policy.model is not None:
        folder = Path(policy.model)
        absent = [name for name in ("config.json", "tokenizer_config.json") if not (folder / name).is_file()]
        if absent or not any(folder.glob("*.safetensors")):
            wanted = ", ".join([*absent, *(() if any(folder.glob("*.safetensors")) else ("*.safetensors",))])
            repository = f"ByteDance-Seed/{folder.name}" if "UI-TARS" in folder.name else f"Qwen/{folder.name}"
            download = f"hf download {repository} --local-dir {policy.model}"
            if is_hub_id(policy.model):  # which the run downloads, where it can
                wanted, download = "folder yet", f"hf download {policy.model}"
            yield _missing("model", f"{policy.model} has no {wanted}", download)
    if policy.instructions is not None and not Path(policy.instructions).is_file():
        yield _missing("instructions", f"there is no file {policy.instructions}", "write it, with {instruction} in it")


def _desktops(config: Config) -> Iterator[DoctorCheck]:
    kind, desktop = config.backend.desktops, config.desktop
    if not config.backend.boots:
        return
    for name, host in desktop.hosts.items():
        try:
            if host.url is not None:
                check_reachable(host)
        except OSError as error:
            found, _, advice = missing(host.target, error).rpartition(": ")
            yield _missing(f"host {name}", found, advice)
    far = [host.url or "" for host in desktop.hosts.values() if not host.local]
    if far and kind == "desktop" and desktop.variant == "skeleton" and desktop.image is None:
        found = f"a skeleton only runs on the machine whose /usr it mounts, and desktops run on {far[0]}"
        fix = f"--set desktop.variant=full, after `dartsim desktop build --variant full --host {far[0]}`"
        yield _missing("desktop image", found, fix)
    endless = [url for host in desktop.hosts.values() if (url := host.url or "").startswith("ssh://") and _endless(url)]
    if endless:
        found = f"ssh waits forever for {', '.join(endless)} if that machine is lost: its ServerAliveInterval is 0"
        yield _missing("ssh", found, "`ServerAliveInterval 5` and `ConnectTimeout 5` for these hosts in ~/.ssh/config")
    if all(host.url is None for host in desktop.hosts.values()):  # nothing more of another machine is looked at
        yield doctor.check_engine()
        if kind == "desktop" and (problem := skeleton_problem(config)) is not None:
            yield _missing("desktop image", *problem)
        if kind == "osworld" and desktop.disk is not None and not Path(desktop.disk).is_file():
            yield _missing("disk", f"there is no file {desktop.disk}", "fetch Ubuntu.qcow2 as OSWorld's README says")
        if kind == "osworld":
            yield doctor.check_kvm()
    if kind == "osworld" and desktop.image is None and (desktop.width, desktop.height) != SCREEN:
        yield _missing(
            "screen",
            f"desktop.width and desktop.height are {desktop.width} and {desktop.height}; OSWorld's disk shows "
            f"{SCREEN[0]} × {SCREEN[1]}, and a desktop with another screen does not start",
            f"--set desktop.width={SCREEN[0]} --set desktop.height={SCREEN[1]}",
        )
    if kind == "osworld":
        from dartsim.real.scoring.evaluator_venv import default_home

        if not default_home().is_dir():
            yield _missing("evaluator", f"there is no {default_home()}", "dartsim osworld install")


def _endless(url: str) -> bool:
    """Return whether a connection of the user's ssh outlives the machine at its other end."""
    command = ["ssh", "-G", url.removeprefix("ssh://").partition(":")[0]]
    try:
        asked = subprocess.run(command, capture_output=True, text=True, timeout=SSH_SECONDS, check=True)
    except (OSError, subprocess.SubprocessError):
        return False
    return "serveraliveinterval 0" in asked.stdout.splitlines()


def _tasks(config: Config) -> Iterator[DoctorCheck]:
    tasks = config.tasks
    if tasks.source == "osworld" and tasks.folder is not None:
        file = Path(tasks.folder) / f"{tasks.list_name}.json"
        if not file.is_file():
            yield _missing("tasks", f"there is no file {file}", "git clone https://github.com/xlang-ai/OSWorld")


def _gpus(needed: Estimate, listed: str | None) -> Iterator[DoctorCheck]:
    wanted = {gpu.number for gpu in needed.gpus if gpu.host == HERE}
    there = len(listed.split("; ")) if listed else 0
    if wanted and max(wanted) >= there:
        names = ", ".join(map(str, sorted(wanted)))
        yield _missing(
            "gpus", f"{there} on this machine ({listed or 'no nvidia-smi'})", f"a machine with the GPUs {names}"
        )


def _sizes(config: Config, needed: Estimate) -> Iterator[DoctorCheck]:
    memory = psutil.virtual_memory().total
    most = max(needed.host.start, needed.host.update)
    if most > memory:
        when = "at the start, when every process loads it"
        if most == needed.host.update:
            when = "in the largest update, with its screenshots"
        yield _missing(
            "memory",
            f"{memory / GIB:.0f} GiB here; {most / GIB:.0f} {when}",
            "more memory, fewer ranks, or policy.dtype = bfloat16 with trainer.lora.rank",
        )
    for folder, size, free in by_disk(config, needed.disk):
        if size > free:
            yield _missing(
                "disk space",
                f"{free / GIB:.0f} GiB free in {folder}; {size / GIB:.0f} for weights and checkpoints",
                "trainer.fsdp.folder and the run directory on larger disks, or a lower trainer.fsdp.keep_weights",
            )
