from .fixture import SimulatedCluster as SimulatedCluster
from .fixture import cluster as cluster
from .fixture import pytest_addoption as pytest_addoption
from .rules import check_rule as check_rule
