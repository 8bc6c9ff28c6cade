"""What an engine is asked for."""

import pytest

from dartsim.core.errors import ConfigError
from dartsim.real.containers.spec import ContainerLimits, ContainerSpec


@pytest.mark.parametrize(
    "changes",
    [
        {"ports": {"server": 0}},
        {"ports": {"server": 5000}, "network": "none"},
        {"volumes": {"disk.qcow2": "/System.qcow2:ro"}},
        {"volumes": {"/disk.qcow2": "System.qcow2"}},
    ],
)
def test_specs_that_cannot_work_are_refused(changes):
    with pytest.raises(ConfigError):
        ContainerSpec(image="a", **changes)


@pytest.mark.parametrize("name", ["memory_mib", "cpus", "pids"])
def test_limits_are_positive(name):
    with pytest.raises(ConfigError, match=name):
        ContainerLimits(**{name: 0})
