"""The pytest fixture ``cluster`` and its setting."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from dartsim.api import Comparison, Result, compare, simulate
from dartsim.config.load import Scheduler

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from dartsim.api import RuleChoices


class SimulatedCluster:
    """A cluster for tests.

    Args:
        on: A workload's or preset's name, or a TOML file.
        overrides: Settings of every run on it, by dotted key.
    """

    def __init__(self, on: str | Path = "laptop", overrides: Mapping[str, Any] | None = None) -> None:
        self.on = on
        self.overrides = dict(overrides or {})

    def simulate(
        self,
        scheduler: Scheduler = "dart",
        *,
        seed: int = 0,
        overrides: Mapping[str, Any] | None = None,
        **rules: Unpack[RuleChoices],
    ) -> Result:
        changes = {**self.overrides, **(overrides or {})}
        return simulate(scheduler, on=self.on, seed=seed, overrides=changes, **rules)

    def compare(
        self,
        schedulers: Iterable[Scheduler] | Mapping[str, Scheduler],
        *,
        seeds: int = 3,
        overrides: Mapping[str, Any] | None = None,
    ) -> Comparison:
        return compare(schedulers, self.on, seeds=seeds, overrides={**self.overrides, **(overrides or {})})


def pytest_addoption(parser: pytest.Parser) -> None:
    """Register the setting."""
    parser.addini("dartsim_cluster", "cluster of the fixture `cluster`: a workload or a TOML file", default="laptop")


@pytest.fixture
def cluster(pytestconfig: pytest.Config) -> SimulatedCluster:
    """The cluster that the setting ``dartsim_cluster`` names; a file is relative to pytest's configuration file."""
    on = pytestconfig.getini("dartsim_cluster")
    return SimulatedCluster(pytestconfig.rootpath / on if on.endswith(".toml") else on)
