"""What a configuration needs and this machine lacks, with the command that fixes it; starts nothing."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import psutil

from dartsim.cli import doctor
from dartsim.cli.service_checks import CheckState, install_vllm
from dartsim.config import Config
from dartsim.config.sections.vllm import VARIABLE
from dartsim.core.install import install_command
from dartsim.lab.estimate import HERE, Estimate
from dartsim.lab.memory import GIB
from dartsim.real.containers.plan import skeleton_problem


class MissingRequirement(NamedTuple):
    """One missing requirement: its name, what was found instead, and how to fix it."""

    what: str
    found: str
    type: str


def missing_requirements(
    config: Config, found: Estimate | None, *, gpus: Callable[[], str | None] = doctor.nvidia_smi
) -> list[MissingRequirement]:
    """Return what a run of this configuration needs and this machine lacks.

    Args:
        config: The configuration.
        found: What it needs.
        gpus: Returns a line for each GPU of this machine, or None.
    """
    if config.backend.virtual:
        return []
    parts = (_packages, _vllm, _model, _desktops, _tasks)
    rest = () if found is None else (*_gpus(found, gpus()), *_sizes(config, found))
    return [*(one for part in parts for one in part(config)), *rest]


def _packages(config: Config) -> Iterator[MissingRequirement]:
    wanted = []
    if config.policy.kind == "vlm":
        wanted.append(doctor.check_packages("train packages", doctor.TRAIN, install_command("train")))
    if config.backend.boots or config.backend.workers == "vllm":
        wanted.append(doctor.check_packages("real packages", doctor.REAL, install_command("real")))
    yield from (MissingRequirement(one.name, one.found, one.type) for one in wanted if one.state is not CheckState.OK)


def _vllm(config: Config) -> Iterator[MissingRequirement]:
    vllm = config.vllm
    if config.backend.workers != "vllm" or vllm.addresses:
        return
    python = vllm.python or os.environ.get(VARIABLE)
    if python is None:
        yield MissingRequirement("vLLM's interpreter", f"neither vllm.python nor {VARIABLE} is set", install_vllm())
    elif shutil.which(python) is None:
        yield MissingRequirement("vLLM's interpreter", f"{python} cannot be run", install_vllm())


def _model(config: Config) -> Iterator[MissingRequirement]:
    policy = config.policy
    if policy.kind == "vlm" and policy.model is not None:
        folder = Path(policy.model)
        absent = [name for name in ("config.json", "tokenizer_config.json") if not (folder / name).is_file()]
        if absent or not any(folder.glob("*.safetensors")):
            wanted = ", ".join([*absent, *(() if any(folder.glob("*.safetensors")) else ("*.safetensors",))])
            repository = f"ByteDance-Seed/{folder.name}" if "UI-TARS" in folder.name else f"Qwen/{folder.name}"
            yield MissingRequirement(
                "model", f"{policy.model} has no {wanted}", f"hf download {repository} --local-dir {policy.model}"
            )
    if policy.instructions is not None and not Path(policy.instructions).is_file():
        yield MissingRequirement(
            "instructions", f"there is no file {policy.instructions}", "write it, with {instruction} in it"
        )


def _desktops(config: Config) -> Iterator[MissingRequirement]:
    kind, desktop = config.backend.desktops, config.desktop
    if not config.backend.boots:
        return
    if all(host.url is None for host in desktop.hosts.values()):  # another machine's is not looked at
        engine = doctor.check_engine()
        if engine.state is not CheckState.OK:
            yield MissingRequirement("engine", engine.found, engine.type)
        if kind == "desktop" and (problem := skeleton_problem(config)) is not None:
            yield MissingRequirement("desktop image", *problem)
        if kind == "osworld" and desktop.disk is not None and not Path(desktop.disk).is_file():
            yield MissingRequirement(
                "disk", f"there is no file {desktop.disk}", "fetch Ubuntu.qcow2 as OSWorld's README says"
            )
        kvm = doctor.check_kvm()
        if kind == "osworld" and kvm.state is not CheckState.OK:
            yield MissingRequirement("kvm", kvm.found, kvm.type)
    if desktop.evaluator == "desktop-env":
        from dartsim.real.osworld.evaluator_venv import default_home

        if not default_home().is_dir():
            yield MissingRequirement("evaluator", f"there is no {default_home()}", "dartsim evaluator install")


def _tasks(config: Config) -> Iterator[MissingRequirement]:
    tasks = config.tasks
    if tasks.source == "osworld" and tasks.folder is not None:
        file = Path(tasks.folder) / f"{tasks.list_name}.json"
        if not file.is_file():
            yield MissingRequirement(
                "tasks", f"there is no file {file}", "git clone https://github.com/xlang-ai/OSWorld"
            )


def _gpus(found: Estimate, listed: str | None) -> Iterator[MissingRequirement]:
    wanted = {gpu.number for gpu in found.gpus if gpu.host == HERE}
    there = len(listed.split("; ")) if listed else 0
    if wanted and max(wanted) >= there:
        names = ", ".join(map(str, sorted(wanted)))
        yield MissingRequirement(
            "gpus", f"{there} on this machine ({listed or 'no nvidia-smi'})", f"a machine with the GPUs {names}"
        )


def _sizes(config: Config, found: Estimate) -> Iterator[MissingRequirement]:
    memory = psutil.virtual_memory().total
    if found.host_bytes > memory:
        yield MissingRequirement(
            "memory",
            f"{memory / GIB:.0f} GiB here; {found.host_bytes / GIB:.0f} at the start, when every process has the model",
            "more memory, fewer ranks, or policy.dtype = bfloat16 with trainer.lora.rank",
        )
    folder = Path(config.trainer.fsdp.folder or Path.cwd())
    while not folder.is_dir():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    if found.disk_bytes > free:
        yield MissingRequirement(
            "disk space",
            f"{free / GIB:.0f} GiB free in {folder}; {found.disk_bytes / GIB:.0f} for weights and checkpoints",
            "trainer.fsdp.folder on a larger disk, or a lower trainer.fsdp.keep_weights",
        )
