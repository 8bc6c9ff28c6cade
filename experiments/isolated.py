"""Measurements in a process of their own: its CPU time and memory are those of what it runs."""

from __future__ import annotations

import resource
import sys
from collections.abc import Callable
from pathlib import Path
from typing import ParamSpec, TypeVar

from dartsim.real.processes import process_pool

P = ParamSpec("P")
T = TypeVar("T")


def isolated(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a function of a module in a fresh process and return what it returns."""
    with process_pool(1) as pool:
        return pool.submit(function, *args, **kwargs).result()


def peak_rss_mb() -> float:
    """Return the most memory that this process has had resident, in megabytes (10**6 bytes)."""
    status = Path("/proc/self/status")
    if status.exists():
        # Not getrusage: on Linux it also counts what the process that started this one had.
        for line in status.read_text(encoding="ascii").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024 / 1e6
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1e6 if sys.platform == "darwin" else peak * 1024 / 1e6
