"""``dartsim doctor``: what works on this machine, what is missing, and how to install it."""

from __future__ import annotations

import asyncio
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import psutil
import typer
from rich.table import Table
from rich.text import Text

from dartsim.cli.console import out, plain_table, write_json
from dartsim.cli.options import JsonInstead
from dartsim.cli.service_checks import (
    MISSING,
    OK,
    OPTIONAL,
    DoctorCheck,
    check_evaluator,
    check_ray,
    check_torchrun,
    check_vllm,
    installed,
)
from dartsim.config.sections.vllm import VARIABLE
from dartsim.core.compiled import form
from dartsim.core.install import install_command

GIB = 2**30
OLDEST_PYTHON = (3, 11)
BASICS = ("gymnasium", "numpy", "pillow", "plotly", "psutil", "pydantic", "rich", "simpy", "typer")
TRAIN = ("torch", "transformers", "peft", "safetensors")
REAL = ("aiohttp", "anyio", "cssselect", "docker", "httpx", "lxml", "openpyxl")
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


STYLES = {OK: "green", MISSING: "bold red", OPTIONAL: "yellow"}

BASE = ("python", "packages", "memory", "disk")
NEEDS = {
    "simulated runs": BASE,
    "learning (tiny model)": (*BASE, "train packages"),
    "real desktops": (*BASE, "real packages", "engine"),
    "official OSWorld VMs": (*BASE, "real packages", "engine", "kvm"),
    "OSWorld's own metrics": (*BASE, "real packages", "evaluator"),
    "vLLM workers": (*BASE, "train packages", "real packages", "vllm"),
    "training on a GPU": (*BASE, "train packages", "gpu"),
    "a learner of several processes": (*BASE, "train packages", "torchrun"),
    "components on a Ray cluster": (*BASE, "ray"),
}
"""The checks that each use needs; simulated runs decide the exit code."""


def doctor(
    ray: Annotated[
        str | None,
        typer.Option("--ray", metavar="ADDRESS", help="Check for a Ray cluster at this address; default: RAY_ADDRESS."),
    ] = None,
    engine: Annotated[
        list[str] | None,
        typer.Option("--engine", metavar="URL", help="Check that this vLLM server accepts us; repeatable."),
    ] = None,
    json_file: JsonInstead = None,
) -> None:
    """Check what works on this machine, what is missing, and how to install it.

    Exit code 0 if simulated runs work, 1 otherwise. It starts and changes nothing, and asks the named
    services only for their versions.

    Examples:
        dartsim doctor
        dartsim doctor --json - | jq .works
        dartsim doctor --ray head:6379 --engine http://127.0.0.1:8000
    """
    checks = [
        check_python(sys.version_info[:2]),
        DoctorCheck("dartsim", OK, f"{installed('dartsim')}, {form()}"),
        check_packages("packages", BASICS, install_command()),
        check_cores(),
        check_memory(psutil.virtual_memory().total / GIB),
        check_disk(shutil.disk_usage(Path.cwd()).free / GIB),
        check_packages("train packages", TRAIN, install_command("train")),
        check_gpu(),
        check_packages("real packages", REAL, install_command("real")),
        check_engine(),
        check_kvm(),
        check_vllm(os.environ.get(VARIABLE), engine or ()),
        check_torchrun(),
        check_ray(ray or os.environ.get("RAY_ADDRESS")),
        check_evaluator(),
        check_browser(),
    ]
    states = {check.name: check.state for check in checks}
    lacking = {use: [need for need in needs if states[need] is not OK] for use, needs in NEEDS.items()}
    if json_file is not None:
        works = {use: not lacks for use, lacks in lacking.items()}
        write_json({"works": works, "checks": [asdict(check) for check in checks]}, json_file)
    else:
        out.print(_check_table(checks))
        out.print()
        out.print(_use_table(lacking))
    if lacking["simulated runs"]:
        raise typer.Exit(1)


def check_python(version: tuple[int, ...]) -> DoctorCheck:
    """Check the interpreter's version."""
    found = f"{platform.python_implementation()} {platform.python_version()} on {platform.system()}"
    if version[:2] >= OLDEST_PYTHON:
        return DoctorCheck("python", OK, found)
    return DoctorCheck("python", MISSING, found, f"install Python {'.'.join(map(str, OLDEST_PYTHON))} or newer")


def check_packages(name: str, packages: Iterable[str], command: str) -> DoctorCheck:
    """Look for installed distributions, without importing them."""
    versions = {package: installed(package) for package in packages}
    missing = [package for package, version in versions.items() if version is None]
    present = ", ".join(f"{package} {version}" for package, version in versions.items() if version is not None)
    if not missing:
        return DoctorCheck(name, OK, present)
    return DoctorCheck(name, MISSING, f"no {', '.join(missing)}" + (f"; {present}" if present else ""), command)


