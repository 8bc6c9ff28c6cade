"""A store whose disk is full for a while: what a run does about it is the run's to show."""

from __future__ import annotations

from typing import Any

from dartsim.core.errors import StoreFull
from dartsim.core.ports import Store
from dartsim.core.types import Trajectory
from dartsim.sim.faults.striking import Faults
from dartsim.sim.faults.table import KINDS

FULL = KINDS["store_full"]


class StruckStore:
    """A store that refuses to keep trajectories while its disk is full; implements ``dartsim.core.ports.Store``.

    Args:
        inner: The store.
        faults: What strikes.
    """

    def __init__(self, inner: Store, faults: Faults) -> None:
        self._inner = inner
        self._faults = faults
        self._spells = faults.spells(FULL.name)

    def record(self, trajectory: Trajectory) -> None:
        """Keep a finished attempt.

        Raises:
            StoreFull: While there is no room.
        """
        if self._spells.at(self._faults.env.now):
            self._faults.notice(FULL, self._spells)
            raise StoreFull(f"attempt {trajectory.attempt.id} cannot be kept: {FULL.what} (drawn fault {FULL.name})")
        self._inner.record(trajectory)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)
