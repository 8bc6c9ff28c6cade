"""``dartsim doctor``: what works on this machine, what is missing, and how to install it."""

from __future__ import annotations

import asyncio
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import psutil
import typer
from rich.table import Table
from rich.text import Text

from dartsim.cli.console import out, plain_table, write_json
from dartsim.cli.options import JsonInstead
from dartsim.cli.service_checks import CheckState, DoctorCheck, installed, service_checks
from dartsim.core.install import install_command

EXAMPLES = (
    "Examples:\n\ndartsim doctor\n\ndartsim doctor --json - | jq .works\n\n"
    "dartsim doctor --ray head:6379 --engine http://127.0.0.1:8000 \\\n  --store postgresql://me@db/runs"
)

GIB = 2**30
OLDEST_PYTHON = (3, 11)
BASICS = ("gymnasium", "numpy", "pillow", "plotly", "psutil", "pydantic", "rich", "simpy", "sqlalchemy", "typer")
TRAIN = ("torch", "transformers", "peft", "safetensors")
REAL = ("aiohttp", "anyio", "cssselect", "docker", "httpx", "lxml", "openpyxl")
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


STYLES = {CheckState.OK: "green", CheckState.MISSING: "bold red", CheckState.OPTIONAL: "yellow"}


NEEDS = {
    "simulated runs": ("python", "packages", "memory", "disk"),
    "learning (tiny model)": ("python", "packages", "memory", "disk", "train packages"),
    "real desktops": ("python", "packages", "memory", "disk", "real packages", "engine"),
    "official OSWorld VMs": ("python", "packages", "memory", "disk", "real packages", "engine", "kvm"),
    "OSWorld's own metrics": ("python", "packages", "memory", "disk", "real packages", "evaluator"),
    "vLLM workers": ("python", "packages", "memory", "disk", "train packages", "real packages", "vllm"),
    "training on a GPU": ("python", "packages", "memory", "disk", "train packages", "gpu"),
    "a learner of several processes": ("python", "packages", "memory", "disk", "train packages", "torchrun"),
    "parts on a Ray cluster": ("python", "packages", "memory", "disk", "ray"),
    "a store on PostgreSQL": ("python", "packages", "memory", "disk", "postgres"),
}
"""The checks that each use needs; the first is the basics, which decide the exit code."""


def doctor(
    ray: Annotated[
        str | None,
        typer.Option("--ray", metavar="ADDRESS", help="Check for a Ray cluster at this address; default: RAY_ADDRESS."),
    ] = None,
    engine: Annotated[
        list[str] | None,
        typer.Option("--engine", metavar="URL", help="Check that this vLLM server accepts us; repeatable."),
    ] = None,
    store: Annotated[
        str | None, typer.Option("--store", metavar="URL", help="Check that this PostgreSQL database answers.")
    ] = None,
    json_file: JsonInstead = None,
) -> None:
    """Check what works on this machine, what is missing, and how to install it.

    Exit code 0 if simulated runs work, 1 otherwise. It starts and changes nothing, and asks the named
    services only for their versions.
    """
    checks = examine(ray=ray, engines=engine or (), store=store)
    works = {use: works_with(checks, needs) for use, needs in NEEDS.items()}
    if json_file is not None:
        write_json({"works": works, "checks": [asdict(check) for check in checks]}, json_file)
    else:
        out.print(_table(checks))
        out.print()
        out.print(_uses(checks, works))
    if not next(iter(works.values())):
        raise typer.Exit(1)


def examine(*, ray: str | None = None, engines: Sequence[str] = (), store: str | None = None) -> list[DoctorCheck]:
    """Return all checks of this machine.

    Args:
        ray: Address of a Ray cluster that should listen.
        engines: URLs of vLLM servers that should answer.
        store: URL of a PostgreSQL database that should answer.
    """
    return [
        check_python(sys.version_info[:2]),
        check_packages("packages", BASICS, install_command()),
        check_cores(),
        check_memory(psutil.virtual_memory().total / GIB),
        check_disk(shutil.disk_usage(Path.cwd()).free / GIB),
        check_packages("train packages", TRAIN, install_command("train")),
        check_gpu(),
        check_packages("real packages", REAL, install_command("real")),
        check_engine(),
        check_kvm(),
        *(check() for check in service_checks(ray=ray, engines=engines, store=store)),
        check_browser(),
    ]


def works_with(checks: Iterable[DoctorCheck], needs: Iterable[str]) -> bool:
    """Return whether all the named checks passed."""
    states = {check.name: check.state for check in checks}
    return all(states[name] is CheckState.OK for name in needs)


def check_python(version: tuple[int, ...]) -> DoctorCheck:
    """Look at the interpreter."""
    fine = version[:2] >= OLDEST_PYTHON
    wanted = ".".join(map(str, OLDEST_PYTHON))
    return DoctorCheck(
        name="python",
        state=CheckState.OK if fine else CheckState.MISSING,
        found=f"{platform.python_implementation()} {platform.python_version()} on {platform.system()}",
        type="" if fine else f"install Python {wanted} or newer",
    )


