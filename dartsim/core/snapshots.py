"""Saved states of desktops: the port that lets attempts skip the boot and the set-up."""

from __future__ import annotations

import hashlib
import json
from typing import Protocol

from typing_extensions import override

from dartsim.core.ports import AsyncEnv
from dartsim.core.types import Task

REVERT_KEY = "revert"
"""Key of a task file; with the value ``"boot"`` every attempt at the task boots its own desktop."""


class Snapshots(Protocol):
    """The saved states that a desktop can return to: its own, and those of other desktops on its host."""

    @property
    def host(self) -> str:
        """Where the states are stored: desktops with the same ``host`` can restore each other's."""
        ...

    async def save(self, key: str) -> int:
        """Save the present state under a key, replacing an older one, and return its size on the host, bytes.

        Called on a started desktop before its first ``reset``, or right after a ``reset``.

        Raises:
            EnvFault: If it could not; nothing is kept under the key.
        """
        ...

    async def restore(self, key: str) -> None:
        """Return to a saved state, whatever the desktop is doing; ``reset`` is called next.

        If the state was saved after a ``reset``, the next ``reset`` is for a task with the same set-up and skips it: it
        only corrects the clock, reseeds random generators, and returns the first observation.

        Raises:
            EnvFault: If there is no such state, or the desktop did not return to it; then only ``close`` may follow.
        """
        ...

    async def delete(self, key: str) -> None:
        """Delete a saved state; do nothing if there is none."""
        ...


class WrappedSnapshots(Snapshots):
    """Passes each call on to other saved states; subclasses extend some of the calls.

    Args:
        inner: The saved states to call.
    """

    def __init__(self, inner: Snapshots) -> None:
        self._inner = inner

    @property
    @override
    def host(self) -> str:
        return self._inner.host

    @override
    async def save(self, key: str) -> int:
        return await self._inner.save(key)

    @override
    async def restore(self, key: str) -> None:
        await self._inner.restore(key)

    @override
    async def delete(self, key: str) -> None:
        await self._inner.delete(key)


def snapshots_of(env: AsyncEnv) -> Snapshots | None:
    """Return the saved states of a desktop; None if it cannot save its state."""
    snapshots: Snapshots | None = getattr(env, "snapshots", None)
    return snapshots


def snapshot_key(task: Task) -> str:
    """Return the key of the state after a task's set-up: equal for equal set-ups of one task, safe as a file name."""
    content = json.dumps([task.id, task.spec.get("config")], sort_keys=True, default=str)
    return hashlib.sha256(content.encode()).hexdigest()[:32]
