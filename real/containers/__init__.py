"""Containers on one or several Docker engines: started, limited, reaped, removed.

``ContainerSpec`` describes a container, ``DockerHost`` is one engine, ``DesktopFleet`` several. Labels let a later
process find and remove what a killed one left, and nothing else. The ``docker`` package is loaded only when an engine
is used.
"""

from dartsim.real.containers.engine import EngineInfo
from dartsim.real.containers.fleet import DesktopFleet
from dartsim.real.containers.host import Container, DockerHost
from dartsim.real.containers.official import Kvm, KvmState, kvm_state, official_spec
from dartsim.real.containers.spec import ContainerLimits, ContainerSpec

__all__ = [
    "Container",
    "ContainerLimits",
    "ContainerSpec",
    "DesktopFleet",
    "DockerHost",
    "EngineInfo",
    "Kvm",
    "KvmState",
    "kvm_state",
    "official_spec",
]
