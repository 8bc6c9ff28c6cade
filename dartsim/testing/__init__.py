"""For your own tests: a simulated cluster as a pytest fixture, and conformance checks of components.

``pytest_plugins = ["dartsim.testing"]`` in a top-level ``conftest.py`` provides the fixture ``cluster``. The setting
``dartsim_cluster`` says which one: a workload's name or a TOML file (default: ``laptop``). The checks need no pytest.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)  # __init__.pyi has the names