def check_cores() -> DoctorCheck:
    """Report the processor; one core is enough, but slow."""
    from dartsim.real.machine import cpu_model, usable_cores

    return DoctorCheck("cores", OK, f"{usable_cores()} usable, {cpu_model() or 'unknown model'}")


def check_memory(total_gib: float) -> DoctorCheck:
    """Check that there is at least 1 GiB of memory."""
    # Measured: a small desktop takes about 0.11 GiB, one with LibreOffice 0.4, an official virtual machine 4.2.
    small, large = (int(total_gib * 0.85 / each) for each in (0.4, 4.2))
    found = f"{total_gib:.1f} GiB: about {small} small desktops or {large} VMs"
    return DoctorCheck("memory", OK, found) if total_gib >= 1.0 else DoctorCheck("memory", MISSING, found, "1 GiB")


def check_disk(free_gib: float) -> DoctorCheck:
    """Check the disk to which runs are written."""
    found = f"{free_gib:.1f} GiB free here (the official VM's disk and image need 32)"
    if free_gib >= 1.0:
        return DoctorCheck("disk", OK, found)
    return DoctorCheck("disk", MISSING, found, "free 1 GiB, or run in another folder")


def check_gpu(query: Callable[[], str | None] | None = None) -> DoctorCheck:
    """Look for a GPU through its driver, without importing torch."""
    found = (query or nvidia_smi)()
    if not found:
        found = "no nvidia-smi that lists one; the tiny model trains on the CPU"
        return DoctorCheck("gpu", OPTIONAL, found, "install the NVIDIA driver if the machine has a GPU")
    if (installed("torch") or "").endswith("+cpu"):
        found = f"{found}, but the installed torch is built for CPUs only"
        return DoctorCheck("gpu", OPTIONAL, found, "pip install --force-reinstall torch")
    return DoctorCheck("gpu", OK, found)


def check_engine() -> DoctorCheck:
    """Ask the Docker engine for its version and resources."""
    from dartsim.config.schema import DockerHostConfig
    from dartsim.core.errors import DartsimError
    from dartsim.real.containers import DockerHost, EngineInfo

    async def ask() -> EngineInfo:
        async with DockerHost(DockerHostConfig(bind="0.0.0.0")) as host:
            return await host.info()

    try:
        info = asyncio.run(ask())
    except DartsimError as error:
        problem, _, fix = str(error).rpartition(": ")
        return DoctorCheck("engine", MISSING, problem, fix)
    ours = f", {info.ours} of ours" if info.ours else ""
    found = (
        f"Docker {info.version} (API {info.api}) at {info.url}: cgroup {info.cgroup}, {info.storage}, "
        f"{info.cores} cores, {info.memory_gib} GiB, {info.containers} containers{ours}"
    )
    return DoctorCheck("engine", OK, found)


def check_kvm() -> DoctorCheck:
    """Check that KVM can accelerate virtual machines."""
    from dartsim.config.schema import DockerHostConfig
    from dartsim.real.containers import Kvm, kvm_state

    state = kvm_state(Kvm.AUTO, local=DockerHostConfig().local)
    if state.use:
        return DoctorCheck("kvm", OK, state.why)
    fix = "sudo modprobe kvm_intel (or kvm_amd), on a machine with virtualization enabled"
    return DoctorCheck("kvm", OPTIONAL, state.why, fix)


def check_browser() -> DoctorCheck:
    """Look for Chromium; only the tests of the pages use it."""
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        found = "no Chromium: browser tests are skipped"
        return DoctorCheck("browser", OPTIONAL, found, "sudo apt-get install chromium")
    return DoctorCheck("browser", OK, path)


def nvidia_smi() -> str | None:
    """Return name and memory of each GPU as reported by the driver, or None."""
    command = ["nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return "; ".join(line.strip() for line in done.stdout.splitlines() if line.strip()) or None


def _check_table(checks: Iterable[DoctorCheck]) -> Table:
    table = plain_table("check", "", "found", "fix")
    for check in checks:
        table.add_row(check.name, Text(check.state, STYLES[check.state]), Text(check.found), Text(check.fix))
    return table


def _use_table(lacking: Mapping[str, Sequence[str]]) -> Table:
    table = plain_table("use", "works", "missing")
    for use, lacks in lacking.items():
        table.add_row(use, Text("no", "bold red") if lacks else Text("yes", "green"), ", ".join(lacks))
    return table
