"""Who a container belongs to, and whether its owner still lives.

An owner is one open ``DockerHost`` of one process, written as
``boot id : pid namespace : pid : start time of the process : token``. The first four name a process that existed once
and never again, and anybody on the same machine (same boot, same pid namespace) can tell for sure whether it lives; the
token tells several hosts of one process apart. From elsewhere, only a lease can tell (``real.containers.leases``).
"""

from __future__ import annotations

import os
import threading
import uuid
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

PROC = Path("/proc")


class Life(StrEnum):
    """What is known of an owner."""

    ALIVE = "alive"
    """Its process runs and its host is open."""
    GONE = "gone"
    """Its process ended, or its host was closed."""
    UNKNOWN = "unknown"
    """It lives, or lived, where we cannot look."""


@dataclass(frozen=True, slots=True)
class Owner:
    """One open host of one process.

    Attributes:
        boot: Identity of the machine's present boot; empty where the system has none.
        namespace: Number of the pid namespace, without which a pid means nothing.
        pid: The process.
        start: When the process started, clock ticks after boot; with it a reused pid is another process.
        token: Tells hosts of one process apart.
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
        """Return the owner that a label names, or None if it names none."""
        parts = text.split(":")
        try:
            boot, namespace, pid, start, token = parts
            return cls(boot, namespace, int(pid), int(start), token)
        except ValueError:
            return None


_open: set[str] = set()
_lock = threading.Lock()


def new_owner(proc: Path = PROC) -> Owner:
    """Return a new owner in this process, alive until ``retire``."""
    pid = os.getpid()
    started = process_start(pid, proc)
    here = started is not None
    owner = Owner(
        _boot(proc) if here else "", _namespace(proc) if here else "", pid, started or 0, uuid.uuid4().hex[:12]
    )
    with _lock:
        _open.add(owner.token)
    return owner


def retire(owner: Owner) -> None:
    """Say that an owner of this process is done: what it left behind is nobody's."""
    with _lock:
        _open.discard(owner.token)


def life(owner: Owner, proc: Path = PROC) -> Life:
    """Return whether an owner lives, as far as this process can know."""
    if not owner.boot or owner.boot != _boot(proc) or owner.namespace != _namespace(proc):
        return Life.UNKNOWN
    if not process_lives(owner.pid, owner.start, proc):
        return Life.GONE
    if owner.pid == os.getpid():
        with _lock:
            return Life.ALIVE if owner.token in _open else Life.GONE
    return Life.ALIVE


def process_lives(pid: int, start: int, proc: Path = PROC) -> bool:
    """Return whether the process with this pid and start time runs; a zombie does not."""
    stat = _stat(pid, proc)
    if stat is not None:
        state, started = stat
        return started == start and state not in "ZX"
    # Where processes of other users are hidden, a signal still tells them from none.
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def process_start(pid: int, proc: Path = PROC) -> int | None:
    """Return when a process started, in clock ticks after boot; None where the system does not tell."""
    stat = _stat(pid, proc)
    return None if stat is None else stat[1]


def machine(proc: Path = PROC) -> str:
    """Return what a pid means something within: this boot and pid namespace; empty where the system has none."""
    boot, namespace = _boot(proc), _namespace(proc)
    return f"{boot}:{namespace}" if boot and namespace else ""


def _stat(pid: int, proc: Path) -> tuple[str, int] | None:
    try:
        text = (proc / str(pid) / "stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    # The name in parentheses may hold anything, parentheses too. State and start time are fields 3 and 22 (proc(5)).
    fields = text.rpartition(")")[2].split()
    return fields[0], int(fields[19])


def _boot(proc: Path) -> str:
    try:
        return (proc / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _namespace(proc: Path) -> str:
    try:
        link = (proc / "self/ns/pid").readlink().name
    except OSError:
        return ""
    return "".join(character for character in link if character.isdigit())
