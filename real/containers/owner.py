"""Who a container or volume belongs to, and whether it is still wanted.

An owner is one open ``DockerHost`` of one process, written as
``boot id : pid namespace : pid : start time of the process : token``. The first four identify one process, and any
process on the same machine (same boot, same pid namespace) can check whether it is alive. A live process keeps its
containers, even if it was stopped for long; those of a dead one are unwanted. The token distinguishes several hosts of
one process. If an owner cannot be checked (another machine, another boot), its containers stay wanted for
``LEASE_SECONDS`` after their creation.
"""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from dartsim.real.processes import PROC, boot_id, pid_namespace, process_lives, process_start

OWNER = "dartsim.owner"
RUN = "dartsim.run"
SLOT = "dartsim.slot"
LEASE_SECONDS = 24 * 3600.0
"""Longer than any container of ours is used."""


class Life(StrEnum):
    """The state of an owner, as far as this process can tell."""

    ALIVE = "alive"
    """Its process runs and its host is open."""
    GONE = "gone"
    """Its process ended, or its host was closed."""
    UNKNOWN = "unknown"
    """It is or was on another machine, in another boot or pid namespace."""


@dataclass(frozen=True, slots=True)
class Owner:
    """One open host of one process.

    Attributes:
        boot: Identity of the machine's boot; empty if the system has none.
        namespace: Number of the pid namespace.
        pid: The process.
        start: When the process started, clock ticks after boot: a reused pid has another one.
        token: Distinguishes the hosts of one process.
    """

    boot: str
    namespace: str
    pid: int
    start: int
    token: str

    def __str__(self) -> str:
        return f"{self.boot}:{self.namespace}:{self.pid}:{self.start}:{self.token}"

    @classmethod
    def parse(cls, text: str) -> Owner | None:
        """Parse a label; None if it names no owner."""
        try:
            boot, namespace, pid, start, token = text.split(":")
            return cls(boot, namespace, int(pid), int(start), token)
        except ValueError:
            return None


_open: set[str] = set()
_lock = threading.Lock()


def new_owner(proc: Path = PROC) -> Owner:
    """Return a new owner in this process, alive until ``retire``."""
    pid = os.getpid()
    start, token = process_start(pid, proc), uuid.uuid4().hex[:12]
    if start is None:
        owner = Owner("", "", pid, 0, token)
    else:
        owner = Owner(boot_id(proc), pid_namespace(proc), pid, start, token)
    with _lock:
        _open.add(owner.token)
    return owner


def retire(owner: Owner) -> None:
    """Mark an owner of this process as gone, which makes its containers unwanted."""
    with _lock:
        _open.discard(owner.token)


def life(owner: Owner, proc: Path = PROC) -> Life:
    """Return whether an owner lives, as far as this process can tell."""
    if not owner.boot or owner.boot != boot_id(proc) or owner.namespace != pid_namespace(proc):
        return Life.UNKNOWN
    if not process_lives(owner.pid, owner.start, proc):
        return Life.GONE
    if owner.pid == os.getpid():
        with _lock:
            return Life.ALIVE if owner.token in _open else Life.GONE
    return Life.ALIVE


def owner_labels(owner: Owner, *, run: str, slot: int = 0) -> dict[str, str]:
    """Return the labels of a container or volume."""
    return {OWNER: str(owner), RUN: run, SLOT: str(slot)}


def wanted(labels: Mapping[str, str], *, age_seconds: float) -> bool:
    """Return whether a container or volume with these labels is still wanted."""
    owner = Owner.parse(labels[OWNER])
    found = Life.UNKNOWN if owner is None else life(owner)
    return found is Life.ALIVE or (found is Life.UNKNOWN and age_seconds < LEASE_SECONDS)
