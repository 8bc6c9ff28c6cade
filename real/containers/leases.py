"""Labels on everything we create, and leases that other clients of the engine can read.

A container's labels cannot be changed, so a heartbeat cannot be written there. Three facts decide whether a container
is still wanted:

1. ``dartsim.owner``: the process that started it (``owner``). On the same machine this alone decides: a living process
   keeps its containers, however long it was stopped; a dead one has lost them.
2. ``dartsim.lease``: until when it is wanted in any case, in seconds of the engine's clock.
3. The owner's *lease record* on the engine, one for all containers of an owner: an empty volume whose labels have the
   owner and a newer ``dartsim.lease``, replaced at each heartbeat. If the owner cannot be checked (another machine,
   another boot), the container is wanted until the later of the two leases.

All lease times are read from the engine's clock, so that clients with different clocks agree.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from dartsim.real.containers.owner import Life, Owner, life

OWNER = "dartsim.owner"
RUN = "dartsim.run"
SLOT = "dartsim.slot"
LEASE = "dartsim.lease"


def container_labels(owner: Owner, *, run: str, slot: int, lease: float) -> dict[str, str]:
    """Return the labels of one container; ``lease`` is engine time, seconds since 1970."""
    return {OWNER: str(owner), RUN: run, SLOT: str(slot), LEASE: f"{lease:.0f}"}


def wanted(labels: Mapping[str, str], records: Mapping[str, float], now: float) -> bool:
    """Return whether a container or lease record with these labels is still wanted, given the newest lease by owner."""
    text = labels[OWNER]
    owner = Owner.parse(text)
    alive = Life.UNKNOWN if owner is None else life(owner)
    if alive is Life.UNKNOWN:
        return max(_seconds(labels.get(LEASE)), records.get(text, 0.0)) > now
    return alive is Life.ALIVE


def newest_records(volumes: Iterable[Mapping[str, str]]) -> dict[str, float]:
    """Return the newest lease of each owner from the labels of lease records."""
    records: dict[str, float] = {}
    for labels in volumes:
        if owner := labels.get(OWNER):
            records[owner] = max(records.get(owner, 0.0), _seconds(labels.get(LEASE)))
    return records


class EngineClock:
    """The engine's clock, read once and then advanced by ours; blocking."""

    def __init__(self) -> None:
        self._ahead: float | None = None

    def read(self, client: Any) -> float:
        """Ask the engine for its time, seconds since 1970, and remember it."""
        now = datetime.fromisoformat(client.info()["SystemTime"]).timestamp()
        self._ahead = now - time.monotonic()
        return now

    def now(self, client: Any) -> float:
        """Return the engine's time; asks the engine only the first time."""
        return self.read(client) if self._ahead is None else time.monotonic() + self._ahead


class LeaseRecord:
    """An owner's lease, stored on one engine for others to see; blocking, one caller at a time."""

    def __init__(self, owner: Owner, *, run: str, lease_seconds: float) -> None:
        self._owner = owner
        self._run = run
        self._lease_seconds = lease_seconds
        self._number = 0

    def renew(self, client: Any, now: float) -> None:
        """Write a record that lasts ``lease_seconds`` from ``now``, then remove the previous one."""
        labels = {OWNER: str(self._owner), RUN: self._run, LEASE: f"{now + self._lease_seconds:.0f}"}
        client.volumes.create(name=self._name(self._number + 1), labels=labels)
        self._number += 1
        if self._number > 1:
            self._remove(client, self._number - 1)

    def _remove(self, client: Any, number: int) -> None:
        import docker.errors

        try:
            client.volumes.get(self._name(number)).remove(force=True)
        except docker.errors.NotFound:
            return  # another client pruned volumes

    def _name(self, number: int) -> str:
        return f"dartsim-lease-{self._owner.token}-{number}"


def _seconds(text: str | None) -> float:
    """Return the time of a label; 0 if it is missing or malformed."""
    try:
        return float(text or 0)
    except ValueError:
        return 0.0
