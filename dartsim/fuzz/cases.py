"""``Case``: everything that determines one run of the search."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from dartsim.config.schema import FaultWindow

Choice = str | int | float | bool | None


def fault_window(kind: str, at_seconds: float, lasts_seconds: float, target: int | None = None) -> FaultWindow:
    """Return a window that affects every call of its target, or of all targets."""
    return FaultWindow(kind=kind, at_seconds=at_seconds, lasts_seconds=lasts_seconds, target=target, times=None)


@dataclass(frozen=True)
class Case:
    """One run: a preset, differences from the simplest cluster, faults, and a seed.

    Attributes:
        preset: Its scheduler, or ``dartsim.fuzz.space.DRAWN`` if the choices contain the scheduler.
        seed: Seed of every latency, outcome and order.
        choices: Value of each dimension; missing dimensions have their simplest value.
        faults: Fault windows, in any order; see ``fault_window``.
        profile: Fault rates until all faults end: a value of ``cluster.faults.profile``.
    """

    preset: str
    seed: int
    choices: Mapping[str, Choice] = field(default_factory=lambda: MappingProxyType({}))
    faults: tuple[FaultWindow, ...] = ()
    profile: str = "none"

    def as_json(self) -> dict[str, Any]:
        """Return the case as JSON-serializable data, for ``case_of_json``."""
        faults = [fault.model_dump(exclude={"times"}) for fault in self.faults]
        return {**vars(self), "choices": dict(sorted(self.choices.items())), "faults": faults}


def case_of_json(data: Mapping[str, Any]) -> Case:
    """Return the case of ``Case.as_json``."""
    return Case(**{**data, "faults": tuple(fault_window(**fault) for fault in data["faults"])})
