"""Facts about this machine, its software and this commit, for recorded figures; None for unknown facts."""

from __future__ import annotations

import ipaddress
import os
import platform
import re
import subprocess
import tomllib
from contextlib import suppress
from importlib import metadata
from itertools import chain
from pathlib import Path
from typing import Any

import psutil

_GIB = 2**30


def describe_machine() -> dict[str, Any]:
    """Return the facts that are recorded beside every figure, JSON-serializable.

    Keys: ``cpu_model``, ``logical_cores`` (those this process may use), ``memory_gib`` (one decimal), ``os``,
    ``python``, ``commit`` (in full), ``dirty`` (whether tracked files differ from the commit or there are
    new ones), ``packages`` (versions of direct dependencies).
    """
    commit, dirty = checkout_state(Path(__file__).resolve().parent.parent)
    return {
        "cpu_model": cpu_model(),
        "logical_cores": usable_cores(),
        "memory_gib": round(psutil.virtual_memory().total / _GIB, 1),
        "os": platform.platform(),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "commit": commit,
        "dirty": dirty,
        "packages": direct_packages(),
    }


def cpu_model(cpuinfo: Path = Path("/proc/cpuinfo")) -> str | None:
    """Return the name of the processor model, or None if the system does not say."""
    try:
        lines = cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, None) or platform.processor() or None


def checkout_state(root: Path) -> tuple[str | None, bool | None]:
    """Return the commit of the git checkout at ``root`` and whether files differ from it.

    Both are None if ``root`` is not the top of a checkout (an installed wheel, even inside another project's
    checkout), there is no commit yet, or git is not installed.
    """
    top = _git(root, "rev-parse", "--show-toplevel")
    commit = _git(root, "rev-parse", "--verify", "HEAD")
    status = _git(root, "status", "--porcelain")
    if top is None or commit is None or status is None or Path(top).resolve() != root.resolve():
        return None, None
    return commit, bool(status)


def direct_packages() -> dict[str, str]:
    """Return the installed version of each package that this one, or one of its extras, names as a dependency."""
    project = Path(__file__).resolve().parent.parent / "pyproject.toml"
    if project.is_file():
        table = tomllib.loads(project.read_text(encoding="utf-8"))["project"]
        named = [*table["dependencies"], *chain.from_iterable(table["optional-dependencies"].values())]
    else:
        named = metadata.requires("dartsim") or []
    versions: dict[str, str] = {}
    for name in sorted({re.split(r"[^\w.-]", requirement)[0].lower() for requirement in named}):
        with suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return versions


def usable_cores() -> int:
    """Return how many logical cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def is_loopback(address: str) -> bool:
    """Return whether only this machine can reach what listens at an address."""
    if address == "localhost":
        return True
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def _git(root: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *arguments], capture_output=True, text=True, check=True, timeout=30
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
