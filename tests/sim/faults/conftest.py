"""The faults of one run, as a test wants them."""

import asyncio
from collections import Counter
from math import inf

import pytest

from dartsim.config.schema import FaultsConfig
from dartsim.core.rng import Streams
from dartsim.sim.faults import ClusterSize, FaultInjector, active_faults


@pytest.fixture
def make():
    """Return a function that makes the faults of a configuration's fields on the running loop."""

    def faults(*, seed=0, hosts=2, desktops=2, workers=2, heal_at=inf, **fields):
        return FaultInjector(
            active_faults(FaultsConfig.model_validate(fields)),
            env=asyncio.get_running_loop().env,
            streams=Streams(seed),
            counts=Counter(),
            size=ClusterSize(desktops=desktops, hosts=hosts, workers=workers),
            heal_at=heal_at,
        )

    return faults


@pytest.fixture
def at():
    """Return a function that makes the fields of faults at set times: ``at((kind, seconds, lasts, target), …)``."""

    def schedule(*strikes):
        names = ("kind", "at_seconds", "lasts_seconds", "target", "times")
        return {"schedule": [dict(zip(names, strike, strict=False)) for strike in strikes]}

    return schedule