def check_packages(name: str, wanted: Iterable[str], command: str) -> DoctorCheck:
    """Look for installed distributions, without importing them."""
    versions = {package: installed(package) for package in wanted}
    missing = [package for package, version in versions.items() if version is None]
    there = ", ".join(f"{package} {version}" for package, version in versions.items() if version is not None)
    found = there if not missing else f"no {', '.join(missing)}" + (f"; {there}" if there else "")
    return DoctorCheck(
        name=name, state=CheckState.MISSING if missing else CheckState.OK, found=found, type=command if missing else ""
    )


def check_cores() -> DoctorCheck:
    """Report the processor; one core is enough, but slow."""
    from dartsim.real.machine import cpu_model, usable_cores

    return DoctorCheck(
        name="cores", state=CheckState.OK, found=f"{usable_cores()} usable, {cpu_model() or 'unknown model'}"
    )


def check_memory(total_gib: float) -> DoctorCheck:
    """Look at the memory."""
    # Measured: a small desktop takes about 0.11 GiB, one with LibreOffice 0.4, an official virtual machine 4.2.
    found = (
        f"{total_gib:.1f} GiB: about {int(total_gib * 0.85 / 0.4)} small desktops or {int(total_gib * 0.85 / 4.2)} VMs"
    )
    fine = total_gib >= 1.0
    return DoctorCheck(
        name="memory",
        state=CheckState.OK if fine else CheckState.MISSING,
        found=found,
        type="" if fine else "1 GiB at least",
    )


def check_disk(free_gib: float) -> DoctorCheck:
    """Look at the disk on which runs are written."""
    fine = free_gib >= 1.0
    return DoctorCheck(
        name="disk",
        state=CheckState.OK if fine else CheckState.MISSING,
        found=f"{free_gib:.1f} GiB free here (the official VM's disk and image want 32)",
        type="" if fine else "free 1 GiB, or run in another folder",
    )


def check_gpu(query: Callable[[], str | None] | None = None) -> DoctorCheck:
    """Look for a GPU through its driver, without importing torch."""
    found = (query or nvidia_smi)()
    if found and (installed("torch") or "").endswith("+cpu"):
        found = f"{found}, but the installed torch is built for CPUs only"
        command = "pip install --force-reinstall torch"
        return DoctorCheck(name="gpu", state=CheckState.OPTIONAL, found=found, type=command)
    if found:
        return DoctorCheck(name="gpu", state=CheckState.OK, found=found)
    return DoctorCheck(
        name="gpu",
        state=CheckState.OPTIONAL,
        found="no nvidia-smi that lists one; the tiny model trains on the CPU",
        type="install the NVIDIA driver if the machine has a GPU",
    )


def check_engine() -> DoctorCheck:
    """Ask the Docker engine for its version and resources."""
    from dartsim.core.errors import DartsimError
    from dartsim.real.containers import DockerHost, EngineInfo, HostSettings

    async def ask() -> EngineInfo:
        async with DockerHost(HostSettings(bind_address="0.0.0.0", call_seconds=10.0)) as host:
            return await host.info()

    try:
        info = asyncio.run(ask())
    except DartsimError as error:
        what, _, command = str(error).rpartition(": ")
        return DoctorCheck(name="engine", state=CheckState.MISSING, found=what, type=command)
    left = f", {info.ours} of ours" if info.ours else ""
    found = (
        f"Docker {info.version} (API {info.api}) at {info.url}: cgroup {info.cgroup}, {info.storage}, "
        f"{info.cores} cores, {info.memory_gib} GiB, {info.containers} containers{left}"
    )
    return DoctorCheck(name="engine", state=CheckState.OK, found=found)


def check_kvm() -> DoctorCheck:
    """Check that KVM can accelerate virtual machines."""
    from dartsim.real.containers import HostSettings, Kvm, kvm_state

    state = kvm_state(Kvm.AUTO, local=HostSettings().local)
    return DoctorCheck(
        name="kvm",
        state=CheckState.OK if state.use else CheckState.OPTIONAL,
        found=state.why,
        type="" if state.use else "sudo modprobe kvm_intel (or kvm_amd), on a machine with virtualization enabled",
    )


def check_browser() -> DoctorCheck:
    """Look for a Chromium; only the tests of the pages use it."""
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        command = "sudo apt-get install chromium"
        return DoctorCheck(
            name="browser", state=CheckState.OPTIONAL, found="no Chromium: browser tests are skipped", type=command
        )
    return DoctorCheck(name="browser", state=CheckState.OK, found=path)


def nvidia_smi() -> str | None:
    """Return name and memory of each GPU as reported by the driver, or None."""
    command = ["nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return "; ".join(line.strip() for line in done.stdout.splitlines() if line.strip()) or None


def _table(checks: Iterable[DoctorCheck]) -> Table:
    table = plain_table("check", "", "found", "fix")
    for check in checks:
        table.add_row(check.name, Text(check.state, STYLES[check.state]), Text(check.found), Text(check.type))
    return table


def _uses(checks: Iterable[DoctorCheck], works: dict[str, bool]) -> Table:
    table = plain_table("use", "works", "missing")
    states = {check.name: check.state for check in checks}
    for use, fine in works.items():
        wanting = ", ".join(need for need in NEEDS[use] if states[need] is not CheckState.OK)
        table.add_row(use, Text("yes", "green") if fine else Text("no", "bold red"), wanting)
    return table
