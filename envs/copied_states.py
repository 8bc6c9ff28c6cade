"""Saved states of gymnasium environments, which copy their own state, by host (``desktop.revert``)."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, field
from typing import Any, Protocol

from typing_extensions import override

from dartsim.core.errors import EnvBroken
from dartsim.core.snapshots import Snapshots
from dartsim.core.types import Task


@dataclass
class HostStates:
    """The saved states of a host's desktops, by key; None is the state after a boot, which any ``begin`` returns to."""

    host: str
    states: dict[str, Any] = field(default_factory=dict)


class CopiedStates(Snapshots):
    """The saved states of a desktop that copies its own state."""

    def __init__(self, desktop: Any, kept: HostStates) -> None:
        self._desktop = desktop
        self._kept = kept
        self._restored: Any = None
        self._begun = False

    @property
    @override
    def host(self) -> str:
        return self._kept.host

    @override
    async def save(self, key: str) -> int:
        state = self._desktop.copy_state() if self._begun else None
        self._kept.states[key] = state
        return len(pickle.dumps(state))

    @override
    async def restore(self, key: str) -> None:
        if key not in self._kept.states:
            raise EnvBroken(f"{self.host} has no saved state {key!r}")
        self._restored, self._begun = self._kept.states[key], False

    @override
    async def delete(self, key: str) -> None:
        self._kept.states.pop(key, None)

    @property
    def set_up(self) -> bool:
        """Whether the restored state includes a task's set-up."""
        return self._restored is not None

    def begin(self, task: Task, seed: int) -> None:
        """Begin an attempt in the restored state, with a set-up if the state has none."""
        state, self._restored, self._begun = self._restored, None, True
        if state is None:
            self._desktop.begin(task, seed)
        else:
            self._desktop.resume(state, task, seed)


class TakesTime(Protocol):
    """A desktop on the loop's time (``dartsim.envs.timed.TimedEnv``)."""

    async def save(self) -> int:
        """Take the time of a save; return the state's size, bytes."""
        ...

    async def revert(self) -> None:
        """Take the time of a restore."""
        ...


class TimedStates(CopiedStates):
    """Saved states, and the time that saving and restoring take."""

    def __init__(self, desktop: Any, kept: HostStates, env: TakesTime) -> None:
        super().__init__(desktop, kept)
        self._env = env

    @override
    async def save(self, key: str) -> int:
        num_bytes = await self._env.save()
        await super().save(key)
        return num_bytes

    @override
    async def restore(self, key: str) -> None:
        await self._env.revert()
        await super().restore(key)
